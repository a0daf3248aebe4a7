"""The plan of a step: what was drawn is played again under the same ids, whatever changed meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness_adapters.config import load_config
from harness_adapters.errors import RunError
from harness_adapters.records import Outcome, RewardParts, Rollout
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.planning import StepPlan
from harness_adapters.runs.sampling import TaskSampler
from harness_adapters.tasks.format import Task

POOL = [Task(f"t{i}", f"f{i % 2}", "do", Path("/nowhere"), "/workspace", None, 1.0, (), {}, {}) for i in range(6)]


def sampler(pool: list[Task] = POOL) -> TaskSampler:
    return TaskSampler(pool, seed=5, cursor=4)


def rollout(identity: str, policy: str) -> Rollout:
    return Rollout(identity, "t", "f", "g", "h", policy, Outcome.GRADED, reward=RewardParts(1.0, 0.0, False, 1.0))


def drawn(run: RunDirectory, count: int, policy: str = "v1", pool: list[Task] = POOL) -> tuple[int, list[str], int]:
    """(how many were drawn before, the tasks handed out, the sampler's cursor then)."""
    source = sampler(pool)
    plan = StepPlan(run, 3, policy, source)
    planned = plan.planned
    return planned, [next(plan).id for _ in range(count)], source.cursor


def test_a_task_is_on_the_disk_before_it_is_handed_out(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        plan = StepPlan(run, 3, "v1", sampler())
        for count in (1, 2, 3):
            name = next(plan).id
            written = json.loads((run.path / "plans" / "s00003.json").read_text())
            assert (written["policy"], len(written["groups"]), written["groups"][-1]) == ("v1", count, name)


def test_a_step_gone_on_with_plays_what_was_drawn_and_then_what_would_have_come_next(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        _, whole, cursor = drawn(run, 5)
    with RunDirectory.create(tmp_path, load_config()) as run:
        assert drawn(run, 2) == (0, whole[:2], 6)
        assert drawn(run, 3) == (2, whole[:3], 7)
        assert drawn(run, 5) == (3, whole, cursor)


def test_a_pool_that_changed_meanwhile_changes_nothing_of_what_was_drawn(tmp_path: Path) -> None:
    more = [*POOL, *(replace(task, id=f"a-{task.id}") for task in POOL)]
    with RunDirectory.create(tmp_path, load_config()) as run:
        _, first, _ = drawn(run, 3)
        assert drawn(run, 4, pool=more)[1][:3] == first


def test_a_planned_task_that_is_gone_is_named(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        _, (first, *_), _ = drawn(run, 2)
        with pytest.raises(RunError, match=f"plans task '{first}', which .* no longer"):
            drawn(run, 1, pool=[task for task in POOL if task.id != first])


def test_plan_and_rollouts_of_a_version_that_is_no_more_are_set_aside_and_those_of_other_steps_stay(
    tmp_path: Path,
) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        drawn(run, 2)
        for identity in ("s3-g0-m0", "s3-g1-m0.r1", "s33-g0-m0"):
            run.save_rollout("rollouts", rollout(identity, "v1"))
        assert drawn(run, 1, policy="v7")[0] == 0
        assert [path.name for path in (run.path / "rollouts").iterdir()] == ["s33-g0-m0.json"]
        aside = run.path / "set-aside"
        assert {path.name for path in (aside / "rollouts").iterdir()} == {"s3-g0-m0.json", "s3-g1-m0.r1.json"}
        assert json.loads((aside / "plans" / "s00003.json").read_text())["policy"] == "v1"
        assert json.loads((run.path / "plans" / "s00003.json").read_text())["policy"] == "v7"


@pytest.mark.parametrize("text", ["", "[]", '{"policy": "v1"}', '{"policy": 1, "groups": []}', "[" * 100_000])
def test_a_damaged_plan_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        drawn(run, 1)
        (run.path / "plans" / "s00003.json").write_text(text)
        with pytest.raises(RunError, match=r"s00003\.json is damaged.*delete it"):
            drawn(run, 1)
