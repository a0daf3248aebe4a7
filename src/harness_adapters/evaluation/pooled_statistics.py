"""Statistics of a study: the same tasks evaluated under several training runs. Pure functions, numbers in and out.

Two questions, two random units. A task that appears in every run, and a run that has one adapter for all its tasks,
make the (run, task) results dependent both ways, so that they must not be counted one by one.

- *These very adapters, on tasks like these*: tasks are the random unit, runs are fixed. A task's differences are
  averaged over the runs first; `statistics.paired_share_difference` and `paired_mean_difference` take it from there.
- *Further training runs, on these tasks*: runs are the random unit, tasks are fixed (`across_runs`).

They are the analyses by items and by subjects that Clark (1973, J Verbal Learning and Verbal Behavior 12:335) keeps
apart; in machine learning, Dietterich (1998, Neural Computation 10:1895) and Bouthillier et al. (2021, Accounting for
variance in machine learning benchmarks, MLSys). Neither alone, nor both together, is an interval for further runs on
further tasks, which would be wider than either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness_adapters.evaluation.statistics import Interval, normal_quantile, t_quantile

_DRAWS = 20_000


def across_runs(means: Sequence[float], tasks: int, confidence: float = 0.95) -> Interval | None:
    """Student's t interval for the mean over training runs, from the means of those made; None for fewer than two.

    `means` are mean differences over the same or as many tasks. On k - 1 degrees of freedom: with three runs the
    critical value is 4.3, so the interval is wide. Means over tasks come on a grid and may be all equal; so the
    variance is not taken below what one further run, differing from the rest by one unit in one task, would have
    made it: 1 / (tasks^2 (k + 1)).
    """
    runs = len(means)
    if runs < 2:
        return None
    mean = math.fsum(means) / runs
    variance = max(float(np.var(means, ddof=1)), 1 / (tasks**2 * (runs + 1)))
    half = t_quantile(runs - 1, confidence) * math.sqrt(variance / runs)
    return Interval(mean - half, mean + half)


def same_direction(means: Sequence[float]) -> bool:
    """Whether every run's mean difference lies on the same side of zero, none on it."""
    return bool(means) and (all(mean > 0 for mean in means) or all(mean < 0 for mean in means))


def detectable_effect(
    differences: Sequence[Sequence[float]], *, confidence: float = 0.95, power: float = 0.8
) -> float | None:
    """The smallest true difference of solved shares, the same in every run, that a study like this would claim with
    probability `power`: its interval over tasks excludes zero and every run's mean has the sign.

    `differences[i][s]` is task i's difference in run s. The runs' means are taken as jointly normal, with the
    covariance seen over tasks and, as in the interval, two pseudo-tasks, one won and one lost in every run; no
    spread between runs is assumed beyond it. None where no difference could be claimed: at 95 %, fewer than six tasks.
    """
    tasks = len(differences)
    if tasks == 0 or 2 * 0.5**tasks > 1 - confidence:
        return None
    covariance = _covariance_of_means(np.array(differences, dtype=np.float64))
    noise = _normal_draws(covariance)
    mean = noise.mean(axis=1)
    needed_for_interval = normal_quantile(confidence) * math.sqrt(covariance.mean()) * (tasks + 2) / tasks - mean
    needed = np.maximum(needed_for_interval, -noise.min(axis=1))
    effect = max(0.0, float(np.quantile(needed, power)))
    return effect if effect <= 1 else None


def _covariance_of_means(differences: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Covariance of the runs' means over tasks, runs x runs. The mean of all its entries is the squared standard
    error that `paired_share_difference` uses for the tasks' means over runs."""
    tasks, runs = differences.shape
    centre = differences.sum(axis=0) / (tasks + 2)
    second = (differences.T @ differences + 2 * np.ones((runs, runs))) / (tasks + 2)
    covariance: npt.NDArray[np.float64] = (second - np.outer(centre, centre)) / (tasks + 2)
    return covariance


def _normal_draws(covariance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Draws x runs from a centred normal distribution, always the same ones, so that a report comes out equal."""
    values, vectors = np.linalg.eigh(covariance)
    standard = np.random.default_rng(0).standard_normal((_DRAWS, len(values)))
    draws: npt.NDArray[np.float64] = standard @ (vectors * np.sqrt(np.clip(values, 0.0, None))).T
    return draws
