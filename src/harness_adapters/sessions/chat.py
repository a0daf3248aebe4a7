"""Building a conversation in chat-completions form from whatever pieces a format is written in.

Invariants
- A call joins the assistant message before it as long as nothing has answered since; results follow their calls.
- No message is empty: an assistant turn without text and calls leaves no trace.
- A result whose call was never seen is left out and counted (`orphans`): no consumer could place it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

IMAGE = "[image]"


class Conversation:
    """A growing list of chat-completions messages."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.used: set[str] = set()
        self.orphans = 0
        self._calls: set[str] = set()

    def system(self, text: str) -> None:
        self._plain("system", text)

    def user(self, text: str) -> None:
        self._plain("user", text)

    def assistant(self, text: str) -> None:
        """Text of the assistant; after calls that nothing answered yet it belongs to their message."""
        if not text.strip():
            return
        last = self._open()
        if last is not None and "tool_calls" in last:
            last["content"] = f"{last['content']}\n\n{text}" if last["content"] else text
        else:
            self.messages.append({"role": "assistant", "content": text})

    def call(self, call_id: str, name: str, arguments: Any) -> None:
        """A tool call; `arguments` is an object or the text that the model wrote."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        last = self._open()
        if last is None:
            last = {"role": "assistant", "content": None}
            self.messages.append(last)
        last.setdefault("tool_calls", []).append(
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
        )
        self.used.add(name)
        self._calls.add(call_id)

    def result(self, call_id: str, text: str) -> None:
        if call_id not in self._calls:
            self.orphans += 1
            return
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def _plain(self, role: str, text: str) -> None:
        if text.strip():
            self.messages.append({"role": role, "content": text})

    def _open(self) -> dict[str, Any] | None:
        """The assistant message that is still being written, if the last one is."""
        return self.messages[-1] if self.messages and self.messages[-1]["role"] == "assistant" else None


def text_of(content: Any) -> str:
    """The text of a content field: a string, or a list of blocks of which the textual ones count."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    return "\n".join(part for part in map(_block_text, content) if part)


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return ""
    kind = str(block.get("type", "text"))
    if "image" in kind:
        return IMAGE
    if kind in ("thinking", "reasoning", "redacted_thinking"):
        return ""
    text = block.get("text")
    return text if isinstance(text, str) else ""


def add_blocks(conversation: Conversation, role: str, content: Any) -> None:
    """Add a message whose content may hold `tool_use` and `tool_result` blocks (the shape of the Messages API)."""
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else ""
        if kind == "tool_use" and role == "assistant":
            conversation.call(str(block.get("id", "")), str(block.get("name", "")), block.get("input", {}))
        elif kind == "tool_result":
            conversation.result(str(block.get("tool_use_id", "")), text_of(block.get("content")))
        elif role == "assistant":
            conversation.assistant(text_of([block]))
    if role != "assistant":
        rest = [b for b in blocks if not (isinstance(b, dict) and b.get("type") == "tool_result")]
        conversation.user(text_of(rest))


def tool_names(tools: Any) -> frozenset[str]:
    """Names in a list of tool declarations, `function` wrapped or flat."""
    return frozenset(name for name in map(_tool_name, tools if isinstance(tools, list) else []) if name)


def _tool_name(tool: Any) -> str:
    if isinstance(tool, str):
        return tool
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("name")
    return name if isinstance(name, str) else ""


def first_text(values: Iterable[Any]) -> str:
    """The first value that is a string with something in it, else ""."""
    return next((value for value in values if isinstance(value, str) and value), "")
