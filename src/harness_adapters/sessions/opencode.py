"""Sessions of opencode, as `opencode export SESSION_ID` prints them: {info, messages: [{info, parts}]}.

Calls of one message come before their results, as the model made them. Left out: text that opencode wrote in the
user's name (`synthetic`, `ignored`), reasoning, steps, patches, sessions of subagents (they are exports of their own).
The export holds neither the system prompt nor the tools, so the tools are those used.
"""

from __future__ import annotations

from typing import Any

from harness_adapters.sessions.chat import IMAGE, Conversation, first_text
from harness_adapters.sessions.session import Session
from harness_adapters.sessions.source import Source


class OpencodeReader:
    harness = "opencode"

    def recognises(self, source: Source) -> bool:
        whole = source.whole
        if not isinstance(whole, dict) or not isinstance(whole.get("info"), dict):
            return False
        messages = whole.get("messages")
        return isinstance(messages, list) and all(isinstance(m, dict) and "parts" in m for m in messages[:3])

    def read(self, source: Source) -> Session:
        info = source.whole["info"]
        conversation = Conversation()
        damaged = 0
        folders: list[Any] = [info.get("directory")]
        for message in source.whole["messages"]:
            head = message.get("info") if isinstance(message, dict) else None
            parts = message.get("parts") if isinstance(message, dict) else None
            if not isinstance(head, dict) or not isinstance(parts, list):
                damaged += 1
                continue
            if isinstance(head.get("path"), dict):
                folders.append(head["path"].get("cwd"))
            _add(conversation, str(head.get("role")), [part for part in parts if isinstance(part, dict)])
        return Session(
            id=str(info.get("id") or source.path.stem),
            harness=self.harness,
            cwd=first_text(folders),
            messages=tuple(conversation.messages),
            declared=frozenset(conversation.used),
            unreadable_lines=source.unreadable_lines + damaged + conversation.orphans,
        )


def _add(conversation: Conversation, role: str, parts: list[dict[str, Any]]) -> None:
    written = [part for part in parts if not (part.get("synthetic") or part.get("ignored"))]
    if role == "user":
        texts = [IMAGE if part.get("type") == "file" else _text(part) for part in written]
        conversation.user("\n".join(text for text in texts if text))
        return
    for part in written:
        conversation.assistant(_text(part))
    tools = [part for part in written if part.get("type") == "tool"]
    for part in tools:
        conversation.call(_call_id(part), str(part.get("tool", "")), _state(part).get("input", {}))
    for part in tools:
        answer = _state(part).get("output", _state(part).get("error"))
        if isinstance(answer, str):
            conversation.result(_call_id(part), answer)


def _text(part: dict[str, Any]) -> str:
    text = part.get("text")
    return text if part.get("type") == "text" and isinstance(text, str) else ""


def _call_id(part: dict[str, Any]) -> str:
    return str(part.get("callID") or part.get("id") or "")


def _state(part: dict[str, Any]) -> dict[str, Any]:
    state = part.get("state")
    return state if isinstance(state, dict) else {}
