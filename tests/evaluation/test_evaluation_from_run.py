"""A run directory read back: the same comparison from the files alone, and damage named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from evaluation_samples import MakeRollout

from harness_adapters.config import load_config, to_toml
from harness_adapters.errors import RunError
from harness_adapters.evaluation.compare import compare
from harness_adapters.evaluation.from_run import load_rollouts, recompute, training_curve
from harness_adapters.records import Outcome, Rollout


def save(run: Path, folder: str, rollouts: list[Rollout]) -> None:
    (run / folder).mkdir(parents=True, exist_ok=True)
    for rollout in rollouts:
        (run / folder / f"{rollout.id}.json").write_text(json.dumps(rollout.to_json()), encoding="utf-8")


def test_rollouts_come_back_equal_and_kinds_are_kept_apart(tmp_path: Path, make_rollout: MakeRollout) -> None:
    evaluated = [make_rollout("base", "a", True), make_rollout("final", "a")]
    trained = [make_rollout("run-pi-v0", "b", tags={"step": "1"})]
    save(tmp_path, "eval", evaluated)
    save(tmp_path, "rollouts", trained)
    assert load_rollouts(tmp_path) == evaluated
    assert load_rollouts(tmp_path, "training") == trained
    with pytest.raises(ValueError, match="eval, training, not 'oracle'"):
        load_rollouts(tmp_path, "oracle")


def test_recomputing_gives_the_comparison_of_the_same_rollouts(tmp_path: Path, make_rollout: MakeRollout) -> None:
    rollouts = [make_rollout(label, f"t{task}", task % 3 == 0) for task in range(9) for label in ("base", "final")]
    save(tmp_path, "eval", rollouts)
    assert recompute(tmp_path) == compare(rollouts)
    config = load_config(overrides=["evaluation.confidence=0.9"])
    (tmp_path / "config.resolved.toml").write_text(to_toml(config), encoding="utf-8")
    assert recompute(tmp_path) == compare(rollouts, confidence=0.9)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"id": "x"}',
        b"\xff\xfe",
        b'{"reward": null, "outcome": "graded", "calls": [1]}',
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, make_rollout: MakeRollout, damage: bytes) -> None:
    save(tmp_path, "eval", [make_rollout()])
    (tmp_path / "eval" / "broken.json").write_bytes(damage)
    with pytest.raises(RunError, match=r"broken\.json is not a rollout"):
        recompute(tmp_path)


def test_a_file_half_written_by_a_dying_writer_is_not_read(tmp_path: Path, make_rollout: MakeRollout) -> None:
    save(tmp_path, "eval", [make_rollout()])
    (tmp_path / "eval" / ".x.json.abc.tmp").write_bytes(b"{")
    assert len(load_rollouts(tmp_path)) == 1


def test_what_is_no_run_or_has_no_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run directory"):
        recompute(tmp_path / "none")
    with pytest.raises(RunError, match="holds no evaluation rollouts"):
        recompute(tmp_path)


def test_the_training_curve_averages_valid_rollouts_by_step(make_rollout: MakeRollout) -> None:
    def trained(step: str, solved: bool, calls: int, outcome: Outcome = Outcome.GRADED) -> Rollout:
        return make_rollout("v", "t", solved, calls, tags={"step": step}, outcome=outcome)

    curve = training_curve(
        [
            trained("10", True, 2),
            trained("2", True, 4),
            trained("2", False, 2),
            trained("2", False, 9, Outcome.INFRA),
            trained("2", False, 6, Outcome.AGENT_FAULT),
        ]
    )
    assert [(point.step, point.rollouts) for point in curve] == [(2, 3), (10, 1)]
    assert curve[0].reward == pytest.approx(1.05 / 3)
    assert curve[0].solved == pytest.approx(1 / 3)
    assert curve[0].tool_calls == 4.0


@pytest.mark.parametrize("step", ["", "one", "-1", "1.5"])
def test_a_training_rollout_without_a_whole_step_is_refused(make_rollout: MakeRollout, step: str) -> None:
    with pytest.raises(RunError, match="has no step"):
        training_curve([make_rollout("v", tags={"step": step})])
