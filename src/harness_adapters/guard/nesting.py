"""JSON within a depth that is a count: Python's own limit depends on how deep the caller's stack is."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_JSON_DEPTH = 64
_PIECE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{\]}]', re.DOTALL)


def parse_json(text: str) -> Any:
    """The value that `text` holds. Raises ValueError where it is not JSON or nests deeper than `MAX_JSON_DEPTH`."""
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH and _text_is_deep(text):
        raise ValueError("nested too deeply")
    return json.loads(text)


def is_deep(value: Any) -> bool:
    """Whether lists and objects nest deeper than `MAX_JSON_DEPTH`."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list | tuple)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def is_wide(value: Any, limit: int) -> bool:
    """Whether there are more than `limit` values in nested lists and objects."""
    if isinstance(value, dict) and len(value) <= limit and all(isinstance(item, str) for item in value.values()):
        return False
    todo = [value]
    for _ in range(limit + 1):
        if not todo:
            return False
        outer = todo.pop()
        if isinstance(outer, dict):
            todo.extend(outer.values())
        elif isinstance(outer, list | tuple):
            todo.extend(outer)
        if len(todo) > limit:
            return True
    return True


def _text_is_deep(text: str) -> bool:
    depth = 0
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece in "[{":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                return True
        elif piece in "]}":
            depth -= 1
    return False
