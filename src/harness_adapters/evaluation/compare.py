"""From evaluation rollouts to a `Comparison`: per split, one summary a policy and one paired comparison a pair.

Invariants
- Only graded rollouts and agent faults count; infrastructure failures and cancelled rollouts are left out and counted.
- The task is the unit: attempts at one task are averaged first, exactly (fractions, not floats).
- Splits are never pooled.

Asymmetry: a pair is (new, old); every difference is new minus old. Tool calls are compared only on tasks that both
solved, and there only over solved attempts: a policy that gives up early is not thereby efficient.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from harness_adapters.errors import RunError
from harness_adapters.evaluation.evaluated import Evaluated, evaluated, harness_of
from harness_adapters.evaluation.statistics import (
    Interval,
    PairedEffect,
    PercentChange,
    discordant_share,
    minimum_detectable_effect,
    paired_mean_difference,
    paired_share_difference,
    percent_change,
    wilson_interval,
)
from harness_adapters.records import Outcome, Rollout

PAIRS: tuple[tuple[str, str], ...] = (("final", "base"), ("final", "warm"), ("warm", "base"))
"""Which policies are compared, as (new, old); a pair with a label that no rollout carries is passed over."""

_LABEL_ORDER = ("base", "warm", "final")
_SPLIT_ORDER = ("heldout", "unseen")


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """One policy on one split. Means are over tasks; None where no task has a valid rollout.

    `missing` counts the split's tasks without a valid rollout of this policy; `tokens` are sampled tokens a rollout.
    """

    label: str
    tasks: int
    rollouts: int
    solved: float | None
    interval: Interval | None
    tool_calls: float | None
    tokens: float | None
    blocked: int
    infra: int
    cancelled: int
    missing: int
    ended_by: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CallsComparison:
    """Tool calls on the tasks that both policies solved. `effect.difference` is in calls a task."""

    tasks: int
    old: float | None
    new: float | None
    effect: PairedEffect
    percent: PercentChange | None


@dataclass(frozen=True, slots=True)
class PairComparison:
    """Two policies on the tasks of one split that both attempted validly.

    `unpaired` counts the split's other tasks. `detectable` is the smallest difference of solved shares that this many
    tasks would have shown with 80 % power, None if none could have been shown.
    """

    new: str
    old: str
    tasks: int
    unpaired: int
    wins: int
    losses: int
    both_solved: int
    solved: PairedEffect
    detectable: float | None
    calls: CallsComparison


@dataclass(frozen=True, slots=True)
class SplitComparison:
    split: str
    tasks: int
    policies: tuple[PolicySummary, ...]
    pairs: tuple[PairComparison, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All splits of one evaluation, held-out tasks of known families first."""

    harness: str
    confidence: float
    splits: tuple[SplitComparison, ...]


def compare(
    rollouts: Iterable[Rollout], *, confidence: float = 0.95, pairs: Sequence[tuple[str, str]] = PAIRS
) -> Comparison:
    """Compare policies by their evaluation rollouts, tagged `policy_label` and `split`.

    Raises RunError for a rollout without these tags, one that appears twice, or rollouts of several harnesses.
    """
    rollouts = list(rollouts)
    for identity, times in Counter(rollout.id for rollout in rollouts).items():
        if times > 1:
            raise RunError(f"evaluation rollout {identity!r} appears twice", "remove one of the two files")
    return compare_sessions(map(evaluated, rollouts), harness=harness_of(rollouts), confidence=confidence, pairs=pairs)


def compare_sessions(
    sessions: Iterable[Evaluated], *, harness: str, confidence: float, pairs: Sequence[tuple[str, str]] = PAIRS
) -> Comparison:
    """The same from the sessions' records."""
    by_split = split_sessions(sessions)
    splits = tuple(_compare_split(split, by_label, confidence, pairs) for split, by_label in by_split.items())
    return Comparison(harness, confidence, splits)


def split_sessions(sessions: Iterable[Evaluated]) -> dict[str, dict[str, list[Evaluated]]]:
    """Sessions by split and policy label, both in the order in which they are shown."""
    found: dict[str, dict[str, list[Evaluated]]] = defaultdict(lambda: defaultdict(list))
    for session in sessions:
        found[session.split][session.label].append(session)
    return {
        split: {
            label: found[split][label] for label in sorted(found[split], key=lambda name: _rank(name, _LABEL_ORDER))
        }
        for split in sorted(found, key=lambda name: _rank(name, _SPLIT_ORDER))
    }


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One policy's valid attempts at one task, averaged. `solved_calls` is None where no attempt solved it."""

    score: Fraction
    tool_calls: Fraction
    tokens: Fraction
    solved_calls: Fraction | None


def _compare_split(
    split: str, by_label: Mapping[str, Sequence[Evaluated]], confidence: float, pairs: Sequence[tuple[str, str]]
) -> SplitComparison:
    tasks = {session.task for sessions in by_label.values() for session in sessions}
    results = {label: task_results(sessions) for label, sessions in by_label.items()}
    return SplitComparison(
        split=split,
        tasks=len(tasks),
        policies=tuple(
            _summary(label, sessions, results[label], len(tasks), confidence) for label, sessions in by_label.items()
        ),
        pairs=tuple(
            _compare_pair(new, old, results[new], results[old], len(tasks), confidence)
            for new, old in pairs
            if new in results and old in results
        ),
    )


def task_results(sessions: Iterable[Evaluated]) -> dict[str, TaskResult]:
    """One policy's results by task, of tasks with a valid attempt."""
    attempts: dict[str, list[Evaluated]] = defaultdict(list)
    for session in sessions:
        if session.counted:
            attempts[session.task].append(session)
    return {task: _average(valid) for task, valid in attempts.items()}


def _average(attempts: Sequence[Evaluated]) -> TaskResult:
    solved = [session for session in attempts if session.solved]
    return TaskResult(
        score=Fraction(len(solved), len(attempts)),
        tool_calls=Fraction(sum(session.tool_calls for session in attempts), len(attempts)),
        tokens=Fraction(sum(session.tokens for session in attempts), len(attempts)),
        solved_calls=Fraction(sum(session.tool_calls for session in solved), len(solved)) if solved else None,
    )


def _summary(
    label: str, sessions: Sequence[Evaluated], results: Mapping[str, TaskResult], tasks: int, confidence: float
) -> PolicySummary:
    valid = [session for session in sessions if session.counted]
    outcomes = Counter(session.outcome for session in sessions)
    score = sum((result.score for result in results.values()), Fraction())

    def mean(value: Callable[[TaskResult], Fraction]) -> float | None:
        return float(sum(value(result) for result in results.values()) / len(results)) if results else None

    return PolicySummary(
        label=label,
        tasks=len(results),
        rollouts=len(valid),
        solved=mean(lambda result: result.score),
        interval=wilson_interval(float(score), len(results), confidence) if results else None,
        tool_calls=mean(lambda result: result.tool_calls),
        tokens=mean(lambda result: result.tokens),
        blocked=sum(session.blocked for session in valid),
        infra=outcomes[Outcome.INFRA],
        cancelled=outcomes[Outcome.CANCELLED],
        missing=tasks - len(results),
        ended_by=dict(Counter(session.ended_by or "unknown" for session in valid).most_common()),
    )


def _compare_pair(
    new: str,
    old: str,
    new_results: Mapping[str, TaskResult],
    old_results: Mapping[str, TaskResult],
    tasks: int,
    confidence: float,
) -> PairComparison:
    shared = sorted(new_results.keys() & old_results.keys())
    differences = [new_results[task].score - old_results[task].score for task in shared]
    calls = [
        (after, before)
        for task in shared
        if (after := new_results[task].solved_calls) is not None
        and (before := old_results[task].solved_calls) is not None
    ]
    solved = paired_share_difference(differences, confidence)
    return PairComparison(
        new=new,
        old=old,
        tasks=len(shared),
        unpaired=tasks - len(shared),
        wins=sum(difference > 0 for difference in differences),
        losses=sum(difference < 0 for difference in differences),
        both_solved=len(calls),
        solved=solved,
        detectable=minimum_detectable_effect(
            len(shared), discordant_share(differences), solved.difference, confidence=confidence
        ),
        calls=_compare_calls([before for _, before in calls], [after for after, _ in calls], confidence),
    )


def _compare_calls(old: Sequence[Fraction], new: Sequence[Fraction], confidence: float) -> CallsComparison:
    return CallsComparison(
        tasks=len(old),
        old=float(sum(old) / len(old)) if old else None,
        new=float(sum(new) / len(new)) if new else None,
        effect=paired_mean_difference(old, new, confidence),
        percent=percent_change(old, new, confidence),
    )


def _rank(name: str, order: Sequence[str]) -> tuple[int, str]:
    """Known names in their order, others between the first and the last known, by name."""
    if name not in order:
        return (len(order) - 1, name)
    index = order.index(name)
    return (index if index < len(order) - 1 else len(order), name)
