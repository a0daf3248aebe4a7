"""Sessions of pi: JSON lines, a `session` header and entries; version 1 a list, from version 2 a tree.

Followed is the path from the last entry to the root. Left out: abandoned branches, summaries of compacted history and
of branches (what they sum up is in the file), messages of extensions, reasoning, turns that were aborted empty.
A command that the user ran with `!` is a user message with its output, as pi sends it.
"""

from __future__ import annotations

from typing import Any

from harness_adapters.sessions.chat import Conversation, text_of, tool_names
from harness_adapters.sessions.session import Session
from harness_adapters.sessions.source import Source
from harness_adapters.sessions.tree import main_line


class PiReader:
    harness = "pi"

    def recognises(self, source: Source) -> bool:
        objects = source.objects
        headed = any(o.get("type") == "session" and "harness" not in o and "cwd" in o for o in objects[:3])
        entries = [o for o in objects if o.get("type") == "message" and isinstance(o.get("message"), dict)]
        return headed or any(o["message"].get("role") in ("toolResult", "bashExecution") for o in entries)

    def read(self, source: Source) -> Session:
        objects = source.objects
        header = next((o for o in objects if o.get("type") == "session"), {})
        entries = [o for o in objects if o.get("type") != "session"]
        if any("parentId" in o for o in entries):
            entries = _on_main_line(entries)
        conversation = Conversation()
        declared: set[str] = set()
        damaged = 0
        for entry in entries:
            if entry.get("type") != "message":
                continue
            message = entry.get("message")
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                damaged += 1
                continue
            declared |= tool_names(message.get("toolsAdded"))
            _add(conversation, message)
        return Session(
            id=str(header.get("id") or source.path.stem),
            harness=self.harness,
            cwd=str(header.get("cwd") or ""),
            messages=tuple(conversation.messages),
            declared=frozenset(declared or conversation.used),
            unreadable_lines=source.unreadable_lines + damaged + conversation.orphans,
        )


def _on_main_line(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    links = [(e["id"], e.get("parentId")) for e in entries if isinstance(e.get("id"), str)]
    path = main_line(links)
    return [entry for entry in entries if entry.get("id") in path]


def _add(conversation: Conversation, message: dict[str, Any]) -> None:
    role, content = message["role"], message.get("content")
    if role == "user":
        conversation.user(text_of(content))
    elif role == "assistant":
        for block in content if isinstance(content, list) else [content]:
            if isinstance(block, dict) and block.get("type") == "toolCall":
                conversation.call(str(block.get("id", "")), str(block.get("name", "")), block.get("arguments", {}))
            else:
                conversation.assistant(text_of([block]))
    elif role == "toolResult":
        conversation.result(str(message.get("toolCallId", "")), text_of(content))
    elif role == "bashExecution" and not message.get("excludeFromContext"):
        conversation.user(f"Ran `{message.get('command', '')}`\n```\n{message.get('output', '')}\n```")
    elif role == "system":
        sections = message.get("sections")
        parts = sections.values() if isinstance(sections, dict) else [content]
        conversation.system("\n\n".join(text for text in map(text_of, parts) if text))
