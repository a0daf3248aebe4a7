"""The one sentence that says what a comparison may claim, made from its numbers and nothing else.

Invariant: "more", "fewer" stand only where `PairedEffect.significant` does; everywhere else the sentence says that no
difference can be claimed, or why none could have been shown.
"""

from __future__ import annotations

import math

from harness_adapters.evaluation.compare import CallsComparison, Comparison, PairComparison, SplitComparison
from harness_adapters.evaluation.statistics import Interval, PairedEffect

_POLICY_NAMES = {"base": "the base model", "warm": "the warm start", "final": "the adapter"}
_SPLIT_NAMES = {"heldout": "held-out tasks", "unseen": "tasks of unseen families", "dev": "development tasks"}
MINUS = "−"


def sentence(comparison: Comparison) -> str:
    """What may be claimed on the first split, the held-out tasks where there are any."""
    if not comparison.splits:
        return "No evaluation rollout was found, so nothing can be claimed."
    return split_sentence(comparison.splits[0], comparison.confidence)


def split_sentence(split: SplitComparison, confidence: float) -> str:
    """What may be claimed on one split: the final adapter against the base model and the warm start.

    Without rollouts of the final adapter, what may be claimed of the warm start.
    """
    labels = {policy.label for policy in split.policies}
    subject = "final" if "final" in labels else "warm"
    pairs = [pair for pair in split.pairs if pair.new == subject]
    absent = [label for label in ("final", "base") if label not in labels]
    clauses = [_pair_clause(pair, split.split, confidence, first=index == 0) for index, pair in enumerate(pairs)]
    clauses += [f"{policy_name(label)} was not evaluated" for label in absent]
    left_out = max((pair.unpaired for pair in pairs), default=0)
    if left_out and any(pair.tasks for pair in pairs):
        verb = "is" if left_out == 1 else "are"
        clauses.append(f"{left_out} of {split.tasks} tasks {verb} left out for lack of a valid rollout of both")
    if not pairs:
        clauses.append(f"nothing can be claimed on {split_name(split.split)}")
    text = "; ".join(clauses)
    return text[0].upper() + text[1:] + "."


def policy_name(label: str) -> str:
    """How a policy is called in running text."""
    return _POLICY_NAMES.get(label, f"policy {label}")


def split_name(split: str) -> str:
    """How a split is called in running text."""
    return _SPLIT_NAMES.get(split, f"tasks of split {split}")


def points(effect: PairedEffect) -> tuple[str, str]:
    """A difference of shares and its interval in percentage points, as text: `("+62", "45 to 75")`."""
    return _with_interval(effect.difference * 100, effect.interval, 100.0, digits=0)


def calls(effect: PairedEffect) -> tuple[str, str]:
    """A difference in calls a task and its interval, as text: `("−0.4", "−0.6 to −0.2")`."""
    return _with_interval(effect.difference, effect.interval, 1.0, digits=1)


def number(value: float, digits: int, *, sign: bool = False) -> str:
    """A number with a true minus sign, no negative zero, and a plus where asked for."""
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return (MINUS if value < 0 else "+" if sign else "") + text


def percent(confidence: float) -> str:
    """A confidence level as text: `"95 %"`."""
    return f"{100 * confidence:.4g} %"


def count_tasks(tasks: int) -> str:
    """`"1 task"`, `"40 tasks"`."""
    return f"{tasks} task" if tasks == 1 else f"{tasks} tasks"


def points_word(value: str) -> str:
    """A difference in points with its word: `"+1 point"`, `"−15 points"`."""
    return f"{value} point" if value.lstrip("+" + MINUS) == "1" else f"{value} points"


def interval_text(interval: Interval, scale: float, digits: int) -> str:
    """`"−6 to 12"`, with as many digits as are needed for no end that is not zero to read as zero."""
    digits = _digits(interval, scale, digits)
    return " to ".join(number(end * scale, digits) for end in (interval.low, interval.high))


def _digits(interval: Interval, scale: float, digits: int) -> int:
    ends = (interval.low * scale, interval.high * scale)
    while digits < 3 and any(end != 0 and round(abs(end), digits) == 0 for end in ends):
        digits += 1
    return digits


def _with_interval(value: float, interval: Interval | None, scale: float, *, digits: int) -> tuple[str, str]:
    if interval is None:
        return number(value, digits, sign=True), "no interval"
    shown = interval_text(interval, scale, digits)
    return number(value, _digits(interval, scale, digits), sign=True), shown


def _pair_clause(pair: PairComparison, split: str, confidence: float, *, first: bool) -> str:
    new, old, tasks = policy_name(pair.new), policy_name(pair.old), split_name(split)
    if pair.tasks == 0:
        return f"nothing can be said of {new} against {old}: none of the {tasks} has a valid rollout of both"
    solved = _solved_clause(pair, new, old, tasks, confidence, first=first)
    return f"{solved}, and {_calls_clause(pair.calls, new, confidence)}"


def _solved_clause(pair: PairComparison, new: str, old: str, tasks: str, confidence: float, *, first: bool) -> str:
    difference, interval = points(pair.solved)
    level = f"{percent(confidence)} interval {interval}" if first else interval
    if pair.solved.significant:
        direction = "more" if pair.solved.difference > 0 else "fewer"
        numbers = f"{difference} points ({level}; {count_tasks(pair.tasks)})"
        if first:
            return f"{new} solves {direction} {tasks} than {old}: {numbers}"
        return f"against {old}, it solves {direction}: {numbers}"
    shown = f"{points_word(difference)}, {level}; {_detectable(pair)}"
    if pair.wins == pair.losses == pair.both_solved == 0:
        none = f"neither {new} nor {old} solved any of the {pair.tasks} {tasks}"
        return f"{none}, so no difference can be claimed ({shown})"
    if first:
        return f"no difference in solved {tasks} can be claimed between {new} and {old} ({shown})"
    return f"against {old}, no difference in solved share can be claimed ({shown})"


def _calls_clause(compared: CallsComparison, new: str, confidence: float) -> str:
    effect = compared.effect
    if compared.tasks == 0:
        return "no task was solved by both, so tool calls cannot be compared"
    if 0.5 ** (compared.tasks - 1) > 1 - confidence:
        return f"with only {count_tasks(compared.tasks)} solved by both, no difference in tool calls can be claimed"
    difference, interval = calls(effect)
    if not effect.significant:
        return (
            f"no difference in tool calls can be claimed on the {count_tasks(compared.tasks)} both solved "
            f"({difference}, {interval})"
        )
    direction = "more" if effect.difference > 0 else "fewer"
    amount = difference.lstrip("+" + MINUS)
    return f"{new} makes {amount} {direction} tool calls on the {count_tasks(compared.tasks)} both solved ({interval})"


def _detectable(pair: PairComparison) -> str:
    if pair.detectable is None:
        return f"{count_tasks(pair.tasks)} could not have shown any difference"
    return f"smallest effect this sample could have shown: {points_word(str(math.ceil(100 * pair.detectable)))}"
