"""Judging is total, deterministic, pure and bounded, whatever the arguments are."""

from __future__ import annotations

import builtins
import json
import os
import socket
import time
from typing import Any, NoReturn

import pytest
from guard_support import HERE, Judge, commands, judge_call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness_adapters.records import Decision

WORDS = r"""
a rm echo cat curl http://h.example tests/a $x $( ) ` ' " \ { } | || && ; & > >> < <<E <<< if then fi
for in do done case esac
[[ ]] (( )) * ? ~ = x= ${x python3 -c sh eval xargs find -exec -delete git checkout awk sed -i é ! #
"""
PIECES = [*WORDS.split(), " ", "\n", "\nE\n", "sh -c", "\x00", "\x03", "\x07", "\ud800"]
LISTS = st.lists(st.sampled_from(PIECES), max_size=40)
COMMANDS = st.one_of(st.text(max_size=200), LISTS.map(" ".join), LISTS.map("".join))
NAMES = st.sampled_from(["bash", "read", "write", "edit", "patch", "web_search", "execute_code", "x"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), COMMANDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
KEYS = st.sampled_from(["command", "path", "content", "edits", "url", "code", "patch", "cwd", "query", "x"])
POLICY = {"protected": ["tests/**"], "new_tests_allowed": True}
QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUIET
@given(COMMANDS)
def test_any_command_has_one_verdict(command: str) -> None:
    first = judge_call("bash", {"command": command}, POLICY)
    assert first == judge_call("bash", {"command": command}, POLICY)


@QUIET
@given(NAMES, st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_arguments_have_one_verdict(tool: str, arguments: dict[str, Any]) -> None:
    first = judge_call(tool, arguments, POLICY, declared=[tool])
    assert first == judge_call(tool, arguments, POLICY, declared=[tool])


@QUIET
@given(st.text(max_size=300))
def test_any_raw_arguments_and_python_code_have_a_verdict(text: str) -> None:
    judge_call("bash", text, POLICY)
    judge_call("execute_code", {"code": text}, POLICY, declared=["execute_code"])


_SUMS = "\n".join(f"x{i} = x{i - 1} + x{i - 1}" for i in range(1, 900))
LARGE = {
    "angle brackets": "<" * 20_000,
    "redirect pairs": "<>" * 10_000,
    "nested substitutions": "$(" * 20_000,
    "quoted heredoc of a megabyte": "cat > f <<'E'\n" + "hello world\n" * 87_000 + "E\n",
    "open heredoc of a megabyte": "cat > f <<E\n" + "hello world\n" * 87_000 + "E\n",
    "many heredocs": "<<a " * 5_000,
    "pipes": "a | " * 15_000,
    "brackets": "[a]" * 20_000,
    "braces": "a{1..9}" * 3_000,
    "doubling variable": "a=xx;" + "a=$a$a;" * 2_000 + "echo $a",
    "commands": "rm a;" * 5_000,
    "nested loops": "for a in 1 2 3 4 5 6 7 8 9; do " * 6 + "rm $a;" + "done;" * 6,
    "recursive function": "f() { f; f; }; f",
    "awk prints": "awk '" + "print > " * 900 + "' f",
    "long awk": "awk '" + "print " * 10_000 + "' f",
    "star segments": "rm " + "*/" * 20_000,
    "long path": "rm " + "/a" * 30_000,
    "python sums": f"python3 <<'E'\n{_SUMS}\nopen(x899)\nE\n",
    "python circles": "python3 <<'E'\n" + "a=a+b+c\nb=a+c\nc=b+a\n" * 300 + "open(a)\nE\n",
    "python nesting": "python3 <<'E'\n" + "f(" * 3_000 + ")" * 3_000 + "\nE\n",
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_input_is_judged_in_bounded_work(name: str) -> None:
    started = time.process_time()
    judge_call("bash", {"command": LARGE[name]}, POLICY)
    assert time.process_time() - started < 3.0


def test_long_histories_do_not_add_up() -> None:
    script = "cat > a.sh <<'E'\n" + "echo hi\n" * 200 + "E\nbash a.sh"
    earlier = [("bash", {"command": script}, "ok" * 2000)] * 30
    started = time.process_time()
    assert judge_call("bash", {"command": "ls"}, earlier=earlier).decision is Decision.ALLOW
    assert time.process_time() - started < 3.0


def test_judging_opens_no_file_no_socket_and_asks_no_clock(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    every = [*commands("honest_commands.txt"), *commands("hostile_commands.txt")]
    cases = [json.loads(line) for line in (HERE / "cases" / "shown-1.jsonl").read_text(encoding="utf-8").splitlines()]
    judge("bash", {"command": "ls"})

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise AssertionError("the guard must be pure")

    with monkeypatch.context() as patch:
        for owner, name in (
            (builtins, "open"),
            (os, "open"),
            (os, "stat"),
            (os, "listdir"),
            (socket, "socket"),
            (socket, "getaddrinfo"),
            (time, "time"),
            (time, "monotonic"),
        ):
            patch.setattr(owner, name, refuse)
        for command in every:
            judge("bash", {"command": command}, POLICY)
        for case in cases:
            judge(case["call"]["name"], case["call"]["arguments"], case["task"], declared=case["tools"])
