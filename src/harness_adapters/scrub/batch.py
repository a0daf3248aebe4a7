"""Many JSON texts searched as one: most lines are short and hold nothing, and a search costs more to start than to run.

Invariants
- The texts are those of the documents and of all JSON nested in them, each followed by one more `\\x00`, so that no
  pattern takes the last literal of one and the first of the next for neighbours.
- A document gets of what was found exactly what lies in its own part, counted from its start.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from harness_adapters.scrub.finding import Span
from harness_adapters.scrub.literals import Document

DEEPEST = 8
FoundIn = Callable[[Document], list[Span]]
"""The spans of a document, counted from the start of its text."""


class Batch:
    """`documents` in order, each with the number of its line and its place in the output; `size` is that of all.

    With `numbers`, those that are passwords count as strings.
    """

    def __init__(self, *, numbers: bool = False) -> None:
        self._numbers = numbers
        self.documents: list[tuple[Document, int, int]] = []
        self.size = 0
        self._parts: list[bytes] = []
        self._length = 0
        self._starts: list[int] = []

    def add(self, raw: bytes, number: int = 1, place: int = 0) -> Document:
        """Take a valid JSON text apart."""
        document = Document(raw, DEEPEST, numbers=self._numbers)
        self.documents.append((document, number, place))
        self._starts.append(self._length)
        self.size += len(raw)
        self._lay_out(document)
        return document

    def _lay_out(self, document: Document) -> None:
        document.offset = self._length
        self._parts += (document.text, b"\x00")
        self._length += len(document.text) + 1
        for inner in document.nested.values():
            self._lay_out(inner)

    def text(self) -> bytes:
        """What is to be searched."""
        return b"".join(self._parts)

    def hit(self, spans: list[Span]) -> Iterator[tuple[Document, int, int]]:
        """The documents in which, or in whose nested ones, one of the sorted spans starts."""
        last = -1
        for span in spans:
            index = bisect_right(self._starts, span.start) - 1
            if index != last:
                last = index
                yield self.documents[index]

    def within(self, spans: list[Span]) -> FoundIn:
        """How to look up the spans of a document of this batch, or of a nested one, among the sorted ones of all."""
        starts = [span.start for span in spans]

        def of(document: Document) -> list[Span]:
            offset = document.offset
            first = bisect_left(starts, offset)
            end = bisect_left(starts, offset + len(document.text), first)
            return [
                span._replace(start=span.start - offset, end=span.end - offset) if offset else span
                for span in spans[first:end]
            ]

        return of
