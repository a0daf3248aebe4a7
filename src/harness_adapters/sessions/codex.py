"""Sessions of codex: rollout JSON lines of {timestamp, type, payload}; the conversation is the `response_item`s.

`local_shell_call` becomes a call of `local_shell` with the action as arguments; a `custom_tool_call` has raw text for
input, which becomes {"input": text}. Left out: reasoning, web searches (they run at the provider), `event_msg` lines
(the same again for the screen), and the shortened history that a compaction continued with.
"""

from __future__ import annotations

from typing import Any

from harness_adapters.sessions.chat import Conversation, first_text, text_of, tool_names
from harness_adapters.sessions.session import Session
from harness_adapters.sessions.source import Source

_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


class CodexReader:
    harness = "codex"

    def recognises(self, source: Source) -> bool:
        kinds = ("session_meta", "response_item", "turn_context")
        return any(o.get("type") in kinds and isinstance(o.get("payload"), dict) for o in source.objects)

    def read(self, source: Source) -> Session:
        conversation = Conversation()
        meta: dict[str, Any] = {}
        extra: frozenset[str] = frozenset()
        cwds: list[Any] = []
        damaged = 0
        for record in source.objects:
            payload = record.get("payload")
            if not isinstance(payload, dict):
                damaged += 1
            elif record.get("type") == "session_meta":
                if not meta:
                    conversation.system(text_of(payload.get("base_instructions")))
                    meta = payload
                extra |= tool_names(payload.get("dynamic_tools"))
            elif record.get("type") == "turn_context":
                cwds.append(payload.get("cwd"))
            elif record.get("type") == "response_item":
                _add(conversation, payload)
        return Session(
            id=str(meta.get("id") or source.path.stem),
            harness=self.harness,
            cwd=first_text([meta.get("cwd"), *cwds]),
            messages=tuple(conversation.messages),
            declared=frozenset(conversation.used) | extra,  # built-in tools are not declared in the file
            unreadable_lines=source.unreadable_lines + damaged + conversation.orphans,
        )


def _add(conversation: Conversation, item: dict[str, Any]) -> None:
    kind = item.get("type")
    call_id = str(item.get("call_id") or item.get("id") or "")
    if kind == "message":
        _add_message(conversation, str(item.get("role")), text_of(item.get("content")))
    elif kind == "function_call":
        conversation.call(call_id, str(item.get("name", "")), item.get("arguments", "{}"))
    elif kind == "custom_tool_call":
        conversation.call(call_id, str(item.get("name", "")), {"input": item.get("input", "")})
    elif kind == "local_shell_call":
        conversation.call(call_id, "local_shell", item.get("action", {}))
    elif kind in _OUTPUTS:
        conversation.result(call_id, _output(item.get("output")))


def _add_message(conversation: Conversation, role: str, text: str) -> None:
    if role == "assistant":
        conversation.assistant(text)
    elif role == "user":
        conversation.user(text)
    elif role in ("developer", "system"):
        conversation.system(text)


def _output(output: Any) -> str:
    """The text of a result: a string, content blocks, or an object of older versions with its text in `content`."""
    if isinstance(output, dict) and "content" in output:
        return text_of(output["content"])
    return text_of(output)
