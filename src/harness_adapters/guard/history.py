"""What the conversation so far tells: declared hosts, what the task text forbids, files that calls have made.

Every earlier call starts in the task's folder again (each call is a new shell), but files, scripts and links that it
made are still there, so a script written then and run now is judged by its content.

Asymmetry: a call that was refused is taken as done. That can only make a later verdict harder, never milder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from harness_adapters.guard.machine import Files, Machine
from harness_adapters.guard.tools import facts_of
from harness_adapters.records import Call, Message, Messages, ToolMap

MAX_CALLS = 200
"""Only the last so many calls are replayed: a session ends long before."""

DECLARING = frozenset({"user", "system", "developer"})
"""Roles whose text may name a host to use."""
_SUBJECT = r"`?((?:[\w.-]+/)*[\w.*-]+/?)`?"
_READ_ONLY = re.compile(
    rf"{_SUBJECT}\s+(?:(?:files?|folder|directory|suite)\s+)?(?:is|are|stays?|must (?:stay|remain))\s+"
    r"(?:read[- ]only|untouched|unchanged)",
    re.IGNORECASE,
)
_FORBIDDEN = re.compile(
    r"(?:do not|don't|never|must not|may not|without)\s+"
    r"(?:edit|modify|change|touch|alter|delete|editing|modifying|changing|touching)\s+"
    rf"(?:any\s+|the\s+)?(?:files?\s+(?:in|under)\s+)?{_SUBJECT}",
    re.IGNORECASE,
)


def texts_of(messages: Messages, roles: Collection[str] = DECLARING) -> list[str]:
    """The texts of messages with one of these roles: by default of those that may declare a host."""
    return [text for message in messages if str(message.get("role")) in roles for text in _texts(message)]


def forbidden_globs(texts: list[str]) -> tuple[str, ...]:
    """Globs for what the user's text calls read-only or forbids to change."""
    found: list[str] = []
    for text in texts:
        for subject in [*_READ_ONLY.findall(text), *_FORBIDDEN.findall(text)]:
            name = subject.rstrip("/.")
            if name.lower() in ("tests", "test"):
                found.append(f"{name.lower()}/**")
            elif "/" in subject or "." in name:
                found.append(f"{name}/**" if "." not in name.rpartition("/")[2] else name)
    return tuple(dict.fromkeys(found))


def _texts(message: Message) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return []


def earlier_calls(messages: Messages) -> Iterator[Call]:
    """The tool calls of earlier assistant messages in order."""
    for message in messages:
        if message.get("role") != "assistant":
            continue
        items = message.get("tool_calls")
        for item in items if isinstance(items, list | tuple) else ():
            function = item.get("function") if isinstance(item, dict) else None
            if isinstance(function, dict):
                yield Call(
                    str(item.get("id", "")), str(function.get("name", "")), parse_arguments(function.get("arguments"))
                )


def parse_arguments(raw: Any) -> dict[str, Any] | str:
    """Arguments as an object, or the raw text where they are not one."""
    if isinstance(raw, dict):
        return raw
    try:
        parsed = json.loads(raw) if isinstance(raw, str) else None
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else str(raw or "")


def replay(messages: Messages, tools: ToolMap, *, cwd: str, home: str) -> Files:
    """The files and links that earlier calls have made."""
    files = Files()
    for call in list(earlier_calls(messages))[-MAX_CALLS:]:
        if not isinstance(call.arguments, str):
            facts_of(call, tools, Machine(cwd=cwd, home=home, files=files))
    return files
