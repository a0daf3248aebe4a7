"""Numbered stand-ins: `<hf_token:1>`. One value has one stand-in over the whole run, whatever kind found it first.

Numbers start after the highest that the inputs already hold, so what an earlier run wrote is never confused with what
this one does.
"""

from __future__ import annotations

import re
from collections import defaultdict

PLACEHOLDER = re.compile(rb"<([a-z][a-z0-9_]*):(\d{1,9})>")
DROPPED_IMAGE = b"<image:dropped>"
DROPPED_BLOB = b"<blob:dropped>"


class Placeholders:
    """Kind and value -> stand-in."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}
        self._last: defaultdict[str, int] = defaultdict(int)

    def reserve(self, text: bytes) -> None:
        """Take note of stand-ins that `text` holds already."""
        for match in PLACEHOLDER.finditer(text):
            kind = match.group(1).decode()
            self._last[kind] = max(self._last[kind], int(match.group(2)))

    def of(self, kind: str, value: bytes) -> bytes:
        known = self._known.get(value)
        if known is None:
            self._last[kind] += 1
            known = f"<{kind}:{self._last[kind]}>".encode()
            self._known[value] = known
        return known
