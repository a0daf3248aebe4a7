"""The state machine of one session: every way it can end, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rollouts_bench import Bench, OpenBench, children, make_task, tool_turn

from harness_adapters.engines.scripted import Fault, ScriptedTurn
from harness_adapters.errors import InfraError
from harness_adapters.gateway import SessionCapture
from harness_adapters.guard import GuardPolicy
from harness_adapters.harnesses import HarnessExit
from harness_adapters.harnesses.scripted import Scripted
from harness_adapters.records import Call, CallLabel, Decision, ModelCall, Outcome, Rollout, Verdict
from harness_adapters.rollouts.session import judge_end
from harness_adapters.sandbox import ExecResult, Sandbox

KIND = "bubblewrap"
SOLVE = [tool_turn("shell", "I write it.", command="echo hello > out.txt"), "Done."]


def play(
    open_bench: OpenBench, turns: list[Any], changes: Mapping[str, Any] | None = None, kind: str = KIND, **bench: Any
) -> Rollout:
    """One session with the scripted harness, and the proof that it left no process."""
    before = children()

    async def run() -> Rollout:
        async with open_bench(Scripted(), kind, **bench) as opened:
            return await opened.runner.run(opened.plan(turns, **(changes or {})))

    rollout = asyncio.run(run())
    assert children() <= before
    return rollout


class Wrapped:
    """A sandbox whose method `broken` fails or waits; everything else is the real one's."""

    def __init__(self, sandbox: Sandbox, broken: str, failure: Exception | None) -> None:
        self._sandbox = sandbox
        self._broken = broken
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._broken else getattr(self._sandbox, name)

    async def _fail(self, *args: object, **named: object) -> None:
        if self._failure is not None:
            raise self._failure
        await asyncio.Event().wait()


def test_solved_session_is_graded_with_its_bonus_and_keeps_the_sampled_ids(open_bench: OpenBench) -> None:
    rollout = play(open_bench, SOLVE)
    assert (rollout.outcome, rollout.detail, rollout.ended_by) == (Outcome.GRADED, "", "model")
    assert rollout.reward is not None
    assert rollout.reward.total == pytest.approx(1 + 0.1 * (1 - 1 / 15))
    assert [call.label for call in rollout.calls] == [CallLabel.AGENT] * 2
    first, second = rollout.calls
    assert (
        second.prompt_ids[: len(first.prompt_ids) + len(first.completion_ids)]
        == first.prompt_ids + first.completion_ids
    )
    assert all(len(call.logprobs) == len(call.completion_ids) for call in rollout.calls)
    assert set(rollout.phases) == {"boot", "agent", "quiesce", "collect", "verify"}
    assert rollout.harness == "scripted@1"
    assert rollout.limits


def test_session_plays_in_the_sandbox_for_tests_alike(open_bench: OpenBench, tmp_path: Path) -> None:
    verdict = b"""r=${SANDBOX_ROOT}; grep -q hello "$r/workspace/out.txt" && echo 1 > "$r/logs/verifier/reward.txt" """
    rollout = play(open_bench, SOLVE, kind="inprocess", task=make_task(tmp_path, verdict=verdict))
    assert (rollout.outcome, rollout.detail, rollout.solved) == (Outcome.GRADED, "", True)
    assert len(rollout.calls) == 2


def test_session_in_the_sandbox_for_tests_is_refused_when_the_engine_does_not_play_scripts(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness_adapters.engines.scripted.OWNER", "someone")
    rollout = play(open_bench, SOLVE, kind="inprocess")
    assert (rollout.outcome, rollout.reward, rollout.calls) == (Outcome.INFRA, None, ())
    assert "scripted engine only" in rollout.detail
    assert play(open_bench, SOLVE).outcome is Outcome.GRADED


def test_unsolved_session_is_graded_zero(open_bench: OpenBench) -> None:
    rollout = play(open_bench, ["I give up."])
    assert (rollout.outcome, rollout.reward and rollout.reward.total, rollout.tool_calls) == (Outcome.GRADED, 0.0, 0)


def test_blocked_call_is_never_run_and_takes_the_reward(open_bench: OpenBench) -> None:
    forge = tool_turn("shell", command="echo hello > out.txt; echo 1 > /logs/verifier/reward.txt")
    rollout = play(open_bench, [SOLVE[0], forge, "Done."], {"guard": GuardPolicy.from_mapping({})})
    assert (rollout.outcome, rollout.ended_by) == (Outcome.GRADED, "blocked")
    assert rollout.reward is not None
    assert (rollout.reward.verifier, rollout.reward.total, rollout.reward.blocked) == (1.0, 0.0, True)
    assert rollout.tool_calls == 2


def test_reward_forged_in_the_agents_sandbox_is_not_seen(open_bench: OpenBench) -> None:
    forge = "mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo 'exit 0' > /tests/test.sh"
    rollout = play(open_bench, [tool_turn("shell", command=forge), "Done."])
    assert (rollout.outcome, rollout.reward and rollout.reward.total) == (Outcome.GRADED, 0.0)


def test_session_at_its_limit_of_model_calls_is_graded_as_it_stands(open_bench: OpenBench) -> None:
    turns = [SOLVE[0], *[tool_turn("shell", command="true")] * 10]
    rollout = play(open_bench, turns, overrides=["session.model_calls=3"])
    assert (rollout.outcome, rollout.ended_by, len(rollout.calls)) == (Outcome.GRADED, "calls", 3)
    assert rollout.solved


def test_session_whose_context_the_configuration_bounds_ends_there_and_is_graded(open_bench: OpenBench) -> None:
    turns = [SOLVE[0], *[tool_turn("shell", "I look.", command="seq 40")] * 10, "Done."]
    whole = play(open_bench, turns, overrides=["session.model_calls=20"])
    bounded = play(open_bench, turns, overrides=["session.model_calls=20", "session.context=1600"])
    assert (whole.outcome, whole.ended_by) == (Outcome.GRADED, "model")
    assert (bounded.outcome, bounded.ended_by) == (Outcome.GRADED, "context")
    assert bounded.solved
    assert 1 < len(bounded.calls) < len(whole.calls)
    assert max(len(call.prompt_ids) + len(call.completion_ids) for call in bounded.calls) <= 1600


def test_task_whose_first_prompt_does_not_fit_is_graded_unworked_and_says_so(
    open_bench: OpenBench, caplog: pytest.LogCaptureFixture
) -> None:
    rollout = play(open_bench, SOLVE, overrides=["session.context=256"])
    assert (rollout.outcome, rollout.ended_by, rollout.calls, rollout.solved) == (
        Outcome.GRADED,
        "context",
        (),
        False,
    )
    assert "does not fit session.context" in rollout.detail
    assert "does not fit a context of 256: raise session.context" in caplog.text


def test_agent_that_runs_out_of_time_is_graded_as_it_stands(open_bench: OpenBench, tmp_path: Path) -> None:
    task = make_task(tmp_path, toml={"agent": {"timeout_sec": 2.0}, "verifier": {"timeout_sec": 20.0}})
    rollout = play(open_bench, [SOLVE[0], tool_turn("shell", command="sleep 60"), "Done."], task=task)
    assert (rollout.outcome, rollout.ended_by, rollout.solved) == (Outcome.GRADED, "agent_timeout", True)
    assert rollout.phases["agent"] < 10


def test_harness_killed_by_its_agent_is_a_fault_without_reward(open_bench: OpenBench) -> None:
    kill = tool_turn("shell", command="kill -9 $PPID")
    rollout = play(open_bench, [SOLVE[0], kill, "Done."])
    assert (rollout.outcome, rollout.ended_by) == (Outcome.AGENT_FAULT, "crash")
    assert rollout.reward is not None
    assert rollout.reward.total == 0.0
    assert len(rollout.calls) == 2


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.DROP, Fault.BAD_IDS, Fault.WRONG_MODEL])
def test_engine_failure_is_infra_and_never_a_zero(open_bench: OpenBench, fault: Fault) -> None:
    rollout = play(open_bench, [SOLVE[0], ScriptedTurn("x", fault=fault)])
    assert (rollout.outcome, rollout.reward) == (Outcome.INFRA, None)
    assert "engine" in rollout.detail


def test_unknown_policy_is_infra(open_bench: OpenBench) -> None:
    rollout = play(open_bench, SOLVE, {"policy": "nobody"})
    assert (rollout.outcome, rollout.reward) == (Outcome.INFRA, None)
    assert "nobody" in rollout.detail


def test_base_policy_needs_permission(open_bench: OpenBench) -> None:
    assert play(open_bench, SOLVE, {"policy": "base"}).outcome is Outcome.INFRA


@pytest.mark.parametrize("method", ["start", "put", "listen", "exec", "get"])
def test_sandbox_failure_is_infra_and_never_a_zero(open_bench: OpenBench, method: str) -> None:
    rollout = play(open_bench, SOLVE, wrap=lambda sandbox: Wrapped(sandbox, method, InfraError("broken")))
    assert (rollout.outcome, rollout.reward) == (Outcome.INFRA, None)
    assert "broken" in rollout.detail


def test_our_own_bug_is_infra_and_is_named(open_bench: OpenBench) -> None:
    rollout = play(open_bench, SOLVE, wrap=lambda sandbox: Wrapped(sandbox, "exec", ZeroDivisionError("oops")))
    assert (rollout.outcome, rollout.reward) == (Outcome.INFRA, None)
    assert "ZeroDivisionError in phase agent" in rollout.detail


def test_verifier_without_a_valid_reward_is_infra(open_bench: OpenBench, tmp_path: Path) -> None:
    rollout = play(open_bench, SOLVE, task=make_task(tmp_path, verdict=b"#!/bin/sh\nexit 0\n"))
    assert (rollout.outcome, rollout.reward) == (Outcome.INFRA, None)
    assert len(rollout.calls) == 2


@pytest.mark.parametrize(("method", "seconds"), [("start", 1), ("exec", 2), ("get", 8)])
def test_one_deadline_covers_every_phase(open_bench: OpenBench, method: str, seconds: int) -> None:
    started = time.monotonic()
    hangs: dict[str, Any] = {
        "overrides": [f"session.seconds={seconds}"],
        "wrap": lambda sandbox: Wrapped(sandbox, method, None),
    }
    rollout = play(open_bench, SOLVE, **hangs)
    assert (rollout.outcome, rollout.reward) == (Outcome.INFRA, None)
    assert f"deadline of {seconds} s" in rollout.detail
    assert time.monotonic() - started < seconds + 12


def test_verifier_starts_only_after_the_agents_sandbox_is_dead(open_bench: OpenBench) -> None:
    async def run() -> None:
        alive: list[set[int]] = []
        before = children()

        def wrap(sandbox: Sandbox) -> Sandbox:
            alive.append(children() - before)
            return sandbox

        async with open_bench(Scripted(), KIND, wrap=wrap) as bench:
            await bench.runner.run(bench.plan(SOLVE))
        assert alive == [set(), set()]

    asyncio.run(run())


async def _until_agent_runs(bench: Bench) -> None:
    while not bench.engine.requests:  # noqa: ASYNC110 - the engine keeps a list, not an event
        await asyncio.sleep(0.01)


SLOW = [ScriptedTurn(SOLVE[0], delay=60.0)]


def test_session_cancelled_through_the_runner_is_recorded_as_cancelled(open_bench: OpenBench) -> None:
    async def run() -> None:
        async with open_bench(Scripted(), KIND) as bench:
            task = asyncio.create_task(bench.runner.run(bench.plan(SLOW)))
            await _until_agent_runs(bench)
            assert bench.runner.cancel("s1")
            rollout = await task
            assert (rollout.outcome, rollout.reward) == (Outcome.CANCELLED, None)
            assert not bench.runner.cancel("s1")

    before = children()
    asyncio.run(run())
    assert children() <= before


def test_cancelled_caller_sees_its_cancellation_after_the_clean_up(open_bench: OpenBench) -> None:
    before = children()

    async def run() -> None:
        async with open_bench(Scripted(), KIND) as bench:
            task = asyncio.create_task(bench.runner.run(bench.plan(SLOW)))
            await _until_agent_runs(bench)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert children() <= before
            again = await bench.runner.run(bench.plan(SOLVE))
            assert again.solved, "a session cancelled twice counts as running for ever"

    asyncio.run(run())


class KilledAtLeisure:
    """A sandbox whose death the host learns of only once `release` is set."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.killing = asyncio.Event()
        self.release = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def kill(self) -> None:
        self.killing.set()
        await self.release.wait()
        await self._sandbox.kill()


def test_session_that_cleans_up_is_not_cancelled_any_more_and_keeps_its_outcome(open_bench: OpenBench) -> None:
    async def run() -> None:
        async with open_bench(Scripted(), KIND, wrap=KilledAtLeisure) as bench:
            turns = [tool_turn("shell", command="kill -9 $PPID"), "Done."]
            task = asyncio.create_task(bench.runner.run(bench.plan(turns)))
            while not bench.opened:  # noqa: ASYNC110 - the bench keeps a list, not an event
                await asyncio.sleep(0.01)
            sandbox: Any = bench.opened[0]
            await sandbox.killing.wait()
            assert not bench.runner.cancel("s1")
            sandbox.release.set()
            assert (await task).outcome is Outcome.AGENT_FAULT

    asyncio.run(run())


CALL = ModelCall(0, "p", (1,), (2,), (-0.1,), "stop", CallLabel.AGENT)
ZEROED = ModelCall(
    0, "p", (1,), (2,), (-0.1,), "stop", CallLabel.AGENT, verdicts=(Verdict("c", Decision.ZERO, "rule"),)
)
FAILED = HarnessExit(False, "500")
CRASHED = HarnessExit(False, "signal 9", crashed=True)
OK = HarnessExit(True)


@pytest.mark.parametrize(
    ("calls", "ended_by", "infra", "timed_out", "harness_exit", "outcome"),
    [
        ((CALL,), "model", "", False, OK, Outcome.GRADED),
        ((CALL,), "", "", True, CRASHED, Outcome.GRADED),
        ((CALL,), "", "", False, CRASHED, Outcome.AGENT_FAULT),
        ((CALL,), "model", "", False, CRASHED, Outcome.GRADED),
        ((CALL,), "", "", False, FAILED, Outcome.INFRA),
        ((CALL,), "context", "", False, FAILED, Outcome.GRADED),
        ((CALL,), "blocked", "the guard failed", False, OK, Outcome.INFRA),
        ((), "context", "", False, FAILED, Outcome.GRADED),
        ((), "", "", False, OK, Outcome.INFRA),
        ((), "", "", True, OK, Outcome.INFRA),
        ((), "", "", False, CRASHED, Outcome.INFRA),
    ],
)
def test_every_end_of_an_agent_has_one_meaning(
    calls: tuple[ModelCall, ...],
    ended_by: str,
    infra: str,
    timed_out: bool,
    harness_exit: HarnessExit,
    outcome: Outcome,
) -> None:
    result = ExecResult(None if timed_out else 0, b"", b"", timed_out=timed_out)
    assert judge_end(result, harness_exit, SessionCapture(calls, 0, ended_by, infra)).outcome is outcome


def _calling(command: str) -> ModelCall:
    return replace(CALL, tool_calls=(Call("c", "shell", {"command": command}),))


@pytest.mark.parametrize(
    ("calls", "returncode", "limit", "outcome"),
    [
        ((_calling("make"),), -signal.SIGKILL, "", Outcome.INFRA),
        ((_calling("make"),), -signal.SIGTERM, "", Outcome.INFRA),
        ((CALL,), -signal.SIGKILL, "", Outcome.INFRA),
        ((_calling("kill %1"), CALL), -signal.SIGKILL, "", Outcome.INFRA),
        ((_calling("kill -9 $PPID"),), -signal.SIGKILL, "", Outcome.AGENT_FAULT),
        ((CALL, _calling("pkill python3")), -signal.SIGTERM, "", Outcome.AGENT_FAULT),
        ((_calling("make"),), -signal.SIGKILL, "memory", Outcome.AGENT_FAULT),
        ((_calling("make"),), -signal.SIGSEGV, "", Outcome.AGENT_FAULT),
        ((_calling("make"),), 1, "", Outcome.AGENT_FAULT),
    ],
)
def test_a_harness_that_somebody_ended_is_infra_unless_something_says_it_was_its_agent(
    calls: tuple[ModelCall, ...], returncode: int, limit: str, outcome: Outcome
) -> None:
    result = ExecResult(returncode, b"", b"", limit=limit)
    ending = judge_end(result, CRASHED, SessionCapture(calls, 1, "", ""))
    assert (ending.outcome, ending.reward is None) == (outcome, outcome is Outcome.INFRA)


def test_zero_verdict_counts_as_blocked_in_a_fault() -> None:
    ending = judge_end(ExecResult(1, b"", b""), CRASHED, SessionCapture((ZEROED,), 1, "", ""))
    assert ending.reward is not None
    assert ending.reward.blocked
