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
_COUNTED = (Outcome.GRADED, Outcome.AGENT_FAULT)


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
    by_split: dict[str, dict[str, list[Rollout]]] = defaultdict(lambda: defaultdict(list))
    seen: set[str] = set()
    harnesses: set[str] = set()
    for rollout in rollouts:
        split, label = _tag(rollout, "split"), _tag(rollout, "policy_label")
        if rollout.id in seen:
            raise RunError(f"evaluation rollout {rollout.id!r} appears twice", "remove one of the two files")
        seen.add(rollout.id)
        harnesses.add(rollout.harness)
        by_split[split][label].append(rollout)
    if len(harnesses) > 1:
        raise RunError(
            f"the rollouts are of several harnesses: {', '.join(sorted(harnesses))}", "compare one at a time"
        )
    ordered = sorted(by_split, key=lambda split: _rank(split, _SPLIT_ORDER))
    splits = tuple(_compare_split(split, by_split[split], confidence, pairs) for split in ordered)
    return Comparison(next(iter(harnesses), ""), confidence, splits)


@dataclass(frozen=True, slots=True)
class _TaskResult:
    """One policy's valid attempts at one task, averaged. `solved_calls` is None where no attempt solved it."""

    score: Fraction
    tool_calls: Fraction
    tokens: Fraction
    solved_calls: Fraction | None


def _compare_split(
    split: str, by_label: Mapping[str, Sequence[Rollout]], confidence: float, pairs: Sequence[tuple[str, str]]
) -> SplitComparison:
    tasks = {rollout.task for rollouts in by_label.values() for rollout in rollouts}
    results = {label: _task_results(rollouts) for label, rollouts in by_label.items()}
    labels = sorted(by_label, key=lambda label: _rank(label, _LABEL_ORDER))
    return SplitComparison(
        split=split,
        tasks=len(tasks),
        policies=tuple(_summary(label, by_label[label], results[label], len(tasks), confidence) for label in labels),
        pairs=tuple(
            _compare_pair(new, old, results[new], results[old], len(tasks), confidence)
            for new, old in pairs
            if new in results and old in results
        ),
    )


def _task_results(rollouts: Sequence[Rollout]) -> dict[str, _TaskResult]:
    attempts: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.outcome in _COUNTED:
            attempts[rollout.task].append(rollout)
    return {task: _average(valid) for task, valid in attempts.items()}


def _average(attempts: Sequence[Rollout]) -> _TaskResult:
    solved = [rollout for rollout in attempts if rollout.solved]
    return _TaskResult(
        score=Fraction(len(solved), len(attempts)),
        tool_calls=Fraction(sum(rollout.tool_calls for rollout in attempts), len(attempts)),
        tokens=Fraction(sum(sampled_tokens(rollout) for rollout in attempts), len(attempts)),
        solved_calls=Fraction(sum(rollout.tool_calls for rollout in solved), len(solved)) if solved else None,
    )


def sampled_tokens(rollout: Rollout) -> int:
    """Tokens the engine sampled in this rollout, auxiliary calls included."""
    return sum(len(call.completion_ids) for call in rollout.calls)


def _summary(
    label: str, rollouts: Sequence[Rollout], results: Mapping[str, _TaskResult], tasks: int, confidence: float
) -> PolicySummary:
    valid = [rollout for rollout in rollouts if rollout.outcome in _COUNTED]
    outcomes = Counter(rollout.outcome for rollout in rollouts)
    score = sum((result.score for result in results.values()), Fraction())

    def mean(value: Callable[[_TaskResult], Fraction]) -> float | None:
        return float(sum(value(result) for result in results.values()) / len(results)) if results else None

    return PolicySummary(
        label=label,
        tasks=len(results),
        rollouts=len(valid),
        solved=mean(lambda result: result.score),
        interval=wilson_interval(float(score), len(results), confidence) if results else None,
        tool_calls=mean(lambda result: result.tool_calls),
        tokens=mean(lambda result: result.tokens),
        blocked=sum(rollout.blocked for rollout in valid),
        infra=outcomes[Outcome.INFRA],
        cancelled=outcomes[Outcome.CANCELLED],
        missing=tasks - len(results),
        ended_by=dict(Counter(rollout.ended_by or "unknown" for rollout in valid).most_common()),
    )


def _compare_pair(
    new: str,
    old: str,
    new_results: Mapping[str, _TaskResult],
    old_results: Mapping[str, _TaskResult],
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


def _tag(rollout: Rollout, name: str) -> str:
    value = rollout.tags.get(name, "")
    if not value:
        raise RunError(f"rollout {rollout.id!r} has no tag {name!r}", "evaluate it again with this version")
    return value


def _rank(name: str, order: Sequence[str]) -> tuple[int, str]:
    """Known names in their order, others between the first and the last known, by name."""
    if name not in order:
        return (len(order) - 1, name)
    index = order.index(name)
    return (index if index < len(order) - 1 else len(order), name)
