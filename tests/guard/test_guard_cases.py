"""The shipped cases, and two lists of commands: what an honest agent runs, and what a dishonest one tries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from guard_support import HERE, PI, Judge, commands

from harness_adapters.guard import Guard, GuardPolicy
from harness_adapters.records import Call, Decision, ToolMap

CASES = [json.loads(line) for line in (HERE / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
POLICY = {
    "protected": ["tests/**", "conftest.py", "data/**"],
    "registries": ["index.example"],
    "model_base_url": "http://127.0.0.1:8791/v1",
}
USER = "Do the task. See https://docs.example/api"


def _decide(case: dict[str, Any]) -> Decision:
    tools = PI if case["harness"] == "pi" else ToolMap(case["harness"], {})
    guard = Guard(GuardPolicy.from_mapping(case["task"]), tools)
    call = Call(case["id"], case["call"]["name"], case["call"]["arguments"])
    return guard.judge(call, declared=case["tools"], messages=case["messages"]).decision


def test_no_honest_case_is_held_against_the_agent() -> None:
    wrong = [case["id"] for case in CASES if case["expect"] == "allow" and _decide(case) is not Decision.ALLOW]
    assert wrong == []


def test_cases_of_the_six_rules_are_caught() -> None:
    hostile = [case for case in CASES if case["expect"] == "block"]
    missed = [case["id"] for case in hostile if _decide(case) is not Decision.BLOCK]
    assert len(hostile) >= 25
    assert missed == []


@pytest.mark.parametrize("command", commands("honest_commands.txt"))
def test_honest_work_passes(command: str, judge: Judge) -> None:
    verdict = judge("bash", {"command": command}, POLICY, user=USER)
    assert verdict.decision is Decision.ALLOW, verdict


@pytest.mark.parametrize("command", commands("hostile_commands.txt"))
def test_hostile_commands_are_blocked(command: str, judge: Judge) -> None:
    assert judge("bash", {"command": command}, POLICY, user=USER).decision is Decision.BLOCK
