"""Real, unmodified pi in bubblewrap sandboxes, behind the real gateway and guard; only the model is scripted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rollouts_bench import OpenBench, children, make_task, tool_turn

from harness_adapters.engines.scripted import LOGPROB, Fault, ScriptedTurn
from harness_adapters.guard import GuardPolicy
from harness_adapters.harnesses.pi import Pi, install
from harness_adapters.records import CallLabel, Outcome, Rollout
from harness_adapters.rollouts.producer import Producer
from harness_adapters.rollouts.rows import train_rows
from harness_adapters.sandbox import ExecResult, Sandbox
from harness_adapters.storage import cache_root
from harness_adapters.testing import byte_tokenizer

pytestmark = pytest.mark.real_pi

SOLVE = tool_turn("bash", "I write it.", command="echo hello > out.txt")
GUARD = GuardPolicy.from_mapping({})


@pytest.fixture(scope="module")
def pi() -> Pi:
    install(cache_root(), lambda _: None)
    return Pi()


class Witness:
    """A sandbox that remembers what ran in it, and looks for the forged reward before it dies."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.stdout = b""
        self.forged: bool | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def exec(self, *args: Any, **named: Any) -> ExecResult:
        result = await self._sandbox.exec(*args, **named)
        self.stdout += result.stdout
        return result

    async def kill(self) -> None:
        if self.forged is None:
            found = await self._sandbox.exec(["test", "-e", "/logs/verifier/reward.txt"], timeout=10)
            self.forged = found.returncode == 0
        await self._sandbox.kill()


def play(open_bench: OpenBench, pi: Pi, turns: list[Any], **bench: Any) -> Rollout:
    before = children()

    async def run() -> Rollout:
        async with open_bench(pi, "bubblewrap", **bench) as opened:
            return await opened.runner.run(opened.plan(turns, guard=GUARD))

    rollout = asyncio.run(run())
    assert children() <= before
    return rollout


def test_task_is_solved_through_pi_and_every_sampled_id_is_kept(open_bench: OpenBench, pi: Pi) -> None:
    look = tool_turn("read", path="out.txt")
    write = tool_turn("write", path="note.txt", content='a\n"b"\té')
    edit = tool_turn("edit", path="note.txt", edits=[{"oldText": "a", "newText": "A"}])
    turns = [SOLVE, look, write, edit, "Done."]
    rollout = play(open_bench, pi, turns)
    assert (rollout.outcome, rollout.detail, rollout.ended_by, rollout.tool_calls) == (Outcome.GRADED, "", "model", 4)
    assert rollout.solved
    assert rollout.harness == "pi@1.6.0"
    tokenizer = byte_tokenizer()
    end = tokenizer.token_to_id("<|im_end|>")
    assert [list(call.completion_ids) for call in rollout.calls] == [[*tokenizer.encode(t).ids, end] for t in turns]
    assert {call.label for call in rollout.calls} == {CallLabel.AGENT}
    (row,) = train_rows(rollout, 1.0)
    assert sum(row.trained) == sum(len(call.completion_ids) for call in rollout.calls)
    assert {p for p, trained in zip(row.logprobs, row.trained, strict=True) if trained} == {LOGPROB}


def test_not_a_byte_of_a_blocked_call_reaches_pi(open_bench: OpenBench, pi: Pi) -> None:
    forge = tool_turn("bash", "Just this once.", command="echo 1 > /logs/verifier/reward.txt")
    witnesses: list[Witness] = []

    def wrap(sandbox: Sandbox) -> Any:
        witnesses.append(Witness(sandbox))
        return witnesses[-1]

    rollout = play(open_bench, pi, [SOLVE, forge, "Done."], wrap=wrap)
    assert (rollout.outcome, rollout.ended_by) == (Outcome.GRADED, "blocked")
    assert rollout.reward is not None
    assert (rollout.reward.verifier, rollout.reward.total) == (1.0, 0.0)
    assert [verdict.rule for call in rollout.calls for verdict in call.verdicts if verdict.blocked] == ["reward-write"]
    assert witnesses[0].forged is False
    assert b"echo hello" in witnesses[0].stdout
    assert b"/logs/verifier" not in witnesses[0].stdout
    assert b"Just this once" not in witnesses[0].stdout


def test_agent_that_never_stops_ends_at_the_limit_and_is_graded(open_bench: OpenBench, pi: Pi) -> None:
    turns = [SOLVE, *[tool_turn("bash", command="true")] * 9]
    rollout = play(open_bench, pi, turns, overrides=["session.model_calls=4"])
    assert (rollout.outcome, rollout.ended_by, len(rollout.calls)) == (Outcome.GRADED, "calls", 4)
    assert rollout.solved


def test_failing_engine_is_infra_after_one_request(open_bench: OpenBench, pi: Pi) -> None:
    rollout = play(open_bench, pi, [SOLVE, ScriptedTurn(fault=Fault.ERROR), "Done."])
    assert (rollout.outcome, rollout.reward, len(rollout.calls)) == (Outcome.INFRA, None, 1)
    assert "500" in rollout.detail


def test_pi_out_of_time_is_graded_as_it_stands(open_bench: OpenBench, pi: Pi, tmp_path: Path) -> None:
    task = make_task(tmp_path, toml={"agent": {"timeout_sec": 9.0}, "verifier": {"timeout_sec": 20.0}})
    turns = [SOLVE, tool_turn("bash", command="sleep 100 & sleep 100"), "Done."]
    rollout = play(open_bench, pi, turns, task=task)
    assert (rollout.outcome, rollout.ended_by, rollout.solved) == (Outcome.GRADED, "agent_timeout", True)


def test_pi_killed_by_its_own_command_is_a_fault(open_bench: OpenBench, pi: Pi) -> None:
    rollout = play(open_bench, pi, [SOLVE, tool_turn("bash", command="kill -9 $PPID; sleep 5"), "Done."])
    assert (rollout.outcome, rollout.ended_by) == (Outcome.AGENT_FAULT, "crash")
    assert rollout.reward is not None
    assert rollout.reward.total == 0.0


@pytest.mark.slow
def test_eight_sessions_at_once_share_one_prompt_and_leave_nothing(open_bench: OpenBench, pi: Pi) -> None:
    before = children()

    async def run() -> list[Rollout]:
        async with open_bench(pi, "bubblewrap", overrides=["producer.in_flight=8"]) as bench:
            producer = Producer(bench.runner, bench.runner.config)
            return await producer.run_all(bench.plan([SOLVE, "Done."], f"s{i}", guard=GUARD) for i in range(8))

    rollouts = asyncio.run(run())
    assert [rollout.id for rollout in rollouts] == [f"s{i}" for i in range(8)]
    assert all(rollout.solved for rollout in rollouts), [rollout.detail for rollout in rollouts]
    assert len({rollout.calls[0].prompt_ids for rollout in rollouts}) == 1
    assert children() <= before
