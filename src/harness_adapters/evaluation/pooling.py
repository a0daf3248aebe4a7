"""From the evaluations of a study's runs to one pooled comparison, per split: policies, pairs of them, families.

Invariants
- Every run was judged on the same tasks; a (run, task) result is never counted as if it stood alone
  (`pooled_statistics` says why, and which two intervals come out).
- A pair is compared on the tasks that both policies attempted validly in *every* run: each run then weighs the same,
  and the mean over tasks is the mean over runs.
- Splits are never pooled.

Asymmetry: tool calls are compared where both policies solved a task in the same run, which are other tasks in every
run. So a task's calls are averaged over the runs in which both solved it, and a run that has no such task is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from harness_adapters.evaluation.compare import PAIRS, TaskResult, split_sessions, task_results
from harness_adapters.evaluation.evaluated import Evaluated
from harness_adapters.evaluation.pooled_statistics import across_runs, detectable_effect, same_direction
from harness_adapters.evaluation.statistics import (
    Interval,
    PairedEffect,
    PercentChange,
    paired_mean_difference,
    paired_share_difference,
    percent_change,
    wilson_interval,
)
from harness_adapters.records import Outcome

Results = Mapping[str, TaskResult]
"""One policy's results by task, in one run."""


@dataclass(frozen=True, slots=True)
class PooledEffect:
    """A mean difference (new minus old) in two lights.

    `adapters` is about the very adapters of these runs, on tasks like these; `further` the interval about further
    training runs on these tasks, None for fewer than two. `by_run` has each run's mean, None for a run without one.
    """

    adapters: PairedEffect
    further: Interval | None
    by_run: tuple[float | None, ...]

    @property
    def agree(self) -> bool:
        """Whether every run that has a mean lies on the same side of zero."""
        return same_direction([mean for mean in self.by_run if mean is not None])

    @property
    def claimed(self) -> bool:
        """Whether a difference may be claimed of these adapters.

        Their average differs beyond chance *and* each run shows it: the interval over tasks takes the adapters as
        given, so that alone it could be carried by one lucky run among them.
        """
        return self.adapters.significant and self.agree


@dataclass(frozen=True, slots=True)
class PooledPolicy:
    """One policy over all runs. Means are over tasks, a task's results averaged over the runs first.

    `by_run` are solved shares; `missing` counts the (run, task) combinations without a valid session.
    """

    label: str
    tasks: int
    sessions: int
    solved: float | None
    interval: Interval | None
    by_run: tuple[float | None, ...]
    tool_calls: float | None
    tokens: float | None
    blocked: int
    infra: int
    cancelled: int
    missing: int


@dataclass(frozen=True, slots=True)
class PooledCalls:
    """Tool calls on tasks that both policies solved in the same run: `tasks` of them, met `meetings` times."""

    tasks: int
    meetings: int
    old: float | None
    new: float | None
    effect: PooledEffect
    percent: PercentChange | None


@dataclass(frozen=True, slots=True)
class PooledPair:
    """Two policies on the tasks that both attempted validly in every run; `unpaired` counts the split's other tasks.

    `detectable` is the smallest true difference that this study would have claimed with 80 % power, None for none.
    """

    new: str
    old: str
    tasks: int
    unpaired: int
    solved_by_any: int
    solved: PooledEffect
    detectable: float | None
    calls: PooledCalls


@dataclass(frozen=True, slots=True)
class FamilyShares:
    """Solved shares of one task family by policy label; None where a policy has no valid session of it."""

    family: str
    tasks: int
    solved: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class PooledSplit:
    split: str
    tasks: int
    seeds: tuple[int, ...]
    policies: tuple[PooledPolicy, ...]
    pairs: tuple[PooledPair, ...]
    families: tuple[FamilyShares, ...]


def pool(
    runs: Mapping[int, Iterable[Evaluated]],
    *,
    confidence: float = 0.95,
    pairs: Sequence[tuple[str, str]] = PAIRS,
) -> tuple[PooledSplit, ...]:
    """Pool the sessions of several runs, by their seeds; a run without sessions of a split has no place in it."""
    by_seed = {seed: split_sessions(sessions) for seed, sessions in runs.items()}
    splits = split_sessions(session for found in by_seed.values() for session in _flat(found))
    return tuple(
        _pool_split(split, {seed: found[split] for seed, found in by_seed.items() if split in found}, confidence, pairs)
        for split in splits
    )


def _flat(by_split: Mapping[str, Mapping[str, Sequence[Evaluated]]]) -> Iterable[Evaluated]:
    return (session for by_label in by_split.values() for sessions in by_label.values() for session in sessions)


def _pool_split(
    split: str,
    by_seed: Mapping[int, Mapping[str, Sequence[Evaluated]]],
    confidence: float,
    pairs: Sequence[tuple[str, str]],
) -> PooledSplit:
    everything = [session for by_label in by_seed.values() for sessions in by_label.values() for session in sessions]
    tasks = len({session.task for session in everything})
    labels = list(split_sessions(everything)[split])
    sessions = {label: [list(by_label.get(label, ())) for by_label in by_seed.values()] for label in labels}
    results = {label: [task_results(run) for run in sessions[label]] for label in labels}
    return PooledSplit(
        split=split,
        tasks=tasks,
        seeds=tuple(by_seed),
        policies=tuple(_policy(label, sessions[label], results[label], tasks, confidence) for label in labels),
        pairs=tuple(
            _pair(new, old, results[new], results[old], tasks, confidence)
            for new, old in pairs
            if new in results and old in results
        ),
        families=_families(everything, results),
    )


def _policy(
    label: str, sessions: Sequence[Sequence[Evaluated]], results: Sequence[Results], tasks: int, confidence: float
) -> PooledPolicy:
    outcomes = Counter(session.outcome for run in sessions for session in run)
    averaged = _over_runs(results)
    scores = [result.score for result in averaged.values()]
    return PooledPolicy(
        label=label,
        tasks=len(averaged),
        sessions=sum(session.counted for run in sessions for session in run),
        solved=_mean(scores),
        interval=wilson_interval(float(sum(scores)), len(scores), confidence) if scores else None,
        by_run=tuple(_mean([result.score for result in run.values()]) for run in results),
        tool_calls=_mean([result.tool_calls for result in averaged.values()]),
        tokens=_mean([result.tokens for result in averaged.values()]),
        blocked=sum(session.counted and session.blocked for run in sessions for session in run),
        infra=outcomes[Outcome.INFRA],
        cancelled=outcomes[Outcome.CANCELLED],
        missing=tasks * len(results) - sum(map(len, results)),
    )


def _over_runs(results: Sequence[Results]) -> dict[str, TaskResult]:
    """A policy's results by task, averaged over the runs that have one."""
    found: dict[str, list[TaskResult]] = {}
    for run in results:
        for task, result in run.items():
            found.setdefault(task, []).append(result)
    return {
        task: TaskResult(
            score=_average([result.score for result in runs]),
            tool_calls=_average([result.tool_calls for result in runs]),
            tokens=_average([result.tokens for result in runs]),
            solved_calls=None,
        )
        for task, runs in found.items()
    }


def _pair(
    new: str, old: str, after: Sequence[Results], before: Sequence[Results], tasks: int, confidence: float
) -> PooledPair:
    shared = sorted(set.intersection(*({*run} for run in (*after, *before))))
    differences = [[a[task].score - b[task].score for a, b in zip(after, before, strict=True)] for task in shared]
    by_run = tuple(_mean(list(column)) for column in zip(*differences, strict=True)) or (None,) * len(after)
    return PooledPair(
        new=new,
        old=old,
        tasks=len(shared),
        unpaired=tasks - len(shared),
        solved_by_any=sum(any(run[task].score for run in (*after, *before)) for task in shared),
        solved=PooledEffect(
            adapters=paired_share_difference([_average(row) for row in differences], confidence),
            further=_clipped(across_runs([mean for mean in by_run if mean is not None], len(shared), confidence)),
            by_run=by_run,
        ),
        detectable=detectable_effect([list(map(float, row)) for row in differences], confidence=confidence),
        calls=_calls(after, before, confidence),
    )


def _calls(after: Sequence[Results], before: Sequence[Results], confidence: float) -> PooledCalls:
    runs = [_both_solved(a, b) for a, b in zip(after, before, strict=True)]
    tasks = sorted(set().union(*runs))
    meetings = [[run[task] for run in runs if task in run] for task in tasks]
    old = [_average([met[1] for met in meeting]) for meeting in meetings]
    new = [_average([met[0] for met in meeting]) for meeting in meetings]
    by_run = tuple(_mean([a - b for a, b in run.values()]) for run in runs)
    means = [mean for mean in by_run if mean is not None]
    return PooledCalls(
        tasks=len(tasks),
        meetings=sum(map(len, meetings)),
        old=_mean(old),
        new=_mean(new),
        effect=PooledEffect(
            adapters=paired_mean_difference(old, new, confidence),
            further=across_runs(means, min((len(run) for run in runs if run), default=0), confidence),
            by_run=by_run,
        ),
        percent=percent_change(old, new, confidence),
    )


def _both_solved(after: Results, before: Results) -> dict[str, tuple[Fraction, Fraction]]:
    """Mean calls of the solved attempts at each task that both policies solved in this run: new, old."""
    return {
        task: (new, old)
        for task in after.keys() & before.keys()
        if (new := after[task].solved_calls) is not None and (old := before[task].solved_calls) is not None
    }


def _families(everything: Iterable[Evaluated], results: Mapping[str, Sequence[Results]]) -> tuple[FamilyShares, ...]:
    members: dict[str, set[str]] = {}
    for session in everything:
        members.setdefault(session.family, set()).add(session.task)
    averaged = {label: _over_runs(runs) for label, runs in results.items()}
    return tuple(
        FamilyShares(
            family=family,
            tasks=len(tasks),
            solved={
                label: _mean([found[task].score for task in sorted(tasks) if task in found])
                for label, found in averaged.items()
            },
        )
        for family, tasks in sorted(members.items())
    )


def _average(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)


def _mean(values: Sequence[Fraction]) -> float | None:
    return float(_average(values)) if values else None


def _clipped(interval: Interval | None) -> Interval | None:
    """An interval of a difference of shares, which cannot leave [-1, 1]."""
    return None if interval is None else Interval(max(-1.0, interval.low), min(1.0, interval.high))
