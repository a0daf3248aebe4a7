"""Finished sessions are never played again, unfinished ones are, and no attempt is ever written over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from harness_adapters.config import load_config
from harness_adapters.records import Outcome, RewardParts, Rollout
from harness_adapters.rollouts.producer import Producer
from harness_adapters.rollouts.session import SessionPlan, SessionRunner
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.resuming import ResumingRunner
from harness_adapters.tasks.format import Task

TASK = Task("t", "f", "do", Path("/nowhere"), "/workspace", None, 1.0, (), {}, {})
PLAN = SessionPlan("s1-g0-m0", TASK, "s1-g0", "v0", 1)


class Player:
    """Ends each session as `judge` says of its id; remembers the ids."""

    def __init__(self, judge: Callable[[str], Outcome]) -> None:
        self.played: list[str] = []
        self._judge = judge

    async def run(self, plan: SessionPlan) -> Rollout:
        self.played.append(plan.id)
        outcome = self._judge(plan.id)
        reward = RewardParts(1.0, 0.0, False, 1.0) if outcome is Outcome.GRADED else None
        return Rollout(plan.id, plan.task.id, "f", plan.group, "h", plan.policy, outcome, "why", reward)


def play(run: RunDirectory, player: Player, plan: SessionPlan = PLAN) -> Rollout:
    """One session with its retries, as a process of its own would play it."""
    runner = ResumingRunner(run, "rollouts", cast(SessionRunner, player))
    (rollout,) = asyncio.run(Producer(runner, load_config(overrides=["session.infra_retries=2"])).run_all([plan]))
    return rollout


def saved(run: RunDirectory) -> dict[str, Outcome]:
    files = sorted((run.path / "rollouts").glob("*.json"))
    return {path.stem: run.read_rollout("rollouts", path.stem).outcome for path in files}


def test_a_finished_session_comes_from_the_disk_and_so_does_the_retry_that_finished_it(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        first = Player(lambda name: Outcome.GRADED if name.endswith(".r1") else Outcome.INFRA)
        assert play(run, first).id == "s1-g0-m0.r1"
        again = Player(lambda name: Outcome.INFRA)
        assert play(run, again).id == "s1-g0-m0.r1"
        assert again.played == []


def test_attempts_go_on_counting_over_processes_and_none_is_written_over(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        play(run, Player(lambda name: Outcome.INFRA))
        second = Player(lambda name: Outcome.GRADED if name.endswith(".r4") else Outcome.CANCELLED)
        assert play(run, second).outcome is Outcome.CANCELLED
        assert play(run, second).id == "s1-g0-m0.r4"
        assert second.played == ["s1-g0-m0.r3", "s1-g0-m0.r4"]
        assert list(saved(run).values()) == [Outcome.INFRA] * 3 + [Outcome.CANCELLED, Outcome.GRADED]


def test_a_session_of_another_policy_or_task_is_moved_away_and_played_anew(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        play(run, Player(lambda name: Outcome.GRADED if name.endswith(".r1") else Outcome.INFRA))
        for plan in (replace(PLAN, policy="v7"), replace(PLAN, policy="v7", task=replace(TASK, id="other"))):
            player = Player(lambda name: Outcome.GRADED)
            assert play(run, player, plan).id == "s1-g0-m0"
            assert player.played == ["s1-g0-m0"]
            assert run.read_rollout("rollouts", "s1-g0-m0").task == plan.task.id
        aside = {path.name for path in (run.path / "set-aside" / "rollouts").iterdir()}
        assert aside == {"s1-g0-m0.json", "s1-g0-m0.r1.json", "s1-g0-m0.2.json"}
