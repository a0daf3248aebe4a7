"""One self-contained `report.html` of a run: what was trained, what may be claimed, the numbers, what was blocked.

Invariants
- No script, no external asset; a content security policy in the page forbids both.
- Every value passes `_text`, which escapes it; what a model wrote cannot become markup.
- The file appears whole or not at all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from harness_adapters.evaluation.chart import Series, line_chart
from harness_adapters.evaluation.claim import policy_name, sentence, split_sentence
from harness_adapters.evaluation.compare import Comparison
from harness_adapters.evaluation.from_run import TrainingPoint
from harness_adapters.evaluation.tables import Table, build_tables, plain
from harness_adapters.records import Decision, ModelCall, Outcome, Rollout
from harness_adapters.storage import write_atomic

_LONGEST_TEXT = 4000

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5d6570; --line: #d9dde2; --page: #fff; --card: #f5f6f8;
  --accent: #2456b8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa3ae; --line: #3a4048; --page: #16181b;
  --card: #1f2226; --accent: #7fa8f5; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.claim { border-left: 4px solid var(--accent); padding: .2rem 0 .2rem 1rem; font-size: 1.05rem; }
.soft, figcaption, .notes { color: var(--soft); font-size: .88rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .4rem 0; font-size: .92rem; }
caption { text-align: left; font-weight: 600; padding: .6rem 0 .2rem; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child, .words td, .words th { text-align: left; } .words td { white-space: normal; }
.notes { margin: .2rem 0 1rem; padding: 0; list-style: none; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: 1rem; margin: 0; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg .chart-title { fill: var(--ink); font-size: 13px; font-weight: 600; } svg .value { fill: var(--ink); }
.grid { stroke: var(--line); } .line { fill: none; stroke: var(--accent); stroke-width: 2; }
.dot { fill: var(--accent); }
details { background: var(--card); border-radius: 6px; margin: .5rem 0; padding: .5rem .9rem; }
summary { cursor: pointer; } pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--card);
  border-radius: 6px; padding: .6rem .8rem; font-size: .85rem; } details pre { background: var(--page); }
"""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What was trained and how the adapter is served. `recipe` and `versions` are shown in their order.

    `serve` holds the commands, one a line, that put the adapter to use.
    """

    name: str
    base_model: str
    harness: str
    seed: int
    recipe: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    serve: Sequence[str] = ()


def write_report(
    path: Path,
    comparison: Comparison,
    run_info: RunInfo,
    training_curve: Sequence[TrainingPoint],
    rollouts: Sequence[Rollout],
    *,
    examples: int = 6,
) -> None:
    """Write the report to `path`, replacing an older one in one step.

    `rollouts` are those of evaluation and training; blocked calls are counted over all of them, and `examples`
    evaluation rollouts of the newest policy are shown whole. Raises InfraError when the disk refuses.
    """
    page = render_report(comparison, run_info, training_curve, rollouts, examples=examples)
    write_atomic(path, page.encode("utf-8", "replace"))


def render_report(
    comparison: Comparison,
    run_info: RunInfo,
    training_curve: Sequence[TrainingPoint],
    rollouts: Sequence[Rollout],
    *,
    examples: int = 6,
) -> str:
    """The report as one HTML document."""
    title = f"{run_info.name}: {run_info.harness} adapter"
    sections = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="soft">LoRA adapter of {_text(run_info.base_model)} for {_text(run_info.harness)}</p>',
        f'<p class="claim">{_text(sentence(comparison))}</p>',
        _section("Evaluation", _evaluation(comparison)),
        _section("Training", _training(training_curve)),
        _section("Calls the guard flagged", _guard_table(rollouts)),
        _section("Example sessions", "".join(_example(rollout) for rollout in pick_examples(rollouts, examples))),
        _section("What was trained", _trained(run_info)),
        _section("Serve the adapter", _serve(run_info.serve)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def pick_examples(rollouts: Iterable[Rollout], count: int) -> list[Rollout]:
    """Evaluation rollouts of the final adapter (or, without one, of any policy), as mixed as `count` allows.

    Solved, unsolved and blocked ones take turns, each in the order given, so that failures are shown too.
    """
    evaluated = [
        rollout for rollout in rollouts if rollout.tags.get("policy_label") and rollout.outcome is Outcome.GRADED
    ]
    finals = [rollout for rollout in evaluated if rollout.tags["policy_label"] == "final"] or evaluated
    kinds = [
        [rollout for rollout in finals if rollout.solved],
        [rollout for rollout in finals if not rollout.solved and not rollout.blocked],
        [rollout for rollout in finals if rollout.blocked],
    ]
    rounds = max(map(len, kinds))
    return [kind[index] for index in range(rounds) for kind in kinds if index < len(kind)][:count]


def _evaluation(comparison: Comparison) -> str:
    parts = []
    for index, split in enumerate(comparison.splits):
        if index:
            parts.append(f'<p class="claim">{_text(split_sentence(split, comparison.confidence))}</p>')
        parts += [_html_table(table) for table in build_tables(split, comparison.confidence)]
    return "".join(parts)


def _training(curve: Sequence[TrainingPoint]) -> str:
    if not curve:
        return ""
    steps = [point.step for point in curve]
    charts = [
        Series("Reward", steps, [point.reward for point in curve]),
        Series("Solved share", steps, [point.solved for point in curve], percent=True, top=1.0),
        Series("Tool calls a session", steps, [point.tool_calls for point in curve]),
    ]
    count = sum(point.rollouts for point in curve)
    return (
        f'<figure class="charts">{"".join(map(line_chart, charts))}</figure>'
        f'<p class="soft">Means over {count} training sessions in {len(curve)} steps, on training tasks: they show '
        "the course of training, not what the adapter is worth.</p>"
    )


def _guard_table(rollouts: Sequence[Rollout]) -> str:
    counts: Counter[tuple[str, Decision]] = Counter()
    reasons: dict[tuple[str, Decision], str] = {}
    for rollout in rollouts:
        for verdict in (verdict for call in rollout.calls for verdict in call.verdicts):
            if verdict.decision is not Decision.ALLOW:
                counts[verdict.rule, verdict.decision] += 1
                reasons.setdefault((verdict.rule, verdict.decision), verdict.reason)
    if not counts:
        return f"<p>None in {len(rollouts)} sessions.</p>"
    rows = "".join(
        f"<tr><td>{_text(rule)}</td><td>{decision.value}</td><td>{count}</td>"
        f"<td>{_text(reasons[rule, decision][:300])}</td></tr>"
        for (rule, decision), count in counts.most_common()
    )
    head = "<tr><th>rule</th><th>decision</th><th>calls</th><th>reason, first case</th></tr>"
    caption = f"<caption>Training and evaluation, {len(rollouts)} sessions</caption>"
    return f'<div class="wide"><table class="words">{caption}{head}{rows}</table></div>'


def _example(rollout: Rollout) -> str:
    state = "blocked" if rollout.blocked else "solved" if rollout.solved else "not solved"
    label = policy_name(rollout.tags.get("policy_label", rollout.policy))
    summary = f"{rollout.task} · {label} · {state} · {_plural(rollout.tool_calls, 'tool call')}"
    reward = ""
    if rollout.reward is not None:
        parts = rollout.reward
        reward = (
            f"<p>Reward {parts.total:.3f}: verifier {parts.verifier:.3f}, bonus {parts.bonus:.3f}"
            f"{', set to 0 by the guard' if parts.blocked else ''}. "
            f"Ended by {_text(rollout.ended_by or 'unknown')}.</p>"
        )
    calls = "".join(_model_call(call) for call in rollout.calls)
    return f"<details><summary>{_text(summary)}</summary>{reward}{calls}</details>"


def _model_call(call: ModelCall) -> str:
    lines = [call.text] if call.text else []
    for tool in call.tool_calls:
        arguments = (
            tool.arguments if isinstance(tool.arguments, str) else json.dumps(tool.arguments, ensure_ascii=False)
        )
        lines.append(f"→ {tool.name} {arguments}")
    for verdict in call.verdicts:
        if verdict.decision is not Decision.ALLOW:
            lines.append(f"✗ {verdict.decision.value} by {verdict.rule}: {verdict.reason}")
    text = "\n".join(lines)
    cut = f"\n… {len(text) - _LONGEST_TEXT} more characters" if len(text) > _LONGEST_TEXT else ""
    head = f"Call {call.index + 1}, {call.label.value}, {_plural(len(call.completion_ids), 'token')}"
    return f'<p class="soft">{_text(head)}</p><pre>{_text(text[:_LONGEST_TEXT] + cut)}</pre>'


def _trained(run_info: RunInfo) -> str:
    facts = {
        "base model": run_info.base_model,
        "harness": run_info.harness,
        "seed": str(run_info.seed),
        **run_info.recipe,
        **{f"{package} version": version for package, version in run_info.versions.items()},
    }
    rows = "".join(f"<tr><td>{_text(key)}</td><td>{_text(value)}</td></tr>" for key, value in facts.items())
    return f'<div class="wide"><table class="words">{rows}</table></div>'


def _serve(commands: Sequence[str]) -> str:
    lines = "\n".join(commands)
    return f"<pre>{_text(lines)}</pre>" if commands else ""


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    notes = "".join(f"<li>{_text(note)}</li>" for note in table.notes)
    return f'<div class="wide"><table><caption>{_text(table.title)}</caption><tr>{head}</tr>{rows}</table></div>' + (
        f'<ul class="notes">{notes}</ul>' if notes else ""
    )


def _section(title: str, body: str) -> str:
    return f"<h2>{_text(title)}</h2>{body}" if body else ""


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _text(value: str) -> str:
    """`value` safe in an HTML text or attribute: escaped, control and invisible characters replaced, line ends kept."""
    return "\n".join(escape(plain(line)) for line in value.split("\n"))
