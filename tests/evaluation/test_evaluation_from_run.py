"""A run directory read back: the same comparison from the files alone, and damage named."""

from __future__ import annotations

import json
from dataclasses import replace
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


def evaluation(make_rollout: MakeRollout, tasks: int) -> list[Rollout]:
    return [make_rollout(label, f"t{task}", task % 3 == 0) for task in range(tasks) for label in ("base", "final")]


def finish(run: Path, sessions: int) -> None:
    (run / ".done").mkdir(exist_ok=True)
    (run / ".done" / "evaluate").write_text(json.dumps({"sessions": sessions}), encoding="utf-8")


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
    rollouts = evaluation(make_rollout, 9)
    save(tmp_path, "eval", rollouts)
    assert recompute(tmp_path).comparison == compare(rollouts)
    config = load_config(overrides=["evaluation.confidence=0.9"])
    (tmp_path / "config.resolved.toml").write_text(to_toml(config), encoding="utf-8")
    assert recompute(tmp_path).comparison == compare(rollouts, confidence=0.9)


def test_a_run_of_another_version_keeps_its_table(tmp_path: Path, make_rollout: MakeRollout) -> None:
    save(tmp_path, "eval", evaluation(make_rollout, 2))
    config = tmp_path / "config.resolved.toml"
    config.write_text("gone = 1\n[evaluation]\nattempts = 0\nold = true\nconfidence = 0.9\n", encoding="utf-8")
    assert recompute(tmp_path).comparison.confidence == 0.9
    config.write_text("gone = 1\n", encoding="utf-8")
    assert recompute(tmp_path).comparison.confidence == 0.95


@pytest.mark.parametrize(
    "text", ["evaluation = 3", "[evaluation]\nconfidence = 1.0", '[evaluation]\nconfidence = "high"', "[evaluation"]
)
def test_a_confidence_level_that_is_none_is_refused(tmp_path: Path, make_rollout: MakeRollout, text: str) -> None:
    save(tmp_path, "eval", evaluation(make_rollout, 1))
    (tmp_path / "config.resolved.toml").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"config\.resolved\.toml gives no evaluation\.confidence"):
        recompute(tmp_path)


def test_a_finished_evaluation_with_all_its_sessions_has_no_warning(tmp_path: Path, make_rollout: MakeRollout) -> None:
    first, *others = evaluation(make_rollout, 3)
    infra = replace(first, outcome=Outcome.INFRA, reward=None)
    save(tmp_path, "eval", [infra, replace(first, id=f"{first.id}.r1"), *others])
    finish(tmp_path, 6)
    assert recompute(tmp_path).warnings == ()


def test_an_unfinished_evaluation_says_how_far_it_is(tmp_path: Path, make_rollout: MakeRollout) -> None:
    save(tmp_path, "eval", evaluation(make_rollout, 2)[:-1])
    assert recompute(tmp_path).warnings == ("evaluation is not finished: 3 of at least 4 sessions",)
    for number in range(5):
        (tmp_path / "tasks" / "heldout" / f"t{number}").mkdir(parents=True)
    assert recompute(tmp_path).warnings == ("evaluation is not finished: 3 of 10 sessions",)


def test_what_a_kill_left_half_written_is_neither_a_session_nor_a_task(
    tmp_path: Path, make_rollout: MakeRollout
) -> None:
    save(tmp_path, "eval", evaluation(make_rollout, 2)[:-1])
    for number in range(2):
        (tmp_path / "tasks" / "heldout" / f"t{number}").mkdir(parents=True)
    (tmp_path / "eval" / ".base-t1-a0.json.abcdefgh.tmp").write_text("{")
    (tmp_path / "tasks" / "heldout" / ".t2.abcdefgh.tmp").mkdir()
    assert recompute(tmp_path).warnings == ("evaluation is not finished: 3 of 4 sessions",)


def test_sessions_that_went_missing_after_the_end_are_counted(tmp_path: Path, make_rollout: MakeRollout) -> None:
    save(tmp_path, "eval", evaluation(make_rollout, 3)[:-1])
    finish(tmp_path, 6)
    missing, uneven = recompute(tmp_path).warnings
    assert missing == "the evaluation had 6 sessions and 5 are here: 1 missing"
    assert uneven == "1 of 6 combinations of policy, task and attempt have no session"
    finish(tmp_path, 4)
    assert "more than were planned" in recompute(tmp_path).warnings[0]


@pytest.mark.parametrize("note", [b"", b"[]", b'{"sessions": "6"}', b'{"sessions": 0}', b"[" * 200_000])
def test_a_damaged_note_of_the_end_is_named(tmp_path: Path, make_rollout: MakeRollout, note: bytes) -> None:
    save(tmp_path, "eval", evaluation(make_rollout, 1))
    finish(tmp_path, 2)
    (tmp_path / ".done" / "evaluate").write_bytes(note)
    with pytest.raises(RunError, match=r"\.done/evaluate"):
        recompute(tmp_path)


def test_two_policies_under_one_label_are_refused(tmp_path: Path, make_rollout: MakeRollout) -> None:
    one, other = make_rollout("final", "a"), replace(make_rollout("final", "b"), policy="run-pi-v9")
    save(tmp_path, "eval", [one, other])
    with pytest.raises(RunError, match=rf"{one.id}\.json but run-pi-v9 in eval/{other.id}\.json"):
        recompute(tmp_path)


@pytest.mark.parametrize("outcome", [Outcome.GRADED, Outcome.AGENT_FAULT])
def test_two_results_of_one_attempt_are_refused(tmp_path: Path, make_rollout: MakeRollout, outcome: Outcome) -> None:
    one, other = make_rollout("base", "a"), make_rollout("base", "a", outcome=outcome)
    save(tmp_path, "eval", [one, other])
    with pytest.raises(RunError, match=rf"{one.id}\.json and eval/{other.id}\.json"):
        recompute(tmp_path)
    save(tmp_path, "eval", [replace(other, tags={**other.tags, "attempt": "1"})])
    assert recompute(tmp_path).comparison.splits[0].policies[0].rollouts == 2


def test_a_file_under_another_rollouts_name_is_refused(tmp_path: Path, make_rollout: MakeRollout) -> None:
    rollout = make_rollout()
    save(tmp_path, "eval", [rollout])
    (tmp_path / "eval" / f"{rollout.id}.json").rename(tmp_path / "eval" / "copy.json")
    with pytest.raises(RunError, match=rf"copy\.json holds the rollout '{rollout.id}'"):
        recompute(tmp_path)


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
        b"[" * 200_000,
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
