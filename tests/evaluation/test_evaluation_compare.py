"""From rollouts to numbers: what counts, what is left out, and that the task is the unit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evaluation_samples import MakeRollout

from harness_adapters.errors import RunError
from harness_adapters.evaluation.compare import PairComparison, SplitComparison, compare
from harness_adapters.records import Decision, Outcome, Rollout, Verdict

BLOCK = Verdict("c", Decision.BLOCK, "outside-cwd", "reads outside")


def only_split(rollouts: list[Rollout]) -> SplitComparison:
    (split,) = compare(rollouts).splits
    return split


def pair(split: SplitComparison, new: str, old: str) -> PairComparison:
    return next(pair for pair in split.pairs if (pair.new, pair.old) == (new, old))


def test_wins_losses_and_calls_are_counted_on_the_right_tasks(make_rollout: MakeRollout) -> None:
    table = {"a": (False, True), "b": (False, True), "c": (True, False), "d": (True, True), "e": (False, False)}
    rollouts = []
    for task, (before, after) in table.items():
        rollouts += [make_rollout("base", task, before, 5), make_rollout("final", task, after, 2)]
    found = pair(only_split(rollouts), "final", "base")
    assert (found.tasks, found.wins, found.losses, found.both_solved) == (5, 2, 1, 1)
    assert found.solved.difference == pytest.approx(0.2)
    assert (found.calls.tasks, found.calls.old, found.calls.new, found.calls.effect.difference) == (1, 5.0, 2.0, -3.0)
    assert found.calls.percent is not None
    assert found.calls.percent.value == pytest.approx(-60)


def test_infra_and_cancelled_rollouts_are_left_out_and_counted(make_rollout: MakeRollout) -> None:
    rollouts = [
        make_rollout("base", "a", True),
        make_rollout("final", "a", outcome=Outcome.INFRA),
        make_rollout("base", "b", False),
        make_rollout("final", "b", True),
        make_rollout("base", "c", outcome=Outcome.CANCELLED),
        make_rollout("final", "c", outcome=Outcome.AGENT_FAULT),
    ]
    split = only_split(rollouts)
    base, final = split.policies
    assert (base.tasks, base.infra, base.cancelled, base.missing) == (2, 0, 1, 1)
    assert (final.tasks, final.infra, final.missing, final.solved) == (2, 1, 1, 0.5)
    found = pair(split, "final", "base")
    assert (split.tasks, found.tasks, found.unpaired, found.wins) == (3, 1, 2, 1)


def test_an_agent_fault_counts_as_not_solved_and_a_blocked_rollout_too(make_rollout: MakeRollout) -> None:
    rollouts = [
        make_rollout("base", "a", outcome=Outcome.AGENT_FAULT, ended_by="crash"),
        make_rollout("base", "b", True, verdicts=[BLOCK]),
        make_rollout("base", "c", True),
    ]
    (base,) = only_split(rollouts).policies
    assert base.solved == pytest.approx(1 / 3)
    assert base.blocked == 1
    assert base.ended_by == {"stop": 2, "crash": 1}


def test_attempts_are_averaged_before_tasks_are_compared(make_rollout: MakeRollout) -> None:
    rollouts = [make_rollout("base", "a", solved, calls) for solved, calls in ((True, 4), (True, 6), (False, 30))]
    rollouts += [make_rollout("final", "a", True, 3) for _ in range(9)]
    rollouts += [make_rollout("base", "b", False, 1), make_rollout("final", "b", False, 1)]
    split = only_split(rollouts)
    base, final = split.policies
    assert (base.tasks, base.rollouts, final.tasks, final.rollouts) == (2, 4, 2, 10)
    assert base.solved == pytest.approx(1 / 3)
    assert final.solved == pytest.approx(1 / 2)
    found = pair(split, "final", "base")
    assert found.solved.pairs == 2
    assert found.solved.difference == pytest.approx(1 / 6)
    assert (found.calls.old, found.calls.new) == (5.0, 3.0)


def test_splits_are_never_pooled_and_held_out_comes_first(make_rollout: MakeRollout) -> None:
    rollouts = [make_rollout("base", "t", split=split) for split in ("unseen", "extra", "heldout")]
    assert [split.split for split in compare(rollouts).splits] == ["heldout", "extra", "unseen"]
    assert all(split.tasks == 1 for split in compare(rollouts).splits)


def test_policies_stand_in_order_and_an_absent_one_has_no_pair(make_rollout: MakeRollout) -> None:
    split = only_split([make_rollout(label, "t") for label in ("final", "v3", "base")])
    assert [policy.label for policy in split.policies] == ["base", "v3", "final"]
    assert [(pair.new, pair.old) for pair in split.pairs] == [("final", "base")]


def test_other_pairs_can_be_asked_for(make_rollout: MakeRollout) -> None:
    rollouts = [make_rollout(label, "t") for label in ("v1", "v2")]
    (split,) = compare(rollouts, pairs=[("v2", "v1")]).splits
    assert [(pair.new, pair.old) for pair in split.pairs] == [("v2", "v1")]


def test_a_policy_without_a_valid_rollout_has_no_numbers(make_rollout: MakeRollout) -> None:
    split = only_split([make_rollout("base", "a"), make_rollout("final", "a", outcome=Outcome.INFRA)])
    final = split.policies[1]
    assert (final.solved, final.interval, final.tool_calls, final.tokens) == (None, None, None, None)
    assert pair(split, "final", "base").solved.interval is None


def test_no_rollouts_make_an_empty_comparison() -> None:
    assert compare([]).splits == ()


def test_what_cannot_be_compared_is_refused(make_rollout: MakeRollout) -> None:
    with pytest.raises(RunError, match="has no tag 'policy_label'"):
        compare([make_rollout(tags={"split": "heldout"})])
    with pytest.raises(RunError, match="has no tag 'split'"):
        compare([make_rollout(tags={"policy_label": "base"})])
    twice = make_rollout()
    with pytest.raises(RunError, match="appears twice"):
        compare([twice, twice])
    with pytest.raises(RunError, match="several harnesses: opencode, pi"):
        compare([make_rollout(), replace(make_rollout(), harness="opencode")])
