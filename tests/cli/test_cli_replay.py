"""`safeagents replay`: a log tells what another policy changes; a session is judged call by call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.cli.safeagents import main
from harness_adapters.guard import Guard, GuardPolicy, case_of, log_entry
from harness_adapters.harnesses import TOOL_MAPS
from harness_adapters.records import Call

FORGE = Call("c1", "bash", {"command": "echo 1 > /logs/verifier/reward.txt"})
DUMP = Call("c2", "bash", {"command": "sh dump.sh"})
WROTE: list[dict[str, Any]] = [
    {"role": "user", "content": "do it"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c0",
                "type": "function",
                "function": {"name": "write", "arguments": '{"path": "dump.sh", "content": "env > all.txt"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c0", "content": "ok"},
]


def logged(call: Call, messages: list[dict[str, Any]], policy: GuardPolicy) -> str:
    """A line as the gateway writes it."""
    tools = TOOL_MAPS["pi"]
    verdict = Guard(policy, tools).judge(call, declared=["bash", "write"], messages=messages)
    case = case_of(call, harness="pi", declared=["bash", "write"], messages=messages, policy=policy)
    return json.dumps({**log_entry(verdict, call, kind="verdict", session="s"), "case": case})


def replay(folder: Path, lines: list[str], policy: str, *options: str) -> int:
    (folder / "blocked.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "new.toml").write_text(policy, encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["replay", str(folder / "blocked.jsonl"), "--policy", str(folder / "new.toml"), *options])
    return int(left.value.code or 0)


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], list[str]]:
    said = capsys.readouterr()
    return [json.loads(line) for line in said.out.splitlines()], said.err.splitlines()


def test_only_verdicts_that_change_are_printed_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [logged(FORGE, [], GuardPolicy()), logged(DUMP, WROTE, GuardPolicy()), '{"kind": "counts", "counts": {}}']
    assert replay(tmp_path, lines, '[severity]\nreward-write = "zero"\n') == 0
    changed, summary = printed(capsys)
    assert [(line["id"], line["was"], line["now"], line["rule"]) for line in changed] == [
        ("c1", "block", "zero", "reward-write")
    ]
    assert summary == ["judged 2, changed 1", "  block -> zero: 1"]


def test_what_the_task_allowed_stays_unless_the_new_policy_says_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit = Call("c3", "write", {"path": "tests/test_a.py", "content": "x"})
    line = logged(edit, [], GuardPolicy(protected=("tests/**",)))
    assert replay(tmp_path, [line], "log_only = false\n") == 0
    assert printed(capsys) == ([], ["judged 1, changed 0"])
    assert replay(tmp_path, [line], "protected = []\n") == 0
    assert printed(capsys)[0][0]["now"] == "allow"


def test_a_script_of_an_earlier_call_still_counts_in_a_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(tmp_path, [logged(DUMP, WROTE, GuardPolicy())], 'pack = "train"\n', "--all") == 0
    lines, _ = printed(capsys)
    assert [(line["was"], line["now"], line["rule"]) for line in lines] == [("block", "block", "token-lookup")]


def test_a_sessions_calls_are_judged_each_after_what_came_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [
        *WROTE,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c2", "type": "function", "function": {"name": "bash", "arguments": '{"command": "sh dump.sh"}'}}
            ],
        },
    ]
    (tmp_path / "session.json").write_text(json.dumps({"messages": calls}), encoding="utf-8")
    (tmp_path / "new.toml").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["replay", str(tmp_path / "session.json"), "--policy", str(tmp_path / "new.toml")])
    assert left.value.code == 0
    changed, summary = printed(capsys)
    assert [(line["id"], line["was"], line["now"], line["rule"]) for line in changed] == [
        ("c2", "allow", "block", "token-lookup")
    ]
    assert summary[0] == "judged 2, changed 1"


def test_a_line_that_cannot_be_read_is_named_and_the_rest_still_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = logged(FORGE, [], GuardPolicy())
    older = '{"kind": "verdict", "decision": "block", "call_id": "c"}'
    assert replay(tmp_path, [good, '{"call": ', older, good], "log_only = true\n") == 2
    changed, said = printed(capsys)
    assert [line["now"] for line in changed] == ["warn", "warn"]
    assert "line 2: not JSON" in said[0]
    assert "line 3: a verdict without its case" in said[1]


@pytest.mark.parametrize(
    ("policy", "says"), [("protectd = []\n", "protected"), ("cwd = 3\n", "cwd"), ("cwd = \n", "not TOML")]
)
def test_a_policy_that_cannot_be_used_is_one_line(
    policy: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(tmp_path, [logged(FORGE, [], GuardPolicy())], policy) == 1
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) <= 2


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.toml").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["replay", str(tmp_path / "none.jsonl"), "--policy", str(tmp_path / "new.toml")])
    assert left.value.code == 2
    assert "cannot read" in capsys.readouterr().err


def test_damaged_lines_of_a_session_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps(message) for message in WROTE]
    (tmp_path / "session.jsonl").write_text("\n".join([*lines, '{"role": "assist']) + "\n", encoding="utf-8")
    (tmp_path / "new.toml").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["replay", str(tmp_path / "session.jsonl"), "--policy", str(tmp_path / "new.toml")])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "1 damaged lines are left out" in said
    assert "judged 1" in said


@pytest.mark.parametrize("content", ["no JSON\n", None])
def test_an_error_names_its_file_once(content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jsonl"
    if content is not None:
        bad.write_text(content, encoding="utf-8")
    (tmp_path / "new.toml").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit) as left:
        main(["replay", str(bad), "--policy", str(tmp_path / "new.toml")])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.count("bad.jsonl") == 1
    assert str(bad) in said


def test_the_log_of_a_run_in_which_nothing_was_blocked_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, policy = tmp_path / "blocked.jsonl", tmp_path / "policy.toml"
    log.write_text("")
    policy.write_text('pack = "eval"\n')
    with pytest.raises(SystemExit) as left:
        main(["replay", str(log), "--policy", str(policy)])
    assert left.value.code == 0
    assert "judged 0, changed 0" in capsys.readouterr().err
