"""A `StudyComparison` as a report: plain text for a terminal, Markdown, and JSON.

First what may be claimed and the pooled tables, split by split; then every run's own tables, as `eval` shows them but
without their sentences, since a study is read as a whole.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from harness_adapters.evaluation.claim import calls, number, percent, points, split_name
from harness_adapters.evaluation.compare import Comparison
from harness_adapters.evaluation.pooling import PooledPair, PooledPolicy, PooledSplit
from harness_adapters.evaluation.study import StudyComparison
from harness_adapters.evaluation.study_claim import further_calls, further_points, sentences
from harness_adapters.evaluation.tables import (
    NONE,
    WIDTH,
    Table,
    build_tables,
    finite,
    interval_cell,
    markdown_table,
    markdown_text,
    p_cell,
    plain,
    text_table,
)

_FORMATS = ("text", "markdown", "json")


@dataclass(frozen=True, slots=True)
class _Style:
    """How the parts of a report are written in one form."""

    heading: Callable[[str], str]
    claim: Callable[[str], str]
    line: Callable[[str], str]
    table: Callable[[Table], str]


_TEXT = _Style(
    heading=lambda text: f"{plain(text)}\n{'=' * min(len(plain(text)), WIDTH)}",
    claim=lambda text: textwrap.fill(plain(text), WIDTH),
    line=lambda text: textwrap.fill(plain(text), WIDTH, subsequent_indent="  ", break_on_hyphens=False),
    table=text_table,
)
_MARKDOWN = _Style(
    heading=lambda text: f"## {markdown_text(text)}",
    claim=lambda text: f"**{markdown_text(text)}**",
    line=markdown_text,
    table=markdown_table,
)


def render_study(study: StudyComparison, form: str = "text") -> str:
    """The report as "text", "markdown" or "json", with a final line feed. Raises ValueError for another form."""
    if form not in _FORMATS:
        raise ValueError(f"a report's form is one of {', '.join(_FORMATS)}, not {form!r}")
    if form == "json":
        return json.dumps(study_json(study), indent=2) + "\n"
    return _render(study, _TEXT if form == "text" else _MARKDOWN)


def study_json(study: StudyComparison) -> dict[str, Any]:
    """The study with its sentences as JSON values; an infinite end of an interval becomes null."""
    data: dict[str, Any] = finite(asdict(study))
    data["runs"] = {str(seed): comparison for seed, comparison in data["runs"].items()}
    for split, encoded in zip(study.splits, data["splits"], strict=True):
        encoded["sentences"] = list(sentences(study, split))
        for pair, encoded_pair in zip(split.pairs, encoded["pairs"], strict=True):
            encoded_pair["solved"]["claimed"] = pair.solved.claimed and not study.gaps
            encoded_pair["calls"]["effect"]["claimed"] = pair.calls.effect.claimed and not study.gaps
    return data


def study_tables(split: PooledSplit, confidence: float) -> tuple[Table, ...]:
    """The pooled tables of one split: policies, runs, differences of solved shares, tool calls, families."""
    pairs = (_solved_table(split, confidence), _calls_table(split, confidence)) if split.pairs else ()
    return (_policy_table(split, confidence), _run_table(split), *pairs, _family_table(split))


def _render(study: StudyComparison, style: _Style) -> str:
    facts = study.facts
    blocks = [
        style.heading(f"Study {facts.name}"),
        style.line(
            f"{study.harness}; training runs of seeds {', '.join(map(str, facts.seeds))}, "
            f"{len(study.runs)} of {len(facts.seeds)} evaluated"
        ),
    ]
    blocks += [style.line(f"test set {facts.test_set}")] if facts.test_set else []
    blocks += [style.line(f"configuration {facts.configuration}")] if facts.configuration else []
    blocks += [style.claim(f"Missing: {gap}.") for gap in study.gaps]
    for split in study.splits:
        blocks.append(style.heading(f"{split_name(split.split).capitalize()}, all runs"))
        blocks += [style.claim(sentence) for sentence in sentences(study, split)]
        blocks += [style.table(table) for table in study_tables(split, facts.confidence)]
    for seed, comparison in study.runs.items():
        blocks.append(style.heading(f"The run of seed {seed}"))
        blocks += [style.table(table) for table in _tables_of_run(comparison)]
    return "\n\n".join(blocks) + "\n"


def _tables_of_run(comparison: Comparison) -> list[Table]:
    return [table for split in comparison.splits for table in build_tables(split, comparison.confidence)]


def _policy_table(split: PooledSplit, confidence: float) -> Table:
    cancelled = tuple(
        f"{policy.label}: {policy.cancelled} cancelled, left out" for policy in split.policies if policy.cancelled
    )
    return Table(
        title=f"Policies on {split.tasks} {split_name(split.split)}, {_runs(split)} pooled",
        columns=(
            "policy",
            "tasks",
            "sessions",
            "solved",
            f"{percent(confidence)} interval",
            "calls",
            "tokens",
            "blocked",
            "infra",
            "missing",
        ),
        rows=tuple(_policy_row(policy) for policy in split.policies),
        notes=(
            *cancelled,
            "A task's results are averaged over the runs first; the interval is about these policies on tasks like "
            "these. Infra failures are left out, never scored 0; missing counts runs times tasks.",
        ),
    )


def _policy_row(policy: PooledPolicy) -> tuple[str, ...]:
    return (
        policy.label,
        str(policy.tasks),
        str(policy.sessions),
        _share(policy.solved),
        interval_cell(policy.interval, lambda end: f"{100 * end:.1f}"),
        NONE if policy.tool_calls is None else number(policy.tool_calls, 2),
        NONE if policy.tokens is None else number(policy.tokens, 0),
        str(policy.blocked),
        str(policy.infra),
        str(policy.missing),
    )


def _run_table(split: PooledSplit) -> Table:
    """Solved shares and differences, one row a run."""
    rows = [
        (
            str(seed),
            *(_share(policy.by_run[place]) for policy in split.policies),
            *(_points(pair.solved.by_run[place]) for pair in split.pairs),
        )
        for place, seed in enumerate(split.seeds)
    ]
    return Table(
        title=f"Solved share and differences in points by run, {split_name(split.split)}",
        columns=("seed", *(policy.label for policy in split.policies), *map(_pair_name, split.pairs)),
        rows=tuple(rows),
    )


def _solved_table(split: PooledSplit, confidence: float) -> Table:
    level = percent(confidence)
    return Table(
        title=f"Solved share in points, {split_name(split.split)}, {_runs(split)} pooled",
        columns=(
            "comparison",
            "tasks",
            "difference",
            f"{level} interval",
            "exact p",
            "runs agree",
            "further runs",
            "detectable",
        ),
        rows=tuple(_solved_row(pair) for pair in split.pairs),
        notes=(
            f"{level} interval and exact p: of these very adapters, tasks as the random unit.",
            f"further runs: {level} t interval of the mean over training runs on these tasks, {_degrees(split)}.",
            "detectable: the smallest true difference, the same in every run, that this study would have claimed with "
            "80 % power.",
            "Each interval is for its own comparison alone; none is widened for the number of comparisons.",
        ),
    )


def _solved_row(pair: PooledPair) -> tuple[str, ...]:
    if not pair.tasks:
        return (_pair_name(pair), "0", *[NONE] * 6)
    difference, interval = points(pair.solved.adapters)
    return (
        _pair_name(pair),
        str(pair.tasks),
        difference,
        interval,
        p_cell(pair.solved.adapters.p),
        "yes" if pair.solved.agree else "no",
        further_points(pair.solved) or NONE,
        NONE if pair.detectable is None else str(math.ceil(100 * pair.detectable)),
    )


def _calls_table(split: PooledSplit, confidence: float) -> Table:
    level = percent(confidence)
    return Table(
        title=f"Tool calls on tasks both solved in one run, {split_name(split.split)}, {_runs(split)} pooled",
        columns=(
            "comparison",
            "tasks",
            "met",
            "new",
            "old",
            "difference",
            f"{level} interval",
            "change",
            "runs agree",
            "further runs",
        ),
        rows=tuple(_calls_row(pair) for pair in split.pairs),
        notes=("met: how often, in all runs together, both solved one of these tasks in the same run.",),
    )


def _calls_row(pair: PooledPair) -> tuple[str, ...]:
    compared = pair.calls
    if compared.old is None or compared.new is None:
        return (_pair_name(pair), "0", "0", *[NONE] * 7)
    difference, interval = calls(compared.effect.adapters)
    return (
        _pair_name(pair),
        str(compared.tasks),
        str(compared.meetings),
        number(compared.new, 2),
        number(compared.old, 2),
        difference,
        interval if compared.effect.adapters.interval else NONE,
        NONE if compared.percent is None else f"{number(compared.percent.value, 0, sign=True)} %",
        "yes" if compared.effect.agree else "no",
        further_calls(compared.effect) or NONE,
    )


def _family_table(split: PooledSplit) -> Table:
    labels = [policy.label for policy in split.policies]
    return Table(
        title=f"Solved share by family, {split_name(split.split)}, {_runs(split)} pooled",
        columns=("family", "tasks", *labels),
        rows=tuple(
            (family.family, str(family.tasks), *(_share(family.solved[label]) for label in labels))
            for family in split.families
        ),
        notes=("A family has few tasks: these shares show where, and claim nothing.",),
    )


def _pair_name(pair: PooledPair) -> str:
    return f"{pair.new} − {pair.old}"


def _runs(split: PooledSplit) -> str:
    return "1 run" if len(split.seeds) == 1 else f"{len(split.seeds)} runs"


def _degrees(split: PooledSplit) -> str:
    runs = len(split.seeds)
    if runs < 2:
        return "which one run does not give"
    wide = ", so wide" if runs < 6 else ""
    return f"{runs - 1} degrees of freedom{wide}"


def _share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def _points(value: float | None) -> str:
    return NONE if value is None else number(100 * value, 1, sign=True)
