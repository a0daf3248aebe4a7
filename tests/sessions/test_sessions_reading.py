"""What the readers follow, leave out, count and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.errors import SessionError
from harness_adapters.sessions import find_sessions, known_folders, read_session


def written(path: Path, *lines: Any) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


def pi(own: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, **more}
    return {"type": "message", "id": own, "parentId": parent, "message": message}


HEADER = {"type": "session", "version": 3, "id": "s1", "cwd": "/w"}


def test_pi_follows_the_last_leaf_and_leaves_the_abandoned_branch(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a",
        HEADER,
        pi("1", None, "user", "first"),
        pi("2", "1", "assistant", [{"type": "text", "text": "abandoned"}]),
        pi("3", "1", "assistant", [{"type": "text", "text": "kept"}]),
    )
    assert [m["content"] for m in read_session(path).messages] == ["first", "kept"]


def test_pi_goes_on_over_a_damaged_line_and_counts_it(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a",
        HEADER,
        pi("1", None, "user", "first"),
        '{"type":"message","id":"2","parentId":"1","mess',
        pi("3", "2", "assistant", [{"type": "text", "text": "after"}]),
    )
    session = read_session(path)
    assert [m["content"] for m in session.messages] == ["first", "after"]
    assert session.unreadable_lines == 1


def test_pi_knows_declared_tools_and_commands_the_user_ran(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a",
        HEADER,
        pi("1", None, "system", [], sections={"base": "You are pi."}, toolsAdded=[{"name": "bash"}, {"name": "read"}]),
        pi("2", "1", "bashExecution", None, command="ls", output="a.txt"),
    )
    session = read_session(path)
    assert session.declared == {"bash", "read"}
    assert session.messages[0] == {"role": "system", "content": "You are pi."}
    assert session.messages[1] == {"role": "user", "content": "Ran `ls`\n```\na.txt\n```"}


def claude(own: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, "id": more.pop("turn", own)}
    return {"type": role, "uuid": own, "parentUuid": parent, "sessionId": "c1", "cwd": "/w", "message": message, **more}


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": text}]}


def test_claude_code_keeps_results_of_parallel_calls_though_they_hang_on_different_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a",
        claude("u", None, "user", "go"),
        claude("a1", "u", "assistant", [use("t1")], turn="m"),
        claude("a2", "a1", "assistant", [use("t2")], turn="m"),
        claude("r1", "a1", "user", [result("t1", "one")]),
        claude("r2", "a2", "user", [result("t2", "two")]),
        claude("a3", "r2", "assistant", [{"type": "text", "text": "done"}]),
    )
    messages = read_session(path).messages
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [c["id"] for c in messages[1]["tool_calls"]] == ["t1", "t2"]
    assert [m["content"] for m in messages[2:4]] == ["one", "two"]


def test_claude_code_leaves_out_subagents_meta_lines_and_summaries(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a",
        claude("u", None, "user", "go"),
        claude("s", "u", "assistant", "from a subagent", isSidechain=True),
        claude("m", "u", "user", "a reminder", isMeta=True),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "logicalParentUuid": "m"},
        claude("c", "b", "user", "summary of it all", isCompactSummary=True),
        claude("a", "c", "assistant", [{"type": "text", "text": "done"}]),
    )
    assert [m["content"] for m in read_session(path).messages] == ["go", "done"]


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "t", "type": "response_item", "payload": {"type": kind, **payload}}


def test_codex_custom_and_shell_calls_become_json_arguments(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a",
        {"type": "session_meta", "payload": {"id": "x", "cwd": "/w"}},
        codex("message", role="user", content=[{"type": "input_text", "text": "go"}]),
        codex("custom_tool_call", call_id="1", name="apply_patch", input="*** Begin Patch"),
        codex("custom_tool_call_output", call_id="1", output="Done"),
        codex("local_shell_call", call_id="2", action={"type": "exec", "command": ["ls"]}),
        codex("function_call_output", call_id="2", output={"content": "a.txt", "success": True}),
    )
    session = read_session(path)
    arguments = [json.loads(c["function"]["arguments"]) for m in session.messages for c in m.get("tool_calls", [])]
    assert arguments == [{"input": "*** Begin Patch"}, {"type": "exec", "command": ["ls"]}]
    assert [m["content"] for m in session.messages if m["role"] == "tool"] == ["Done", "a.txt"]
    assert session.declared == {"apply_patch", "local_shell"}


def test_opencode_leaves_out_text_written_in_the_users_name(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "real"}, {"type": "text", "text": "pasted file", "synthetic": True}]
    export = {"info": {"id": "o", "directory": "/w"}, "messages": [{"info": {"role": "user"}, "parts": parts}]}
    assert [m["content"] for m in read_session(written(tmp_path / "a", export)).messages] == ["real"]


@pytest.mark.parametrize("shape", ["wrapped", "list", "lines", "under a header"])
def test_plain_messages_are_read_in_every_wrapping(shape: str, tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "a"},
    ]
    lines: list[Any] = {
        "wrapped": [{"messages": messages, "tools": [{"function": {"name": "bash"}}, {"name": "read"}]}],
        "list": [messages],
        "lines": messages,
        "under a header": [
            {"type": "session", "harness": "x", "id": "h"},
            *({"type": "message", "message": message} for message in messages),
        ],
    }[shape]
    session = read_session(written(tmp_path / "a", *lines))
    assert list(session.messages) == messages
    assert session.declared == ({"bash", "read"} if shape == "wrapped" else {"bash"})


def test_results_without_a_call_and_damaged_lines_are_counted(tmp_path: Path) -> None:
    lost = {"role": "tool", "tool_call_id": "gone", "content": "x"}
    session = read_session(written(tmp_path / "a", {"role": "user", "content": "go"}, "{half", lost))
    assert [m["content"] for m in session.messages] == ["go"]
    assert session.unreadable_lines == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ("not json\nnor this", "line 1"),
        ('{"a": 1}', "no session of a known format"),
        ('{"messages": []}', "no session"),
        (
            '{"messages": [{"role": "user", "content": "a"}]}\n{"messages": [{"role": "user", "content": "b"}]}',
            "line 2",
        ),
        ("SQLite format 3\0", "database"),
    ],
)
def test_what_holds_no_session_is_refused_with_file_and_reason(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SessionError, match=what) as caught:
        read_session(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_missing_file_is_a_session_error(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="No such file"):
        read_session(tmp_path / "none")


def test_folders_follow_the_environment_and_found_sessions_come_newest_first(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    folders = known_folders(tmp_path, {"CODEX_HOME": str(moved)})
    assert folders["codex"][0] == moved / "sessions"
    assert folders["pi"] == [tmp_path / ".pi/agent/sessions"]
    for name in (".claude/projects/-w/a.jsonl", ".hermes/state.db", ".pi/agent/auth.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = find_sessions(tmp_path, {})
    assert [(f.harness, f.database) for f in sorted(found, key=lambda f: f.harness)] == [
        ("claude-code", False),
        ("hermes", True),
    ]
    assert [f.modified for f in found] == sorted((f.modified for f in found), reverse=True)
