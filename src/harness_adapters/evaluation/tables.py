"""A `Comparison` as tables: plain text for a terminal, Markdown, and JSON.

Invariants
- `build_tables` makes the cells once; every rendering shows the same ones.
- Plain text is at most `WIDTH` columns wide and holds no control characters, whatever the labels are.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness_adapters.evaluation.claim import calls, number, percent, points, sentence, split_name, split_sentence
from harness_adapters.evaluation.compare import Comparison, PairComparison, PolicySummary, SplitComparison
from harness_adapters.evaluation.statistics import Interval

WIDTH = 100
_WIDEST_CELL = 24
NONE = "–"
"""What stands in a cell where there is no number."""


@dataclass(frozen=True, slots=True)
class Table:
    """Text cells under a title; the first column is left-aligned, the others right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def build_tables(split: SplitComparison, confidence: float) -> tuple[Table, ...]:
    """One split: the policies, the paired differences of solved shares, the tool calls on tasks both solved."""
    policies = _policy_table(split, confidence)
    return (policies, _solved_table(split, confidence), _calls_table(split, confidence)) if split.pairs else (policies,)


def render(comparison: Comparison, form: str = "text") -> str:
    """The comparison as "text", "markdown" or "json" (indented). Raises ValueError for another form."""
    forms: dict[str, Callable[[Comparison], str]] = {
        "text": render_text,
        "markdown": render_markdown,
        "json": lambda compared: json.dumps(to_json(compared), indent=2) + "\n",
    }
    if form not in forms:
        raise ValueError(f"a table's form is one of {', '.join(forms)}, not {form!r}")
    return forms[form](comparison)


def render_text(comparison: Comparison) -> str:
    """Every split's sentence and tables as plain text, at most `WIDTH` columns wide, with a final line feed."""
    return _render(comparison, lambda text: textwrap.fill(plain(text), WIDTH), text_table)


def render_markdown(comparison: Comparison) -> str:
    """Every split's sentence and tables as Markdown (pipe tables), with a final line feed."""
    return _render(comparison, lambda text: f"**{markdown_text(text)}**", markdown_table)


def _render(comparison: Comparison, claim: Callable[[str], str], table: Callable[[Table], str]) -> str:
    blocks = [] if comparison.splits else [claim(sentence(comparison))]
    for split in comparison.splits:
        blocks.append(claim(split_sentence(split, comparison.confidence)))
        blocks += [table(built) for built in build_tables(split, comparison.confidence)]
    return "\n\n".join(blocks) + "\n"


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison with its sentences as JSON values; an infinite end of an interval becomes null."""
    data: dict[str, Any] = finite(asdict(comparison))
    for split, encoded in zip(comparison.splits, data["splits"], strict=True):
        encoded["sentence"] = split_sentence(split, comparison.confidence)
    data["sentence"] = sentence(comparison)
    return data


def plain(text: str) -> str:
    """Text without control characters or line ends, safe to write to a terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)


def _policy_table(split: SplitComparison, confidence: float) -> Table:
    level = percent(confidence)
    columns = ("policy", "tasks", "solved", f"{level} interval", "calls", "tokens", "blocked", "infra", "missing")
    endings = tuple(
        f"{policy.label} ended by: {_counts(policy.ended_by)}" for policy in split.policies if policy.rollouts
    )
    cancelled = tuple(
        f"{policy.label}: {policy.cancelled} cancelled, left out" for policy in split.policies if policy.cancelled
    )
    return Table(
        title=f"{split_name(split.split).capitalize()}: {split.tasks}",
        columns=columns,
        rows=tuple(_policy_row(policy) for policy in split.policies),
        notes=(
            *endings,
            *cancelled,
            "calls and tokens (sampled) are means a task; infra failures are left out, never scored 0.",
        ),
    )


def _policy_row(policy: PolicySummary) -> tuple[str, ...]:
    return (
        policy.label,
        str(policy.tasks),
        NONE if policy.solved is None else f"{100 * policy.solved:.1f} %",
        interval_cell(policy.interval, lambda end: f"{100 * end:.1f}"),
        NONE if policy.tool_calls is None else number(policy.tool_calls, 2),
        NONE if policy.tokens is None else number(policy.tokens, 0),
        str(policy.blocked),
        str(policy.infra),
        str(policy.missing),
    )


def _solved_table(split: SplitComparison, confidence: float) -> Table:
    level = percent(confidence)
    return Table(
        title=f"Solved share in points, {split_name(split.split)}",
        columns=("comparison", "tasks", "won", "lost", "difference", f"{level} interval", "exact p", "detectable"),
        rows=tuple(_solved_row(pair) for pair in split.pairs),
        notes=(
            "detectable: the smallest true difference that this many tasks would have shown with 80 % power.",
            "Each interval is for its own comparison alone; none is widened for the number of comparisons.",
        ),
    )


def _solved_row(pair: PairComparison) -> tuple[str, ...]:
    difference, interval = points(pair.solved)
    return (
        f"{pair.new} − {pair.old}",
        str(pair.tasks),
        str(pair.wins),
        str(pair.losses),
        difference if pair.tasks else NONE,
        interval if pair.tasks else NONE,
        p_cell(pair.solved.p) if pair.tasks else NONE,
        NONE if pair.detectable is None else str(math.ceil(100 * pair.detectable)),
    )


def _calls_table(split: SplitComparison, confidence: float) -> Table:
    level = percent(confidence)
    return Table(
        title=f"Tool calls on tasks both solved, {split_name(split.split)}",
        columns=("comparison", "tasks", "new", "old", "difference", f"{level} interval", "change", f"{level} interval"),
        rows=tuple(_calls_row(pair) for pair in split.pairs),
    )


def _calls_row(pair: PairComparison) -> tuple[str, ...]:
    compared = pair.calls
    name = f"{pair.new} − {pair.old}"
    if compared.old is None or compared.new is None:
        return (name, "0", *[NONE] * 6)
    difference, interval = calls(compared.effect)
    change = compared.percent
    return (
        name,
        str(compared.tasks),
        number(compared.new, 2),
        number(compared.old, 2),
        difference,
        interval if compared.effect.interval else NONE,
        NONE if change is None else f"{number(change.value, 0, sign=True)} %",
        NONE if change is None else interval_cell(change.interval, lambda end: number(end, 0)),
    )


def text_table(table: Table) -> str:
    """One table as plain text, without a final line feed."""
    cells = [[_clip(plain(cell)) for cell in row] for row in (table.columns, *table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    rule = "-" * max(len(line) for line in lines)
    notes = [line for note in table.notes for line in textwrap.wrap(plain(note), WIDTH - 2)]
    return "\n".join([plain(table.title)[:WIDTH], rule, lines[0], rule, *lines[1:], *(f"  {note}" for note in notes)])


def markdown_table(table: Table) -> str:
    """One table in Markdown, without a final line feed."""
    head, *rows = [[markdown_text(cell) for cell in row] for row in (table.columns, *table.rows)]
    alignment = ["---", *["---:"] * (len(table.columns) - 1)]
    lines = [f"| {' | '.join(row)} |" for row in (head, alignment, *rows)]
    notes = [f"\n{markdown_text(note)}" for note in table.notes]
    return "\n".join([f"### {markdown_text(table.title)}\n", *lines, *notes])


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is."""
    escaped = plain(text)
    for character in "\\`*_|<>[]":
        escaped = escaped.replace(character, "\\" + character)
    return escaped


def _clip(text: str) -> str:
    return text if len(text) <= _WIDEST_CELL else text[: _WIDEST_CELL - 1] + "…"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def interval_cell(interval: Interval | None, show: Callable[[float], str]) -> str:
    """An interval whose ends `show` writes."""
    return NONE if interval is None else f"{show(interval.low)} to {show(interval.high)}"


def p_cell(p: float) -> str:
    """A p-value to three digits."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def finite(value: Any) -> Any:
    """A JSON value with null for every float that JSON cannot write."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(inner) for inner in value]
    return value
