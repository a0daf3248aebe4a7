"""Pooling over runs: each run weighs the same, a task in every run counts once, and what is missing is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_samples import session, sessions_of, solved

from harness_adapters.evaluation.compare import compare_sessions
from harness_adapters.evaluation.evaluated import Evaluated
from harness_adapters.evaluation.pooling import PooledPair, PooledSplit, pool
from harness_adapters.records import Outcome


def only_split(runs: dict[int, list[Evaluated]]) -> PooledSplit:
    (split,) = pool(runs)
    return split


def pair_of(split: PooledSplit, new: str, old: str) -> PooledPair:
    return next(pair for pair in split.pairs if (pair.new, pair.old) == (new, old))


def run(**results: list[tuple[bool, int]]) -> list[Evaluated]:
    return list(sessions_of(results))


def test_differences_are_means_over_runs_and_tasks() -> None:
    split = only_split(
        {
            1: run(warm=solved(4, 10), final=solved(8, 10)),
            2: run(warm=solved(5, 10), final=solved(5, 10)),
            7: run(warm=solved(6, 10), final=solved(5, 10)),
        }
    )
    pair = pair_of(split, "final", "warm")
    assert split.seeds == (1, 2, 7)
    assert pair.solved.by_run == pytest.approx((0.4, 0.0, -0.1))
    assert pair.solved.adapters.difference == pytest.approx(0.1)
    assert (pair.tasks, pair.unpaired, pair.solved_by_any) == (10, 0, 8)
    final = split.policies[1]
    assert final.solved == pytest.approx(0.6)
    assert final.by_run == pytest.approx((0.8, 0.5, 0.5))
    assert (final.tasks, final.sessions, final.missing) == (10, 30, 0)


def test_the_interval_counts_tasks_and_not_sessions() -> None:
    """Three runs that did exactly the same tell no more of tasks like these than one of them does."""
    once = run(base=solved(3, 40), final=solved(9, 40))
    one, three = only_split({1: once}), only_split({1: once, 2: once, 3: once})
    assert pair_of(three, "final", "base").solved.adapters == pair_of(one, "final", "base").solved.adapters
    assert three.policies[1].interval == one.policies[1].interval


def test_a_claim_needs_all_runs_on_one_side() -> None:
    base = solved(5, 40)
    agree = only_split({seed: run(base=base, final=solved(count, 40)) for seed, count in ((1, 30), (2, 30), (3, 7))})
    one_against = only_split(
        {seed: run(base=base, final=solved(count, 40)) for seed, count in ((1, 40), (2, 40), (3, 4))}
    )
    one_on_zero = only_split(
        {seed: run(base=base, final=solved(count, 40)) for seed, count in ((1, 40), (2, 40), (3, 5))}
    )
    assert pair_of(agree, "final", "base").solved.claimed
    for split in (one_against, one_on_zero):
        effect = pair_of(split, "final", "base").solved
        assert effect.adapters.significant
        assert not effect.claimed


def test_one_run_gives_the_numbers_of_its_own_comparison() -> None:
    sessions = run(base=solved(3, 20, 4), warm=solved(9, 20, 3), final=solved(15, 20, 2))
    pooled = only_split({5: sessions})
    (alone,) = compare_sessions(sessions, harness="pi", confidence=0.95).splits
    for mine, theirs in zip(pooled.policies, alone.policies, strict=True):
        assert (mine.label, mine.solved, mine.interval) == (theirs.label, theirs.solved, theirs.interval)
        assert (mine.tool_calls, mine.tokens) == (theirs.tool_calls, theirs.tokens)
    for mine_pair, their_pair in zip(pooled.pairs, alone.pairs, strict=True):
        assert mine_pair.solved.adapters == their_pair.solved
        assert mine_pair.calls.effect.adapters == their_pair.calls.effect
        assert mine_pair.calls.percent == their_pair.calls.percent
        assert mine_pair.solved.further is None
        assert mine_pair.calls.effect.further is None


def test_tool_calls_are_compared_where_both_solved_in_the_same_run() -> None:
    split = only_split(
        {
            1: run(warm=[(True, 4), (True, 3), (False, 1)], final=[(True, 2), (True, 3), (True, 9)]),
            2: run(warm=[(True, 6), (False, 1), (True, 1)], final=[(True, 2), (True, 1), (False, 1)]),
        }
    )
    calls = pair_of(split, "final", "warm").calls
    assert (calls.tasks, calls.meetings) == (2, 3)
    assert (calls.old, calls.new) == (4.0, 2.5)
    assert calls.effect.adapters.difference == pytest.approx(-1.5)
    assert calls.effect.by_run == pytest.approx((-1.0, -4.0))
    assert calls.effect.agree
    assert calls.effect.further is not None


def test_a_run_without_a_common_solved_task_is_left_out_of_the_calls() -> None:
    split = only_split(
        {1: run(warm=solved(5, 10), final=solved(5, 10)), 2: run(warm=solved(0, 10), final=solved(5, 10))}
    )
    calls = pair_of(split, "final", "warm").calls
    assert calls.effect.by_run == (0.0, None)
    assert calls.effect.further is None
    nobody = only_split({1: run(warm=solved(0, 10), final=solved(5, 10))})
    assert pair_of(nobody, "final", "warm").calls.tasks == 0


def test_a_task_that_one_run_has_no_valid_session_of_is_left_out_of_the_pairs_and_counted() -> None:
    lost = run(base=solved(2, 10), final=solved(6, 10))
    lost[3] = replace(lost[3], outcome=Outcome.INFRA, solved=False)
    split = only_split({1: run(base=solved(2, 10), final=solved(6, 10)), 2: lost})
    pair, base = pair_of(split, "final", "base"), split.policies[0]
    assert (pair.tasks, pair.unpaired) == (9, 1)
    assert (base.tasks, base.sessions, base.infra, base.missing) == (10, 19, 1, 1)
    both = only_split({1: lost, 2: lost})
    assert both.policies[0].tasks == 9
    assert (pair_of(both, "final", "base").tasks, both.policies[0].missing) == (9, 2)


def test_an_infra_session_and_its_retry_are_one_result() -> None:
    sessions = run(base=solved(2, 10), final=solved(6, 10))
    failed = replace(sessions[0], outcome=Outcome.INFRA, solved=False)
    split = only_split({1: [failed, *sessions]})
    assert (split.policies[0].infra, split.policies[0].missing, pair_of(split, "final", "base").tasks) == (1, 0, 10)


@pytest.mark.parametrize(("count", "difference"), [(0, 0.0), (30, 0.0)])
def test_where_nothing_or_everything_is_solved_nothing_is_certain_and_nothing_claimed(
    count: int, difference: float
) -> None:
    split = only_split({seed: run(warm=solved(count, 30), final=solved(count, 30)) for seed in (1, 2, 3)})
    pair = pair_of(split, "final", "warm")
    assert pair.solved.adapters.difference == difference
    assert pair.solved.adapters.interval is not None
    assert pair.solved.adapters.interval.low < 0 < pair.solved.adapters.interval.high
    assert pair.solved.further is not None
    assert pair.solved.further.low < 0 < pair.solved.further.high
    assert not pair.solved.claimed
    assert pair.calls.tasks == count
    assert not pair.calls.effect.claimed


def test_a_pair_without_a_common_task_has_no_numbers() -> None:
    sessions = [session("base", "a", True), session("final", "b", True)]
    pair = pair_of(only_split({1: sessions, 2: sessions}), "final", "base")
    assert (pair.tasks, pair.unpaired, pair.detectable) == (0, 2, None)
    assert pair.solved.by_run == (None, None)
    assert pair.solved.further is None
    assert not pair.solved.claimed


def test_a_policy_that_one_run_lacks_has_no_pair_to_compare() -> None:
    split = only_split({1: run(base=solved(2, 10), final=solved(6, 10)), 2: run(base=solved(2, 10))})
    pair = pair_of(split, "final", "base")
    assert pair.tasks == 0
    assert split.policies[1].by_run == (0.6, None)


def test_splits_stay_apart_and_a_run_that_lacks_one_has_no_place_in_it() -> None:
    unseen = list(sessions_of({"base": solved(0, 4), "final": solved(1, 4)}, split="unseen"))
    heldout = run(base=solved(2, 10), final=solved(6, 10))
    first, second = pool({1: [*unseen, *heldout], 2: heldout})
    assert (first.split, first.seeds, first.tasks) == ("heldout", (1, 2), 10)
    assert (second.split, second.seeds, second.tasks) == ("unseen", (1,), 4)


def test_families_have_shares_of_their_own_tasks() -> None:
    split = only_split({1: run(base=solved(0, 8), final=solved(2, 8)), 2: run(base=solved(0, 8), final=solved(1, 8))})
    shares = {family.family: (family.tasks, family.solved["final"]) for family in split.families}
    assert shares == {"f0": (2, 0.5), "f1": (2, 0.25), "f2": (2, 0.0), "f3": (2, 0.0)}


def test_attempts_are_averaged_before_runs_are() -> None:
    sessions = [
        *(session("base", "a", won, attempt=str(number)) for number, won in enumerate((True, False, False, False))),
        *(session("final", "a", won, attempt=str(number)) for number, won in enumerate((True, True, True, False))),
    ]
    assert pair_of(only_split({1: sessions, 2: sessions}), "final", "base").solved.adapters.difference == 0.5


outcomes = st.lists(st.tuples(*[st.tuples(st.booleans(), st.integers(0, 9))] * 3), min_size=12, max_size=12)


@settings(max_examples=60, deadline=None)
@given(runs=st.lists(outcomes, min_size=1, max_size=4), lost=st.sets(st.integers(0, 11), max_size=3))
def test_the_mean_over_runs_is_the_mean_over_tasks_and_their_order_is_nothing(
    runs: list[list[tuple[tuple[bool, int], ...]]], lost: set[int]
) -> None:
    by_seed = {}
    for seed, found in enumerate(runs):
        columns = dict(
            zip(("base", "warm", "final"), (list(column) for column in zip(*found, strict=True)), strict=True)
        )
        sessions = list(sessions_of(columns))
        for place in lost if seed == 0 else ():
            sessions[place] = replace(sessions[place], outcome=Outcome.INFRA)
        by_seed[seed] = sessions
    split = only_split(by_seed)
    turned = only_split({seed: by_seed[seed][::-1] for seed in reversed(by_seed)})
    for pair, other in zip(split.pairs, turned.pairs, strict=True):
        means = [mean for mean in pair.solved.by_run if mean is not None]
        assert len(means) == len(runs)
        assert pair.solved.adapters.difference == pytest.approx(sum(means) / len(means))
        assert pair.tasks == 12 - (len(lost) if "base" in (pair.new, pair.old) else 0)
        assert other.solved.adapters == pair.solved.adapters
        assert other.solved.by_run == pair.solved.by_run[::-1]
        assert other.detectable == pytest.approx(pair.detectable, abs=0.01)
        for effect in (pair.solved, pair.calls.effect):
            if effect.claimed:
                assert effect.adapters.interval is not None
                assert effect.adapters.interval.excludes(0.0)
                assert all((mean > 0) == (effect.adapters.difference > 0) for mean in effect.by_run if mean is not None)
