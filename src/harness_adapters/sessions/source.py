"""A session file before anything is known of its format: one JSON document, or lines of them.

Invariants
- Nothing here judges content: a `Source` is what parsed, with the line each object stood on.
- A damaged line is counted and left out; only a file without one readable object is refused.

Asymmetry: a file that is one JSON value fills `whole`; an object in it is also its only record, since a JSONL file of
one line is the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness_adapters.errors import SessionError

_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Source:
    """What a file holds: `whole` if it is one JSON value, `records` as (line number, object), damaged lines counted."""

    path: Path
    whole: Any
    records: tuple[tuple[int, dict[str, Any]], ...]
    unreadable_lines: int

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [record for _, record in self.records]


def read_source(path: Path) -> Source:
    """Parse a file as JSON or JSON lines. Raises SessionError when it cannot be opened or holds no JSON object."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror or error}", "check the path") from None
    if data.startswith(_SQLITE):
        raise SessionError(
            f"{path} is a database, not a session",
            "export the session first: `opencode export SESSION_ID` or `hermes sessions export FILE`",
        )
    text = data.decode("utf-8-sig", errors="replace")
    whole = _parsed(text)
    if isinstance(whole, list | dict):
        return Source(path, whole, ((1, whole),) if isinstance(whole, dict) else (), 0)
    return _lines(path, text)


def _lines(path: Path, text: str) -> Source:
    records: list[tuple[int, dict[str, Any]]] = []
    unreadable = 0
    first_bad = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        value = _parsed(line)
        if isinstance(value, dict):
            records.append((number, value))
        else:
            unreadable += 1
            first_bad = first_bad or number
    if not records:
        why = f"line {first_bad} is no JSON object, nor is any other" if unreadable else "the file is empty"
        raise SessionError(f"{path}: {why}", "give a session file as its harness wrote or exported it")
    return Source(path, None, tuple(records), unreadable)


def _parsed(text: str) -> Any:
    """The JSON value of a text, or None where there is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
