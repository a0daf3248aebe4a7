"""Sessions of claude-code: JSON lines that form a tree by `uuid` and `parentUuid`.

Followed is the path from the last user or assistant line to the root, through compactions by `logicalParentUuid`. One
turn of the model is written as several lines with one message id, and the results of parallel calls hang on different
ones of them: lines of a turn that is on the path, and results of its calls, are on it too. Left out: subagents
(`isSidechain`), abandoned branches, meta lines, compaction summaries, reasoning, errors of the service.
A file of a subagent alone, all of it sidechain, is read as a session of its own.
"""

from __future__ import annotations

from typing import Any

from harness_adapters.sessions.chat import Conversation, add_blocks, first_text
from harness_adapters.sessions.session import Session
from harness_adapters.sessions.source import Source
from harness_adapters.sessions.tree import main_line

_KINDS = ("user", "assistant")
_LEFT_OUT = ("isMeta", "isCompactSummary", "isApiErrorMessage")


class ClaudeCodeReader:
    harness = "claude-code"

    def recognises(self, source: Source) -> bool:
        return any(
            o.get("type") in _KINDS and isinstance(o.get("message"), dict) and ("uuid" in o or "sessionId" in o)
            for o in source.objects
        )

    def read(self, source: Source) -> Session:
        entries = source.objects
        talk = [e for e in entries if e.get("type") in _KINDS]
        if any(not e.get("isSidechain") for e in talk):
            entries = [e for e in entries if not e.get("isSidechain")]
            talk = [e for e in talk if not e.get("isSidechain")]
        damaged = sum(not _is_message(e) for e in talk)
        talk = [e for e in talk if _is_message(e)]
        conversation = Conversation()
        for entry in _on_main_line(entries, talk):
            if not any(entry.get(flag) for flag in _LEFT_OUT):
                add_blocks(conversation, entry["message"]["role"], entry["message"].get("content"))
        return Session(
            id=first_text(e.get("sessionId") for e in talk) or source.path.stem,
            harness=self.harness,
            cwd=first_text(e.get("cwd") for e in talk),
            messages=tuple(conversation.messages),
            declared=frozenset(conversation.used),
            unreadable_lines=source.unreadable_lines + damaged + conversation.orphans,
        )


def _is_message(entry: dict[str, Any]) -> bool:
    message = entry.get("message")
    return isinstance(message, dict) and message.get("role") in _KINDS


def _on_main_line(entries: list[dict[str, Any]], talk: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of `talk` that the path holds, in file order; all of them in a file without ids."""
    if not any(isinstance(e.get("uuid"), str) for e in talk):
        return talk
    last = max(index for index, e in enumerate(entries) if e.get("type") in _KINDS and isinstance(e.get("uuid"), str))
    links = [
        (e["uuid"], e.get("parentUuid") or e.get("logicalParentUuid"))
        for e in entries[: last + 1]
        if isinstance(e.get("uuid"), str)
    ]
    path = main_line(links)
    turns = {_turn(e) for e in talk if e.get("uuid") in path and e["type"] == "assistant"} - {None}
    kept = [e for e in talk if e.get("uuid") in path or (e["type"] == "assistant" and _turn(e) in turns)]
    calls = {block.get("id") for e in kept for block in _blocks(e) if block.get("type") == "tool_use"}
    chosen = {id(e) for e in kept}
    return [e for e in talk if id(e) in chosen or any(b.get("tool_use_id") in calls for b in _blocks(e))]


def _turn(entry: dict[str, Any]) -> str | None:
    value = entry["message"].get("id")
    return value if isinstance(value, str) else None


def _blocks(entry: dict[str, Any]) -> list[dict[str, Any]]:
    content = entry["message"].get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
