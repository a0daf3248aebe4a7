"""Plain chat messages: {"messages": […]}, a list of them, or one a line; also hermes, which writes the first.

Message shapes taken: chat-completions (`tool_calls`, role `tool`), the older `function_call`, the Messages API's
`tool_use` and `tool_result` blocks, and {type: "message", message: {…}} lines under a `session` header.

Asymmetry: hermes differs by its head only (`session_id`, `system_prompt`, `model_config`, `tools`), which this reader
reads anyway; so its reader is the same one with a stricter `recognises`.
"""

from __future__ import annotations

import json
from typing import Any

from harness_adapters.errors import SessionError
from harness_adapters.sessions.chat import Conversation, add_blocks, first_text, text_of, tool_names
from harness_adapters.sessions.session import Session
from harness_adapters.sessions.source import Source

_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_HERMES_MARKS = {"system_prompt", "model_config", "session_start", "api_call_count", "billing_base_url"}


class PlainReader:
    harness = "chat"

    def recognises(self, source: Source) -> bool:
        return any(_role(message) in _ROLES for message in _messages(source))

    def read(self, source: Source) -> Session:
        head = _head(source)
        conversation = Conversation()
        conversation.system(text_of(head.get("system_prompt")))
        damaged = 0
        for message in _messages(source):
            role = _role(message)
            if role in _ROLES:
                _add(conversation, role, message)
            elif not (isinstance(message, dict) and "meta" in str(role)):
                damaged += 1
        config = head.get("model_config")
        config = _loaded(config) if isinstance(config, str) else config
        return Session(
            id=first_text([head.get("session_id"), head.get("id")]) or source.path.stem,
            harness=self.harness,
            cwd=first_text([head.get("cwd"), config.get("cwd") if isinstance(config, dict) else ""]),
            messages=tuple(conversation.messages),
            declared=tool_names(head.get("tools")) or frozenset(conversation.used),
            unreadable_lines=source.unreadable_lines + damaged + conversation.orphans,
        )


class HermesReader(PlainReader):
    harness = "hermes"

    def recognises(self, source: Source) -> bool:
        head = _head(source)
        named = "session_id" in head or "id" in head
        return isinstance(head.get("messages"), list) and named and bool(_HERMES_MARKS & head.keys())


def _head(source: Source) -> dict[str, Any]:
    """The object around the messages, or the header line before them. Raises SessionError for several sessions."""
    wrapped = [(number, o) for number, o in source.records if isinstance(o.get("messages"), list)]
    if len(wrapped) > 1:
        raise SessionError(
            f"{source.path}: line {wrapped[1][0]} holds a second session", "split the file, one session in each"
        )
    if wrapped:
        return wrapped[0][1]
    return next((o for o in source.objects if o.get("type") == "session"), {})


def _messages(source: Source) -> list[Any]:
    if isinstance(source.whole, list):
        return source.whole
    inner = _head(source).get("messages")
    if isinstance(inner, list):
        return inner
    return [o["message"] if isinstance(o.get("message"), dict) else o for o in source.objects if _is_message(o)]


def _is_message(record: dict[str, Any]) -> bool:
    return record.get("type") != "session"


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _add(conversation: Conversation, role: str, message: dict[str, Any]) -> None:
    content = message.get("content")
    if role in ("system", "developer"):
        conversation.system(text_of(content))
    elif role in ("tool", "function"):
        conversation.result(str(message.get("tool_call_id") or message.get("name") or ""), text_of(content))
    else:
        add_blocks(conversation, role, content)
    if role == "assistant":
        for call in _calls(message):
            function = call.get("function")
            function = function if isinstance(function, dict) else call
            call_id = str(call.get("id") or function.get("name") or "")
            conversation.call(call_id, str(function.get("name", "")), function.get("arguments", "{}"))


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    calls = _loaded(calls) if isinstance(calls, str) else calls  # a database export keeps them as text
    if isinstance(calls, list):
        return [call for call in calls if isinstance(call, dict)]
    single = message.get("function_call")
    return [{"id": single.get("name"), "function": single}] if isinstance(single, dict) else []


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
