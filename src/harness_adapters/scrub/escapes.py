"""Texts in which letters are written as escapes (`\\u0067`, `\\x67`): read as what they say, places kept.

A JSON text that stands whole in a string is decoded as JSON. One that stands within a sentence, and the source of a
program, is not, and so an escape there would hide what it spells.

Asymmetry: a text is read so only where a letter, a digit or another sign of tokens is escaped. Nothing that writes
texts needs to, while signs such as `<` and quotes are escaped every day.
"""

from __future__ import annotations

from bisect import bisect_right

import re2

from harness_adapters.scrub.finding import Span

_OF_A_TOKEN = re2.compile(rb"\\(?:u00|x)(?:2[dD]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[cCfF])")
_ANY = re2.compile(rb"\\+(?:u00|x)([2-6][0-9a-fA-F]|7[0-9a-eA-E])")


class Unescaped:
    """`text` is `source` with the escapes of printable ASCII decoded, under any number of backslashes."""

    def __init__(self, source: bytes) -> None:
        parts: list[bytes] = []
        self._after: list[int] = []
        self._ends: list[int] = []
        last = length = 0
        for match in _ANY.finditer(source):
            start, end = match.span()
            parts += (source[last:start], bytes.fromhex(match.group(1).decode()))
            length += start - last + 1
            last = end
            self._after.append(length)
            self._ends.append(end)
        self.text = b"".join((*parts, source[last:]))

    def in_source(self, span: Span) -> Span:
        """A span of `text` as one of the source: escapes are taken whole."""
        return span._replace(start=self._place(span.start), end=self._place(span.end))

    def _place(self, position: int) -> int:
        before = bisect_right(self._after, position)
        return position if not before else self._ends[before - 1] + position - self._after[before - 1]


def unescaped(text: bytes) -> Unescaped | None:
    """None where no letter of a text is escaped."""
    return Unescaped(text) if b"\\" in text and _OF_A_TOKEN.search(text) is not None else None
