"""The statistics: published worked examples, agreement with scipy, and coverage by simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness_adapters.evaluation.statistics import (
    discordant_share,
    mcnemar_exact,
    minimum_detectable_effect,
    normal_quantile,
    paired_mean_difference,
    paired_share_difference,
    percent_change,
    randomisation_p,
    t_quantile,
    wilson_interval,
)

ONE, ZERO = Fraction(1), Fraction(0)


def outcomes(wins: int, losses: int, pairs: int) -> list[Fraction]:
    return [ONE] * wins + [-ONE] * losses + [ZERO] * (pairs - wins - losses)


def whole(values: list[int]) -> list[Fraction]:
    return [Fraction(value) for value in values]


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_worked_examples_of_newcombe_1998(successes: int, total: int, low: float, high: float) -> None:
    """Newcombe (1998), Stat Med 17:857, table I, method 3."""
    interval = wilson_interval(successes, total)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


@settings(max_examples=60, deadline=None)
@given(total=st.integers(1, 300), data=st.data(), confidence=st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_agrees_with_scipy(total: int, data: st.DataObject, confidence: float) -> None:
    successes = data.draw(st.integers(0, total))
    expected = stats.binomtest(successes, total).proportion_ci(confidence, method="wilson")
    interval = wilson_interval(successes, total, confidence)
    assert interval.low == pytest.approx(expected.low, abs=1e-9)
    assert interval.high == pytest.approx(expected.high, abs=1e-9)


@pytest.mark.parametrize(("successes", "total"), [(0, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_share(successes: int, total: int) -> None:
    with pytest.raises(ValueError, match="a share needs"):
        wilson_interval(successes, total)


@pytest.mark.parametrize(
    ("wins", "losses", "pairs", "low", "high"),
    [(26, 4, 48, 0.2548067, 0.6251933), (1, 7, 21, -0.508, -0.013)],
)
def test_the_paired_interval_gives_published_worked_examples(
    wins: int, losses: int, pairs: int, low: float, high: float
) -> None:
    """First: the example of `ci.prop.ps` in Bonett's R package statpsych. Second: the airway data (1, 1, 7, 12) in
    Fagerland, Lydersen and Laake (2014), Bonett-Price interval."""
    interval = paired_share_difference(outcomes(wins, losses, pairs)).interval
    assert interval is not None
    digits = len(str(high).split(".")[1])
    assert (round(interval.low, digits), round(interval.high, digits)) == (low, high)


@pytest.mark.parametrize("pairs", [12, 40, 80])
@pytest.mark.parametrize(
    ("gain", "churn"),
    [(0.0, 0.02), (0.0, 0.2), (0.0, 0.5), (0.1, 0.05), (0.3, 0.1), (0.6, 0.1), (0.9, 0.0), (0.97, 0.01)],
)
def test_the_paired_interval_covers_the_truth(pairs: int, gain: float, churn: float) -> None:
    """Exact coverage, summed over every table that `pairs` tasks can give: at least 93.5 % for a nominal 95 %."""
    won, lost = gain + churn / 2, churn / 2
    covered = 0.0
    for wins in range(pairs + 1):
        losses = np.arange(pairs - wins + 1)
        chances = stats.binom.pmf(wins, pairs, won) * stats.binom.pmf(losses, pairs - wins, min(1.0, lost / (1 - won)))
        for count, chance in zip(losses, chances, strict=True):
            if chance > 1e-6:
                interval = paired_share_difference(outcomes(wins, int(count), pairs)).interval
                assert interval is not None
                covered += chance * (interval.low <= gain <= interval.high)
    assert covered >= 0.935


@pytest.mark.parametrize("attempts", [2, 8])
@pytest.mark.parametrize("shift", [0.0, 0.15])
def test_the_paired_interval_covers_the_truth_for_task_means_of_several_attempts(attempts: int, shift: float) -> None:
    rng = np.random.default_rng(attempts)
    covered = 0
    for _ in range(600):
        easy = rng.beta(0.6, 0.6, 40)
        new = rng.binomial(attempts, easy * (1 - shift) + shift)
        old = rng.binomial(attempts, easy)
        differences = [Fraction(int(a - b), attempts) for a, b in zip(new, old, strict=True)]
        interval = paired_share_difference(differences).interval
        assert interval is not None
        covered += interval.low <= shift / 2 <= interval.high
    assert covered / 600 >= 0.93


@settings(max_examples=100, deadline=None)
@given(wins=st.integers(0, 60), losses=st.integers(0, 60), ties=st.integers(0, 60), confidence=st.floats(0.51, 0.999))
def test_the_paired_interval_holds_its_estimate_and_mirrors(
    wins: int, losses: int, ties: int, confidence: float
) -> None:
    pairs = wins + losses + ties
    effect = paired_share_difference(outcomes(wins, losses, pairs), confidence)
    mirrored = paired_share_difference(outcomes(losses, wins, pairs), confidence)
    if pairs == 0:
        assert effect.interval is None
        assert not effect.significant
        return
    assert effect.interval is not None
    assert mirrored.interval is not None
    assert -1 <= effect.interval.low <= effect.difference <= effect.interval.high <= 1
    assert mirrored.interval.low == pytest.approx(-effect.interval.high)
    assert mirrored.p == effect.p


@settings(max_examples=80, deadline=None)
@given(wins=st.integers(0, 40), losses=st.integers(0, 40), ties=st.integers(0, 5))
def test_the_exact_test_is_mcnemars_for_one_attempt(wins: int, losses: int, ties: int) -> None:
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar_exact(wins, losses) == pytest.approx(expected)
    assert randomisation_p(outcomes(wins, losses, wins + losses + ties)) == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(differences=st.lists(st.fractions(-3, 3, max_denominator=6), min_size=1, max_size=9))
def test_the_exact_test_counts_every_pattern_of_signs(differences: list[Fraction]) -> None:
    observed = abs(sum(differences, ZERO))
    sums = [ZERO]
    for difference in differences:
        sums = [total + sign * difference for total in sums for sign in (1, -1)]
    assert randomisation_p(differences) == pytest.approx(sum(abs(total) >= observed for total in sums) / len(sums))


def test_a_tiny_sample_never_shows_a_difference() -> None:
    assert not paired_share_difference(outcomes(5, 0, 5)).significant
    assert paired_share_difference(outcomes(6, 0, 6)).significant
    assert not paired_mean_difference(whole([5] * 5), whole([1] * 5)).significant
    assert paired_mean_difference(whole([5] * 6), whole([1] * 6)).significant


@pytest.mark.parametrize("pairs", [8, 40])
@pytest.mark.parametrize("discordant", [0.05, 0.4, 1.0])
def test_no_difference_is_claimed_more_than_one_time_in_twenty_where_there_is_none(
    pairs: int, discordant: float
) -> None:
    claimed = 0.0
    for wins in range(pairs + 1):
        for losses in range(pairs - wins + 1):
            chance = stats.multinomial.pmf(
                [wins, losses, pairs - wins - losses], pairs, [discordant / 2] * 2 + [1 - discordant]
            )
            if chance > 1e-9 and paired_share_difference(outcomes(wins, losses, pairs)).significant:
                claimed += chance
    assert claimed <= 0.05


@settings(max_examples=60, deadline=None)
@given(degrees=st.integers(1, 400), confidence=st.floats(0.5, 0.999))
def test_t_quantiles_agree_with_scipy(degrees: int, confidence: float) -> None:
    assert t_quantile(degrees, confidence) == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees), rel=1e-7)


def test_normal_quantile_is_the_familiar_one() -> None:
    assert normal_quantile(0.95) == pytest.approx(1.959963985)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=30))
def test_the_mean_difference_is_the_paired_t_interval_where_the_data_vary(pairs: list[tuple[int, int]]) -> None:
    old, new = zip(*pairs, strict=True)
    effect = paired_mean_difference(whole(list(old)), whole(list(new)))
    differences = np.array(new) - np.array(old)
    assert effect.interval is not None
    assert effect.difference == pytest.approx(differences.mean())
    half = (effect.interval.high - effect.interval.low) / 2
    least = t_quantile(len(pairs) - 1, 0.95) * math.sqrt(1 / (len(pairs) + 1) / len(pairs))
    if differences.var(ddof=1) >= 1 / (len(pairs) + 1):
        expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
        assert (effect.interval.low, effect.interval.high) == pytest.approx((expected.low, expected.high))
    else:
        assert half == pytest.approx(least)


def test_equal_counts_do_not_make_a_certainty() -> None:
    few, many = (paired_mean_difference(whole([4] * n), whole([3] * n)).interval for n in (6, 100))
    assert few is not None
    assert many is not None
    assert few.high - few.low > 0.6
    assert 0 < many.high - many.low < 0.1


def test_a_single_pair_has_no_interval_and_none_has_no_change() -> None:
    effect = paired_mean_difference([Fraction(3)], [Fraction(1)])
    assert (effect.difference, effect.interval, effect.significant) == (-2.0, None, False)
    change = percent_change([Fraction(4)], [Fraction(1)])
    assert change is not None
    assert (change.value, change.interval) == (-75.0, None)
    assert percent_change([], []) is None
    assert percent_change([ZERO, ZERO], [ONE, ONE]) is None


@pytest.mark.parametrize("pairs", [5, 10, 25])
def test_call_differences_and_percent_cover_the_truth_for_counts_like_tool_calls(pairs: int) -> None:
    """Counts of one or more, correlated by task and skewed, as tool calls on solved tasks are."""
    rng = np.random.default_rng(pairs)
    covered = covered_percent = 0
    runs = 600
    for _ in range(runs):
        need = rng.integers(1, 4, pairs)
        old = need + rng.poisson(1.5, pairs)
        new = need + rng.poisson(0.9, pairs)
        before, after = whole(old.tolist()), whole(new.tolist())
        interval = paired_mean_difference(before, after).interval
        assert interval is not None
        covered += interval.low <= -0.6 <= interval.high
        change = percent_change(before, after)
        assert change is not None
        truth = 100 * (2.9 / 3.5 - 1)
        covered_percent += change.interval is None or change.interval.low <= truth <= change.interval.high
    assert covered / runs >= 0.925
    assert covered_percent / runs >= 0.925


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=2, max_size=20))
def test_difference_and_percent_never_tell_different_stories(pairs: list[tuple[int, int]]) -> None:
    old, new = (whole(list(side)) for side in zip(*pairs, strict=True))
    effect, change = paired_mean_difference(old, new), percent_change(old, new)
    assert effect.interval is not None
    assert change is not None
    if change.interval is not None and min(abs(effect.interval.low), abs(effect.interval.high)) > 1e-9:
        assert change.interval.excludes(0.0) == effect.interval.excludes(0.0)
        assert change.interval.low <= change.value <= change.interval.high


@pytest.mark.parametrize(("pairs", "discordant"), [(12, 0.2), (40, 0.05), (40, 0.2), (40, 0.5), (150, 0.1), (150, 0.3)])
def test_the_detectable_difference_is_shown_four_times_in_five(pairs: int, discordant: float) -> None:
    detectable = minimum_detectable_effect(pairs, discordant)
    assert detectable is not None
    share = max(discordant, detectable)
    won, lost = (share + detectable) / 2, (share - detectable) / 2
    rng = np.random.default_rng(pairs)
    shown = 0
    for wins, losses, _ in rng.multinomial(pairs, [won, lost, max(0.0, 1 - won - lost)], size=3000):
        shown += wins > losses and mcnemar_exact(int(wins), int(losses)) <= 0.05
    assert shown / 3000 == pytest.approx(0.8, abs=0.025)


def test_the_detectable_difference_shrinks_with_the_sample_and_grows_with_the_noise() -> None:
    by_pairs = [minimum_detectable_effect(pairs, 0.2) or math.inf for pairs in (6, 12, 40, 150)]
    assert by_pairs == sorted(by_pairs, reverse=True)
    by_noise = [minimum_detectable_effect(40, discordant) or 0.0 for discordant in (0.1, 0.3, 0.6, 0.9)]
    assert by_noise == sorted(by_noise)


def test_a_large_effect_does_not_count_as_noise() -> None:
    one_sided = discordant_share(outcomes(24, 0, 40))
    detectable = minimum_detectable_effect(40, one_sided, 0.6)
    assert detectable is not None
    assert detectable < 0.25


@pytest.mark.parametrize("pairs", [0, 1, 5])
def test_under_six_tasks_nothing_is_detectable(pairs: int) -> None:
    assert minimum_detectable_effect(pairs, 0.3) is None
    assert minimum_detectable_effect(6, 0.3) is not None


def test_a_sample_of_a_thousand_tasks_is_computed_without_overflow() -> None:
    detectable = minimum_detectable_effect(1350, 0.2)
    assert detectable is not None
    assert 0.03 < detectable < 0.04
