"""What a study may claim, in sentences made from its numbers and nothing else: one for each pair of policies.

Invariant: "more", "fewer" stand only where `PooledEffect.claimed` does and the study has no gap; everywhere else the
sentence says that no difference can be claimed, and why. What GRPO added to the warm start has its sentence whatever
it is.
"""

from __future__ import annotations

import math

from harness_adapters.evaluation.claim import (
    MINUS,
    calls,
    count_tasks,
    interval_text,
    number,
    percent,
    points,
    points_word,
    policy_name,
    split_name,
)
from harness_adapters.evaluation.pooling import PooledCalls, PooledEffect, PooledPair, PooledSplit
from harness_adapters.evaluation.study import StudyComparison

_PLURALS = {"warm": "the warm starts", "final": "the adapters"}
_DISAGREE = ", since not every run shows it,"
NOTHING_YET = "The study is not whole, so nothing is claimed of it"


def sentences(study: StudyComparison, split: PooledSplit) -> tuple[str, ...]:
    """What may be claimed on one split, a sentence for each pair; one sentence alone where there is a gap."""
    if study.gaps:
        return (f"{NOTHING_YET}: {study.gaps[0]}.",)
    if not split.pairs:
        return (f"Nothing can be claimed on {split_name(split.split)}: there are no two policies to compare.",)
    return tuple(_pair_sentence(pair, split.split, study.facts.confidence) for pair in split.pairs)


def run_values(effect: PooledEffect, digits: int, scale: float = 1.0) -> str:
    """Each run's mean difference as text, in the order of the seeds: `"+12, −15, +12"`."""
    return ", ".join("–" if mean is None else number(mean * scale, digits, sign=True) for mean in effect.by_run)


def further_points(effect: PooledEffect) -> str:
    """The interval about further runs in points as text: `"−37 to 43"`."""
    return "" if effect.further is None else interval_text(effect.further, 100.0, 0)


def further_calls(effect: PooledEffect) -> str:
    """The interval about further runs in calls a task as text."""
    return "" if effect.further is None else interval_text(effect.further, 1.0, 1)


def _pair_sentence(pair: PooledPair, split: str, confidence: float) -> str:
    many = len(pair.solved.by_run) > 1
    new, old, tasks = _name(pair.new, many), _name(pair.old, many), split_name(split)
    subject = f"{new[0].upper()}{new[1:]} against {old} on {tasks}"
    if (pair.new, pair.old) == ("final", "warm"):
        subject = f"What GRPO added to the warm start on {tasks}"
    if pair.tasks == 0:
        return f"{subject}: nothing can be said, since no task has a valid session of both in every run."
    clauses = [_solved_clause(pair, confidence), _calls_clause(pair.calls, confidence)]
    if pair.unpaired:
        verb = "is" if pair.unpaired == 1 else "are"
        clauses.append(f"{pair.unpaired} of {pair.tasks + pair.unpaired} tasks {verb} left out for lack of a session")
    return f"{subject}: {'; '.join(clauses)}."


def _solved_clause(pair: PooledPair, confidence: float) -> str:
    effect = pair.solved
    difference, interval = points(effect.adapters)
    shown = f"{points_word(difference)} ({percent(confidence)} interval {interval}, {count_tasks(pair.tasks)}"
    shown += f"{_runs(effect, 0, 100.0)}{_further(further_points(effect))}"
    if effect.claimed:
        return f"{'more' if effect.adapters.difference > 0 else 'fewer'} are solved, {shown})"
    reason = _DISAGREE if effect.adapters.significant else ","
    if pair.solved_by_any == 0:
        reason = ", since no run solved any task,"
    return f"no difference in solved share can be claimed{reason} {shown}; {_detectable(pair)})"


def _calls_clause(compared: PooledCalls, confidence: float) -> str:
    effect = compared.effect
    if compared.tasks == 0:
        return "no task was solved by both in one run, so tool calls cannot be compared"
    if 0.5 ** (compared.tasks - 1) > 1 - confidence:
        return f"with only {count_tasks(compared.tasks)} solved by both, no difference in tool calls can be claimed"
    difference, interval = calls(effect.adapters)
    runs = f"{_runs(effect, 1)}{_further(further_calls(effect))}"
    if effect.claimed:
        direction = "more" if effect.adapters.difference > 0 else "fewer"
        amount = difference.lstrip("+" + MINUS)
        return f"{amount} {direction} tool calls on the {count_tasks(compared.tasks)} both solved ({interval}{runs})"
    reason = _DISAGREE if effect.adapters.significant else ""
    return (
        f"no difference in tool calls can be claimed{reason} on the {count_tasks(compared.tasks)} both solved "
        f"({difference}, {interval}{runs})"
    )


def _runs(effect: PooledEffect, digits: int, scale: float = 1.0) -> str:
    return f"; by run {run_values(effect, digits, scale)}" if len(effect.by_run) > 1 else ""


def _further(interval: str) -> str:
    return f"; over further runs, on these tasks, {interval}" if interval else "; one run says nothing of further ones"


def _detectable(pair: PooledPair) -> str:
    if pair.detectable is None:
        return f"{count_tasks(pair.tasks)} could not have shown any difference"
    return f"smallest effect this study could have shown: {points_word(str(math.ceil(100 * pair.detectable)))}"


def _name(label: str, many: bool) -> str:
    return _PLURALS.get(label, policy_name(label)) if many else policy_name(label)
