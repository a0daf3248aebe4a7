"""Paired statistics: what a comparison of two policies on the same tasks may claim. Pure functions, numbers in and out.

Invariants
- The task is the unit. Several attempts at a task are averaged before anything here sees them.
- A difference is only significant when its interval excludes zero *and* an exact test agrees; where an approximation
  and the exact test differ, the cautious answer wins.
- Shares and differences of shares are fractions in [0, 1] and [-1, 1]; "points" are made where they are printed.

Asymmetry: the difference of solved shares has an adjusted Wald interval, because shares are bounded and often all
equal; the difference of means has a t interval. Both share one exact test, of which McNemar's is the special case
of one attempt a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

_FINEST_GRID = 2520


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval; either end may be infinite."""

    low: float
    high: float

    def excludes(self, value: float) -> bool:
        return value < self.low or value > self.high


@dataclass(frozen=True, slots=True)
class PairedEffect:
    """A mean difference over pairs (new minus old), its interval and the p-value of the exact test.

    `interval` is None where the sample is too small for one (no pairs; for means, fewer than two).
    """

    pairs: int
    difference: float
    interval: Interval | None
    p: float
    confidence: float

    @property
    def significant(self) -> bool:
        """Whether a difference may be claimed: the interval excludes zero and the exact test agrees."""
        return self.interval is not None and self.interval.excludes(0.0) and self.p <= 1 - self.confidence


@dataclass(frozen=True, slots=True)
class PercentChange:
    """Change of a mean in percent of the old mean; `interval` is None where the data do not bound it."""

    value: float
    interval: Interval | None


def normal_quantile(confidence: float) -> float:
    """Two-sided critical value of the standard normal distribution, 1.96 at 0.95."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def wilson_interval(successes: float, total: int, confidence: float = 0.95) -> Interval:
    """Score interval of a share (Wilson 1927, J Am Stat Assoc 22:209, eq. without continuity correction).

    `successes` may be fractional, the sum of task means over `total` tasks; a mean of attempts varies less than a
    single attempt, so the interval is then wider than need be, never narrower. Raises ValueError if `total` is 0 or
    `successes` lies outside [0, total].
    """
    if total < 1 or not 0 <= successes <= total:
        raise ValueError("a share needs 0 <= successes <= total and total >= 1")
    z = normal_quantile(confidence)
    share = successes / total
    centre = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return Interval(
        0.0 if successes == 0 else (centre - half) / scale, 1.0 if successes == total else (centre + half) / scale
    )


def paired_share_difference(differences: Sequence[Fraction], confidence: float = 0.95) -> PairedEffect:
    """Mean difference of solved shares over tasks, each difference in [-1, 1].

    Interval: the adjusted Wald interval of Bonett and Price (2012, J Educ Behav Stat 37:479), which adds two
    pseudo-tasks, one won and one lost, to the sample; recommended for small paired samples by Fagerland, Lydersen
    and Laake (2014, Stat Med 33:2850). Written on the differences themselves it holds for task means of several
    attempts too. It is clipped to [-1, 1] and widened where needed to hold the plain estimate. Test: `randomisation_p`.
    """
    pairs = len(differences)
    if pairs == 0:
        return PairedEffect(0, 0.0, None, 1.0, confidence)
    total = math.fsum(map(float, differences))
    plain, centre = total / pairs, total / (pairs + 2)
    half = normal_quantile(confidence) * math.sqrt((discordant_share(differences) - centre**2) / (pairs + 2))
    interval = Interval(max(-1.0, min(plain, centre - half)), min(1.0, max(plain, centre + half)))
    return PairedEffect(pairs, plain, interval, randomisation_p(differences), confidence)


def paired_mean_difference(old: Sequence[Fraction], new: Sequence[Fraction], confidence: float = 0.95) -> PairedEffect:
    """Mean of `new - old` over tasks, with Student's t interval on the differences.

    The t interval keeps its level for the small samples met here, where a bootstrap of five tasks resamples the same
    few values and is too narrow. Counts are often all equal; so the variance is not taken below what one further
    task, differing from the rest by one unit, would have made it: 1 / (pairs + 1). Test: `randomisation_p`.
    """
    differences = [after - before for before, after in zip(old, new, strict=True)]
    pairs = len(differences)
    if pairs == 0:
        return PairedEffect(0, 0.0, None, 1.0, confidence)
    mean = math.fsum(map(float, differences)) / pairs
    interval = None
    if pairs > 1:
        variance = max(float(np.var(_floats(differences), ddof=1)), 1 / (pairs + 1))
        half = t_quantile(pairs - 1, confidence) * math.sqrt(variance / pairs)
        interval = Interval(mean - half, mean + half)
    return PairedEffect(pairs, mean, interval, randomisation_p(differences), confidence)


def percent_change(old: Sequence[Fraction], new: Sequence[Fraction], confidence: float = 0.95) -> PercentChange | None:
    """Change of the mean from `old` to `new` in percent of the old mean, pairs kept.

    Interval: Fieller (1954, J R Stat Soc B 16:175) on the ratio of the two means. It holds zero percent exactly when
    the t interval of `paired_mean_difference` holds zero, so the two never tell different stories. None when there
    are no pairs or the old mean is 0.
    """
    pairs = len(old)
    if len(new) != pairs:
        raise ValueError("old and new must be paired")
    if pairs == 0 or not any(old):
        return None
    x, y = float(_floats(old).mean()), float(_floats(new).mean())
    value = 100 * (y / x - 1)
    if pairs == 1:
        return PercentChange(value, None)
    k = t_quantile(pairs - 1, confidence) ** 2 / pairs
    (xx, xy), (_, yy) = np.cov(_floats(old), _floats(new)).tolist()
    floor = max(0.0, 1 / (pairs + 1) - (xx + yy - 2 * xy))
    a, b, c = x * x - k * xx, x * y - k * xy, y * y - k * (yy + floor)
    if a <= 0 or b * b < a * c:
        return PercentChange(value, None)
    root = math.sqrt(b * b - a * c)
    return PercentChange(value, Interval(100 * ((b - root) / a - 1), 100 * ((b + root) / a - 1)))


def mcnemar_exact(wins: int, losses: int) -> float:
    """Two-sided exact p-value of McNemar's test: a fair coin over the discordant pairs (McNemar 1947, Psychometrika
    12:153; exact form in Fagerland, Lydersen and Laake 2013, BMC Med Res Methodol 13:91)."""
    discordant = wins + losses
    tail = sum(math.comb(discordant, k) for k in range(min(wins, losses) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**discordant)))


def randomisation_p(differences: Sequence[Fraction]) -> float:
    """Two-sided exact p-value of the paired randomisation test (Fisher 1935, The Design of Experiments, section 21).

    Under the null every difference is as likely with either sign; the p-value is the share of all sign patterns whose
    sum is at least as far from 0 as the one observed. For differences of -1, 0 and 1 it is McNemar's exact test.
    Computed by convolution over whole multiples of the common denominator; one above 2520 is rounded to 1/2520.
    """
    grid = min(math.lcm(*(d.denominator for d in differences)), _FINEST_GRID)
    steps = [round(d * grid) for d in differences if d]
    total = sum(abs(step) for step in steps)
    chance = np.zeros(total + 1)
    chance[0] = 1.0
    for step in steps:
        shifted = np.zeros_like(chance)
        shifted[abs(step) :] = chance[: total + 1 - abs(step)]
        chance = (chance + shifted) / 2
    sums = np.abs(2 * np.arange(total + 1) - total)
    return min(1.0, float(chance[sums >= abs(sum(steps))].sum()))


def discordant_share(differences: Sequence[Fraction]) -> float:
    """Mean squared difference with the pseudo-tasks of Bonett and Price, so that it is never 0.

    For one attempt a task this is the share of tasks that exactly one of the two policies solved.
    """
    return (math.fsum(float(d) ** 2 for d in differences) + 2) / (len(differences) + 2)


def minimum_detectable_effect(
    pairs: int, discordant: float, observed: float = 0.0, *, confidence: float = 0.95, power: float = 0.8
) -> float | None:
    """The smallest true difference of solved shares that `pairs` tasks would show with probability `power`.

    Exact: the smallest difference at which McNemar's exact test rejects in the right direction often enough; power
    as in Connor (1987, Biometrics 43:207), by the multinomial sum and not his normal approximation. `discordant` is
    the share of tasks that one policy alone solved, `observed` the difference seen with it. A true difference smaller
    than the observed one is taken to have that many fewer discordant tasks, a difference larger than `discordant` to
    have as many as it needs. None where no difference could be shown: at 95 %, fewer than six tasks.
    """
    rejected = _Rejections.of(pairs, 1 - confidence)

    def enough(difference: float) -> bool:
        share = max(difference, discordant - max(0.0, abs(observed) - difference))
        return rejected.chance(difference, share) >= power

    if not enough(1.0):
        return None
    return _smallest(enough, 0.0, 1.0, rounds=24)


def t_quantile(degrees: int, confidence: float) -> float:
    """Two-sided critical value of Student's t with whole `degrees` >= 1, by bisection of its exact distribution.

    The distribution is the finite trigonometric series of Abramowitz and Stegun (1964), 26.7.3 and 26.7.4.
    """
    angle = _smallest(lambda theta: _t_central(theta, degrees) >= confidence, 0.0, math.pi / 2)
    return math.sqrt(degrees) * math.tan(angle)


def _t_central(theta: float, degrees: int) -> float:
    """P(|T| <= sqrt(degrees) * tan(theta))."""
    odd = degrees % 2 == 1
    cosine = math.cos(theta)
    term = cosine if odd else 1.0
    series = 0.0
    for k in range(1 if odd else 0, degrees - 1, 2):
        series += term
        term *= cosine**2 * (k + 1) / (k + 2)
    series *= math.sin(theta)
    return 2 / math.pi * (theta + series) if odd else series


def _smallest(holds: Callable[[float], bool], low: float, high: float, *, rounds: int = 60) -> float:
    """The smallest value in [low, high] at which `holds` turns true, by bisection; `holds(high)` is taken as true."""
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _floats(values: Sequence[Fraction]) -> npt.NDArray[np.float64]:
    return np.array([float(value) for value in values])


@dataclass(frozen=True, slots=True)
class _Rejections:
    """The results of `pairs` tasks at which McNemar's exact test rejects in favour of the new policy.

    Three integer arrays of one length, and the log of the number of ways each result can come about.
    """

    wins: npt.NDArray[np.int64]
    losses: npt.NDArray[np.int64]
    ties: npt.NDArray[np.int64]
    log_ways: npt.NDArray[np.float64]

    @classmethod
    def of(cls, pairs: int, alpha: float) -> _Rejections:
        found = [
            (discordant - losses, losses)
            for discordant in range(pairs + 1)
            for losses in range(_most_losses(discordant, alpha) + 1)
        ]
        wins, losses = np.array(found, dtype=np.int64).reshape(-1, 2).T
        ties = pairs - wins - losses
        log_factorial = np.array([math.lgamma(count + 1) for count in range(pairs + 1)])
        ways = log_factorial[pairs] - log_factorial[wins] - log_factorial[losses] - log_factorial[ties]
        return cls(wins, losses, ties, ways)

    def chance(self, difference: float, discordant: float) -> float:
        """Their probability when the share of wins is (discordant + difference) / 2 and that of losses the rest."""
        log_chance = self.log_ways
        won, lost = (discordant + difference) / 2, (discordant - difference) / 2
        for count, share in ((self.wins, won), (self.losses, lost), (self.ties, 1 - discordant)):
            log_chance = log_chance + (count * math.log(share) if share > 0 else np.where(count > 0, -np.inf, 0.0))
        return float(np.exp(log_chance).sum())


def _most_losses(discordant: int, alpha: float) -> int:
    """The most losses among `discordant` pairs at which McNemar's exact test still rejects; -1 if it never does."""
    bound = int(Fraction(alpha) * 2**discordant / 2)
    ways, tail = 1, 0
    for losses in range(discordant + 1):
        tail += ways
        if tail > bound:
            return losses - 1
        ways = ways * (discordant - losses) // (losses + 1)
    return -1
