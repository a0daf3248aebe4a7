"""The two intervals of a study keep their level on simulated studies, each for the question it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness_adapters.evaluation.pooled_statistics import across_runs, detectable_effect, same_direction
from harness_adapters.evaluation.statistics import PairedEffect, paired_share_difference

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """How studies come about, in log-odds: every task has a difficulty and an effect of training that all runs share;
    every run has an effect of its own, and one on each task."""

    tasks: int = 100
    runs: int = 3
    gain: float = 0.0
    difficulty: float = 2.0
    by_task: float = 0.0
    by_run: float = 0.0
    by_both: float = 0.0


WORLDS = {
    "nothing but chance": World(),
    "runs differ": World(by_run=0.6),
    "runs and tasks differ": World(gain=0.7, by_task=1.0, by_run=0.5, by_both=0.5),
    "training does the same to a task in every run": World(tasks=60, gain=0.5, difficulty=1.0, by_task=4.0),
    "few tasks": World(tasks=40, gain=1.0, difficulty=3.0, by_task=2.0, by_run=0.8),
    "five runs": World(runs=5, gain=0.4, by_task=0.5, by_run=0.5),
    "hardly anything is solved": World(tasks=40, gain=0.5, difficulty=0.5, by_task=0.5, by_run=0.3),
}


class Simulated:
    """One study drawn from a world, with the truths that its intervals are about."""

    def __init__(self, world: World, rng: np.random.Generator, *, easiness: float = 0.0) -> None:
        population = rng.normal(easiness, world.difficulty, 4000)
        effect = world.gain + rng.normal(0, world.by_task, 4000)
        own = rng.normal(0, world.by_run, world.runs)
        each = rng.normal(0, world.by_both, (4000, world.runs))
        chance = _share(population[:, None] + effect[:, None] + own + each)
        drawn = rng.integers(0, 4000, world.tasks)
        before = _share(population[drawn])[:, None]
        new = rng.random((world.tasks, world.runs)) < chance[drawn]
        old = rng.random((world.tasks, world.runs)) < before
        self.differences: Floats = new.astype(float) - old.astype(float)
        self.of_these_adapters = float((chance - _share(population)[:, None]).mean())
        further = rng.normal(0, world.by_run, 500) + rng.normal(0, world.by_both, (world.tasks, 500))
        later = _share((population + effect)[drawn][:, None] + further)
        self.over_further_runs = float((later - before).mean())

    def over_tasks(self) -> PairedEffect:
        runs = self.differences.shape[1]
        return paired_share_difference([Fraction(int(row.sum()), runs) for row in self.differences])

    def one_by_one(self) -> PairedEffect:
        """What would come out if every (run, task) result were taken to stand alone."""
        return paired_share_difference([Fraction(int(value)) for value in self.differences.ravel()])


def _share(log_odds: Floats) -> Floats:
    shares: Floats = 1 / (1 + np.exp(-log_odds))
    return shares


def holds(interval: object, value: float) -> bool:
    assert hasattr(interval, "low")
    assert hasattr(interval, "high")
    return bool(interval.low <= value <= interval.high)


@pytest.mark.parametrize("name", WORLDS)
def test_each_interval_covers_what_it_is_about(name: str) -> None:
    world = WORLDS[name]
    rng = np.random.default_rng(list(WORLDS).index(name))
    easiness = -4.0 if name == "hardly anything is solved" else 0.0
    studies = [Simulated(world, rng, easiness=easiness) for _ in range(500)]
    over_tasks = np.mean([holds(study.over_tasks().interval, study.of_these_adapters) for study in studies])
    further = np.mean(
        [
            holds(across_runs(study.differences.mean(axis=0).tolist(), world.tasks), study.over_further_runs)
            for study in studies
        ]
    )
    assert over_tasks >= 0.93
    assert further >= 0.925
    if world.difficulty >= 2 and not world.by_both:
        assert further <= 0.975, "an interval that always covers says nothing"


def test_counting_every_result_as_if_it_stood_alone_would_not_cover() -> None:
    """The fault that pooling by task avoids; were this not so, the test above could not tell the two apart."""
    rng = np.random.default_rng(7)
    world = WORLDS["training does the same to a task in every run"]
    studies = [Simulated(world, rng) for _ in range(500)]
    alone = np.mean([holds(study.one_by_one().interval, study.of_these_adapters) for study in studies])
    pooled = np.mean([holds(study.over_tasks().interval, study.of_these_adapters) for study in studies])
    assert alone < 0.9
    assert pooled >= 0.93


@pytest.mark.parametrize("runs", [1, 3])
def test_where_training_does_nothing_a_difference_is_claimed_less_than_one_time_in_twenty(runs: int) -> None:
    rng = np.random.default_rng(runs)
    studies = [Simulated(World(tasks=60, runs=runs, difficulty=1.0), rng) for _ in range(800)]
    claimed = [
        study.over_tasks().significant and same_direction(study.differences.mean(axis=0).tolist()) for study in studies
    ]
    assert np.mean(claimed) <= 0.05


@pytest.mark.parametrize(("tasks", "runs", "difficulty"), [(100, 3, 1.0), (40, 3, 0.3), (100, 1, 1.0), (100, 5, 3.0)])
def test_the_detectable_effect_is_claimed_four_times_in_five(tasks: int, runs: int, difficulty: float) -> None:
    """Studies are drawn in which training adds just the effect that one like them calls detectable."""
    rng = np.random.default_rng(tasks + runs)
    log_odds = rng.normal(0, difficulty, 4000)

    def draw(effect: float) -> Floats:
        old_share = np.clip(_share(log_odds[rng.integers(0, 4000, tasks)]), 0, 1 - effect)[:, None]
        new, old = rng.random((tasks, runs)) < old_share + effect, rng.random((tasks, runs)) < old_share
        return new.astype(float) - old.astype(float)

    effect = float(np.median([detectable_effect(draw(0.1).tolist()) or math.nan for _ in range(40)]))
    claimed = 0
    for _ in range(1000):
        differences = draw(effect)
        pooled = paired_share_difference([Fraction(int(row.sum()), runs) for row in differences])
        claimed += pooled.significant and pooled.difference > 0 and bool((differences.mean(axis=0) > 0).all())
    assert claimed / 1000 == pytest.approx(0.8, abs=0.06)


def test_the_detectable_effect_shrinks_with_tasks_and_runs() -> None:
    rng = np.random.default_rng(1)

    def effect(tasks: int, runs: int) -> float:
        return detectable_effect(rng.integers(-1, 2, (tasks, runs)).tolist()) or math.inf

    assert effect(25, 3) > effect(100, 3) > effect(400, 3)
    assert effect(100, 1) > effect(100, 3)
    assert effect(100, 3) < 0.2


@pytest.mark.parametrize("tasks", [0, 1, 5])
def test_under_six_tasks_nothing_is_detectable(tasks: int) -> None:
    assert detectable_effect([[1.0, 0.0, -1.0]] * tasks) is None
    assert detectable_effect([[0.0, 0.0, 0.0]] * 6) is not None


def test_the_detectable_effect_of_one_study_is_always_the_same() -> None:
    differences = np.random.default_rng(3).integers(-1, 2, (50, 3)).tolist()
    assert detectable_effect(differences) == detectable_effect(differences)


@settings(max_examples=80, deadline=None)
@given(
    means=st.lists(st.floats(-1, 1).map(lambda value: round(value, 2)), min_size=2, max_size=8),
    tasks=st.integers(1, 200),
)
def test_the_interval_across_runs_is_students_where_the_means_vary(means: list[float], tasks: int) -> None:
    interval = across_runs(means, tasks)
    assert interval is not None
    assert interval.low <= np.mean(means) <= interval.high
    floor = 1 / (tasks**2 * (len(means) + 1))
    if np.var(means, ddof=1) >= floor:
        expected = stats.ttest_1samp(means, 0).confidence_interval(0.95)
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    else:
        half = stats.t.ppf(0.975, len(means) - 1) * math.sqrt(floor / len(means))
        assert (interval.high - interval.low) / 2 == pytest.approx(half)


def test_one_run_says_nothing_of_further_ones_and_equal_runs_are_no_certainty() -> None:
    assert across_runs([], 100) is None
    assert across_runs([0.3], 100) is None
    equal = across_runs([0.0, 0.0, 0.0], 100)
    assert equal is not None
    assert equal.low < 0 < equal.high < 0.02


def test_runs_agree_only_where_none_stands_on_zero_or_beyond() -> None:
    assert same_direction([0.1, 0.2])
    assert same_direction([-0.1, -0.2])
    assert not same_direction([0.1, 0.0])
    assert not same_direction([0.1, -0.1])
    assert not same_direction([])
