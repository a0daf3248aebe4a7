"""Each format is read from an excerpt of a real session, whatever the file is called."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.errors import SessionError
from harness_adapters.sessions import Session, read_session

DATA = Path(__file__).parent / "data"
EXPECTED = {
    "claude-code.jsonl": ("claude-code", "f736da47-b2ca-4f86-bb32-a1bbe582e464", 12, {"Grep", "Bash", "Read", "Edit"}),
    "pi-v1.jsonl": ("pi", "ffae836b-9420-4060-ac13-7745215f90ff", 3, {"read"}),
    "pi-v3.jsonl": ("pi", "019da981-7187-77bd-8cb8-16eb9c62c712", 5, {"read", "ls", "find"}),
    "opencode.json": ("opencode", "ses_2784561ccffehyW7WxpzfbGspd", 5, {"grep", "apply_patch", "read", "glob"}),
    "hermes.json": ("hermes", "20260429_hermes_large", 1, {"shell"}),
    "messages.json": ("chat", "messages", 0, set()),
}


def calls_of(session: Session) -> list[dict[str, Any]]:
    return [call for message in session.messages for call in message.get("tool_calls", [])]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_excerpt_of_a_real_session_is_read(name: str) -> None:
    harness, session_id, calls, declared = EXPECTED[name]
    session = read_session(DATA / name)
    assert (session.harness, session.id) == (harness, session_id)
    assert len(calls_of(session)) == calls
    assert session.declared == declared
    assert session.unreadable_lines == 0


def test_codex_declares_its_dynamic_tools_and_those_it_used() -> None:
    session = read_session(DATA / "codex.jsonl")
    assert session.harness == "codex"
    assert session.cwd == "/Users/agent/dev/ai/entire/session-bridge"
    assert {"shell_command", "automation_update"} <= session.declared
    assert len(calls_of(session)) == 15


@pytest.mark.parametrize("name", [*EXPECTED, "codex.jsonl"])
def test_every_message_is_in_chat_form_and_every_result_follows_its_call(name: str) -> None:
    seen: set[str] = set()
    for message in read_session(DATA / name).messages:
        assert message["role"] in ("system", "user", "assistant", "tool")
        if message["role"] == "tool":
            assert message["tool_call_id"] in seen
        for call in message.get("tool_calls", []):
            seen.add(call["id"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        assert message["content"] is None or message["content"].strip() or message["role"] == "tool"
        assert message["content"] is not None or message["tool_calls"]


@pytest.mark.parametrize("name", [*EXPECTED, "codex.jsonl"])
def test_the_format_is_found_by_content_not_by_name(name: str, tmp_path: Path) -> None:
    renamed = tmp_path / "session.txt"
    shutil.copy(DATA / name, renamed)
    assert read_session(renamed).harness == read_session(DATA / name).harness


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("copilot.jsonl", "Copilot"),
        ("gemini.json", "Gemini"),
        ("swe-agent.traj", "SWE-agent"),
        ("openhands.jsonl", "OpenHands"),
    ],
)
def test_a_format_that_is_not_read_is_refused_by_name(name: str, what: str) -> None:
    with pytest.raises(SessionError, match=what):
        read_session(DATA / name)
