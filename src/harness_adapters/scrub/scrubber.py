"""Text in, scrubbed text out: the order of the finders, the replacing, and what is said about it.

Invariants
- JSON stays JSON: only insides of string literals change, and JSON within them is scrubbed as JSON of its own.
- Scrubbing what was scrubbed changes nothing: a text is scrubbed until nothing more is found in it.
- A finding names kind and place, never the value.

Order, earlier wins: the person's own live secrets, what escapes of letters spell, values learnt in this run, known
kinds of secrets, personal details, images and blobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from harness_adapters.scrub.batch import DEEPEST, Batch, FoundIn
from harness_adapters.scrub.blobs import BLOB, IMAGE, BlobFinder
from harness_adapters.scrub.escapes import unescaped
from harness_adapters.scrub.finding import RuleFinder, Span, disjoint
from harness_adapters.scrub.identity import Identity
from harness_adapters.scrub.literals import Document, is_json
from harness_adapters.scrub.number_passwords import may_hold_one
from harness_adapters.scrub.own_secrets import OwnSecretFinder
from harness_adapters.scrub.personal import PersonalFinder
from harness_adapters.scrub.placeholders import DROPPED_BLOB, DROPPED_IMAGE, Placeholders
from harness_adapters.scrub.rule import entropy
from harness_adapters.scrub.rules import RULES

_ROUNDS = 5
_LEAST_LEARNT = 12
_CONTEXT = 200
_LAYERS = 3
"""Layers of escapes that are read. Each costs one more search of the text."""
_TOGETHER = 60
"""Places that share a window."""
_BATCH = 1 << 15
"""Bytes of lines that are searched at once: a pass over a short line costs less than starting it."""


class Finding(NamedTuple):
    """Something that was replaced: its kind, and the line (from 1) and JSON path where it stood."""

    kind: str
    line: int
    path: str


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """`text_lines` are the numbers of lines that are not JSON and were scrubbed as text."""

    data: bytes
    findings: tuple[Finding, ...]
    text_lines: tuple[int, ...]


class Scrubber:
    """One run: its placeholders and what it learnt hold over all texts that pass through it."""

    def __init__(self, identity: Identity | None = None, *, keep_images: bool = False) -> None:
        identity = identity or Identity()
        self.placeholders = Placeholders()
        self.learnt: dict[bytes, str] = {}
        self._own = OwnSecretFinder(identity.secrets)
        self._learnt_finder = OwnSecretFinder({})
        self._learnt_count = 0
        self._again = self._numbers = False
        self._rules = RuleFinder(RULES)
        self._personal = PersonalFinder(dict(identity.own))
        self._blobs = None if keep_images else BlobFinder()

    def scrub(self, data: bytes) -> Scrubbed:
        """Scrub a whole file: one JSON value, lines of them, or text. Never raises for what the file holds.

        A value learnt late in the file is replaced in what came before it, too.
        """
        self._look_for_learnt()
        findings: list[Finding] = []
        for _ in range(_ROUNDS):
            learnt = len(self.learnt)
            scrubbed = self._whole(data)
            data = scrubbed.data
            findings += scrubbed.findings
            if len(self.learnt) == learnt or not self.holds_learnt(data):
                break
        return Scrubbed(data, tuple(findings), scrubbed.text_lines)

    def holds_learnt(self, data: bytes) -> bool:
        """Whether a value learnt in this run stands in `data`, in any of its forms or escaped as JSON."""
        self._look_for_learnt()
        return next(iter(self._learnt_finder.spans(data)), None) is not None

    def _look_for_learnt(self) -> None:
        """Take what was learnt so far into the search. Not done at each new value: it costs a compilation."""
        if len(self.learnt) != self._learnt_count:
            self._learnt_finder = OwnSecretFinder(self.learnt)
            self._learnt_count = len(self.learnt)

    def reserve(self, data: bytes) -> None:
        """Take note of the stand-ins in an input, so that new ones do not take their numbers."""
        self.placeholders.reserve(data)

    def _whole(self, data: bytes) -> Scrubbed:
        self._numbers = may_hold_one(data)
        if is_json(data):
            findings: list[Finding] = []
            batch = Batch(numbers=self._numbers)
            document = batch.add(data)
            spans = self._spans(batch.text())
            scrubbed = self._settled_json(document, batch.within(spans), findings) if spans else data
            return Scrubbed(scrubbed, tuple(findings), ())
        return self._lines(data)

    def _lines(self, data: bytes) -> Scrubbed:
        """Lines that are JSON, searched many at a time, and runs of others as one text each (a key file spans lines).

        Lines wait in a batch while their places in `out` are held by what they were.
        """
        findings: list[Finding] = []
        out: list[bytes] = []
        text_lines: list[int] = []
        run: list[bytes] = []
        batch = Batch(numbers=self._numbers)
        lines = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            if line.strip() and is_json(line):
                self._flush(run, number, out, findings)
                batch.add(line, number, len(out))
                out.append(line)
                if batch.size >= _BATCH:
                    batch = self._flush_batch(batch, out, findings)
            elif line.strip() or run:
                batch = self._flush_batch(batch, out, findings)
                run.append(line)
                if line.strip():
                    text_lines.append(number)
            else:
                out.append(line)
        self._flush_batch(batch, out, findings)
        self._flush(run, len(lines) + 1, out, findings)
        return Scrubbed(b"\n".join(out), tuple(findings), tuple(text_lines))

    def _flush_batch(self, batch: Batch, out: list[bytes], findings: list[Finding]) -> Batch:
        """Scrub the lines of a batch in their places in `out`. Returns an empty batch."""
        if batch.documents:
            spans = self._spans(batch.text())
            found_in = batch.within(spans)
            for document, number, place in batch.hit(spans):
                here: list[Finding] = []
                out[place] = self._settled_json(document, found_in, here)
                findings += [Finding(f.kind, number, f.path) for f in here]
        return Batch(numbers=self._numbers)

    def _settled_json(self, document: Document, found_in: FoundIn, findings: list[Finding]) -> bytes:
        """Scrub a document until nothing changes. What was found in its batch is what the first round needs."""
        self._again = False
        text = self._json(document, found_in, findings, "")
        for _ in range(_ROUNDS - 1):
            if not self._again:
                break
            self._again = False
            text = self._json(Document(text, DEEPEST), lambda inner: self._spans(inner.text), findings, "")
        return text

    def _flush(self, run: list[bytes], end: int, out: list[bytes], findings: list[Finding]) -> None:
        """Scrub the collected lines, the last of which stands before line `end`, as one text."""
        if not run:
            return
        first = end - len(run)
        here: list[Finding] = []
        text = b"\n".join(run)
        for _ in range(_ROUNDS):
            self._again = False
            text = self._text(text, here)
            if not self._again:  # a stand-in beside what is left of a text may make a new match
                break
        out += text.split(b"\n")
        findings += [Finding(f.kind, first + f.line, f.path) for f in here]
        run.clear()

    def _text(self, text: bytes, findings: list[Finding]) -> bytes:
        """A text without JSON around it; findings carry the number of line breaks before them."""
        spans = self._spans(text)
        line = last = 0
        for span in spans:
            line += text.count(b"\n", last, span.start)
            last = span.start
            findings.append(Finding(span.kind, line, ""))
        new, doubtful = self._apply(text, 0, spans)
        self._again = bool(doubtful) and bool(self._spans(doubtful))
        return new

    def _json(self, document: Document, found_in: FoundIn, findings: list[Finding], above: str) -> bytes:
        """The new text of a document. `above` is the path of the string that it is itself."""
        by_literal: dict[int, list[Span]] = {}
        for span in found_in(document):
            index = document.at(span.start)
            inside = span.end <= document.starts[index + 1] - 1
            if inside and (span.strong or not document.is_id(index)):
                by_literal.setdefault(index, []).append(span)
        nested = document.nested
        touched = sorted({*by_literal, *nested})
        if not touched:
            return document.raw
        changes: dict[int, bytes] = {}
        doubtful: list[bytes] = []
        for index, spans in by_literal.items():
            start = document.starts[index]
            changes[index], windows = self._apply(document.texts[index], start, spans)
            before = document.text[document.starts[max(0, index - 2)] : start]
            doubtful += (before[-_CONTEXT:], windows, b"\x00") if windows else ()
        paths = document.paths(touched, changes)
        for index in touched:
            path = ".".join(part for part in (above, paths[index]) if part)
            if index in nested:
                changes[index] = self._json(nested[index], found_in, findings, path)
            else:
                findings += [Finding(span.kind, 1, path) for span in by_literal[index]]
        changes = {index: new for index, new in changes.items() if new != document.texts[index]}
        if not changes:
            return document.raw
        self._again = self._again or (bool(doubtful) and bool(self._spans(b"".join(doubtful))))
        return document.with_texts(changes)

    def _spans(self, text: bytes, layers: int = _LAYERS) -> list[Span]:
        """What is found in a text, and in what its escapes spell, down to `layers` of them."""
        spelt = unescaped(text) if layers else None
        groups = [
            list(self._own.spans(text)),
            [spelt.in_source(span) for span in self._spans(spelt.text, layers - 1)] if spelt else [],
            list(self._learnt_finder.spans(text)),
            list(self._rules.spans(text)),
            list(self._personal.spans(text)),
            list(self._blobs.spans(text)) if self._blobs else [],
        ]
        if not any(groups):
            return []
        return disjoint(groups)

    def _apply(self, text: bytes, offset: int, spans: list[Span]) -> tuple[bytes, bytes]:
        """`text` with stand-ins for `spans`, whose places count from `offset` bytes before it; and what of it is due to
        a second look: numbered stand-ins with the text around them.

        A new match must hold a stand-in, since all else was looked at. One that a cut here makes up costs a round only.
        """
        parts: list[bytes] = []
        places: list[tuple[int, int]] = []
        last = length = 0
        for span in spans:
            stand_in = self._stand_in(span)
            parts += (text[last : span.start - offset], stand_in)
            length += span.start - offset - last + len(stand_in)
            last = span.end - offset
            if span.value:
                places.append((length - len(stand_in), length))
        parts.append(text[last:])
        new = b"".join(parts)
        return new, b"\x00".join(dict.fromkeys(new[start:end] for start, end in _windows(places)))

    def _stand_in(self, span: Span) -> bytes:
        if span.kind == IMAGE:
            return DROPPED_IMAGE
        if span.kind == BLOB:
            return DROPPED_BLOB
        if span.learnt and len(span.value) >= _LEAST_LEARNT and entropy(span.value) >= 3.0:
            self.learnt.setdefault(span.value, span.kind)
        return self.placeholders.of(span.kind, span.value)


def _windows(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places widened by the context on both sides; those that meet are one, up to a number of places: where one thing
    stands very often, the windows are then alike, and one look at them is enough."""
    windows: list[tuple[int, int]] = []
    together = 0
    for start, end in places:
        if windows and start - _CONTEXT <= windows[-1][1] and together < _TOGETHER:
            windows[-1] = (windows[-1][0], end + _CONTEXT)
            together += 1
        else:
            windows.append((max(0, start - _CONTEXT), end + _CONTEXT))
            together = 1
    return windows
