"""Tables: every form shows the same cells, fits its place, and lets nothing hostile through."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from evaluation_samples import MakeRollout

from harness_adapters.evaluation.compare import Comparison, compare
from harness_adapters.evaluation.statistics import Interval
from harness_adapters.evaluation.tables import WIDTH, build_tables, render, render_markdown, render_text, to_json


@pytest.fixture
def comparison(make_rollout: MakeRollout) -> Comparison:
    rollouts = []
    for split, tasks in (("heldout", 40), ("unseen", 12)):
        for task in range(tasks):
            for label, solves, calls in (("base", 9, 4 + task % 3), ("warm", 2, 4 - task % 2), ("final", 1, 3)):
                rollouts.append(make_rollout(label, f"{split}-{task}", task % solves == 0, calls, split=split))
    return compare(rollouts)


def test_text_fits_a_hundred_columns_and_is_aligned(comparison: Comparison) -> None:
    text = render_text(comparison)
    assert max(map(len, text.splitlines())) <= WIDTH
    rules = [line for line in text.splitlines() if line.startswith("----")]
    assert len(rules) == 2 * 6
    block = text.split("\n\n")[1].splitlines()
    assert len({len(line) for line in block[2:3] + block[4:7]}) == 1
    assert {line.index("%") for line in block[4:7]} == {block[4].index("%")}


def test_every_cell_is_in_every_form(comparison: Comparison) -> None:
    text, markdown = render_text(comparison), render_markdown(comparison).replace("\\", "")
    for split in comparison.splits:
        for table in build_tables(split, comparison.confidence):
            for row in table.rows:
                assert f"| {' | '.join(row)} |" in markdown
                assert all(cell in text for cell in row)


def test_hostile_labels_neither_break_a_table_nor_reach_the_terminal(make_rollout: MakeRollout) -> None:
    label = "\x1b[31mred|`x`<script>\n" + "x" * 300
    rollouts = [make_rollout(label, "t", ended_by="\x1b]0;title\x07"), make_rollout("base", "t")]
    comparison = compare(rollouts, pairs=[(label, "base")])
    text, markdown = render_text(comparison), render_markdown(comparison)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert all(character.isprintable() or character == "\n" for character in text + markdown)
    header = markdown.split("\n| ")[1].count("|")
    rows = [line for line in markdown.splitlines() if "red" in line and line.startswith("| ")]
    assert rows
    assert rows[0].replace("\\|", "").count("|") - 1 == header
    assert "<script>" not in markdown.replace("\\<script\\>", "")


def test_json_is_plain_and_carries_the_sentences(comparison: Comparison) -> None:
    data = json.loads(json.dumps(to_json(comparison), allow_nan=False))
    assert data["sentence"] == data["splits"][0]["sentence"]
    assert data["sentence"].startswith("The adapter solves more")
    assert {policy["label"] for policy in data["splits"][1]["policies"]} == {"base", "warm", "final"}
    assert data["splits"][0]["pairs"][0]["solved"]["interval"].keys() == {"low", "high"}


def test_an_infinite_end_becomes_null_in_json(comparison: Comparison) -> None:
    split = comparison.splits[0]
    policy = replace(split.policies[0], interval=Interval(0.0, float("inf")))
    changed = replace(comparison, splits=(replace(split, policies=(policy,)),))
    assert to_json(changed)["splits"][0]["policies"][0]["interval"] == {"low": 0.0, "high": None}


def test_an_empty_comparison_still_renders() -> None:
    assert render_text(compare([])) == "No evaluation rollout was found, so nothing can be claimed.\n"
    assert to_json(compare([]))["splits"] == []


def test_the_form_is_chosen_by_name(comparison: Comparison) -> None:
    assert render(comparison) == render_text(comparison)
    assert render(comparison, "markdown") == render_markdown(comparison)
    assert json.loads(render(comparison, "json")) == to_json(comparison)
    with pytest.raises(ValueError, match="not 'yaml'"):
        render(comparison, "yaml")
