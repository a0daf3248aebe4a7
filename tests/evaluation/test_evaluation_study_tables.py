"""A study's report: every form shows the same cells, fits its place, and hides no run."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from study_samples import DIGEST, session, sessions_of, solved, study_of

from harness_adapters.evaluation.compare import compare_sessions
from harness_adapters.evaluation.evaluated import Evaluated
from harness_adapters.evaluation.study import StudyComparison, compare_study
from harness_adapters.evaluation.study_claim import sentences
from harness_adapters.evaluation.study_tables import render_study, study_json, study_tables
from harness_adapters.evaluation.tables import WIDTH, render_text


def sample_runs(seeds: int) -> dict[int, tuple[Evaluated, ...]]:
    rng = random.Random(seeds)

    def some(share: float, of: int) -> list[tuple[bool, int]]:
        return [(rng.random() < share, rng.randint(1, 4)) for _ in range(of)]

    return {
        seed: sessions_of({"base": some(0.02, 100), "warm": some(0.5, 100), "final": some(0.6, 100)})
        + sessions_of({"base": some(0, 40), "warm": some(0.1, 40), "final": some(0.2, 40)}, split="unseen")
        for seed in range(1, seeds + 1)
    }


@pytest.fixture(scope="module")
def compared() -> StudyComparison:
    return compare_study(study_of(sample_runs(3)))


@pytest.mark.parametrize("seeds", [1, 3, 12])
def test_text_fits_a_hundred_columns_for_any_number_of_runs(seeds: int) -> None:
    text = render_study(compare_study(study_of(sample_runs(seeds))))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_the_report_begins_with_what_it_is_of(compared: StudyComparison) -> None:
    head = render_study(compared).split("\n\n")
    assert head[0].splitlines()[0] == "Study mine"
    assert head[1] == "pi; training runs of seeds 1, 2, 3, 3 of 3 evaluated"
    assert head[2] == f"test set {DIGEST}"


def test_every_sentence_and_cell_is_in_both_forms(compared: StudyComparison) -> None:
    text, markdown = render_study(compared), render_study(compared, "markdown").replace("\\", "")
    for split in compared.splits:
        for sentence in sentences(compared, split):
            assert sentence in " ".join(text.split())
            assert f"**{sentence}**" in markdown
        for table in study_tables(split, 0.95):
            assert table.title in text
            assert f"### {table.title}" in markdown
            for row in table.rows:
                assert f"| {' | '.join(row)} |" in markdown
                assert all(cell in text for cell in row)


def test_every_run_has_the_tables_that_its_own_comparison_has(compared: StudyComparison) -> None:
    text = render_study(compared)
    for seed, sessions in sample_runs(3).items():
        own = render_text(compare_sessions(sessions, harness="pi", confidence=0.95))
        section = text.split(f"The run of seed {seed}\n")[1]
        tables = [block for block in own.split("\n\n") if "\n---" in block]
        assert len(tables) == 6
        for block in tables:
            assert block.strip() in section


def test_no_run_is_called_significant_by_itself(compared: StudyComparison) -> None:
    by_run = render_study(compared).split("The run of seed 1")[1]
    assert "are solved" not in by_run
    assert "solves more" not in by_run


def test_a_gap_is_said_before_anything_else() -> None:
    text = render_study(compare_study(study_of(sample_runs(2), seeds=(1, 2, 3))))
    assert text.index("Missing: seed 3 has not been evaluated.") < text.index("Held-out tasks, all runs")
    assert "2 of 3 evaluated" in text


def test_the_shares_of_families_and_runs_stand_in_their_rows() -> None:
    runs = {seed: sessions_of({"warm": solved(2, 8), "final": solved(count, 8)}) for seed, count in ((4, 4), (9, 8))}
    (split,) = compare_study(study_of(runs)).splits
    policies, by_run, solved_table, calls, families = study_tables(split, 0.95)
    assert [row[3] for row in policies.rows] == ["25.0 %", "75.0 %"]
    assert by_run.rows == (("4", "25.0 %", "50.0 %", "+25.0"), ("9", "25.0 %", "100.0 %", "+75.0"))
    assert solved_table.rows[0][:3] == ("final − warm", "8", "+50")
    assert solved_table.rows[0][5] == "yes"
    assert calls.rows[0][:5] == ("final − warm", "2", "4", "2.00", "2.00")
    assert families.rows[0] == ("f0", "2", "50.0 %", "75.0 %")


def test_an_empty_place_is_a_dash(compared: StudyComparison) -> None:
    lone = compare_study(study_of({1: [session("base", "a", False), session("final", "b", False)]}))
    for table in study_tables(lone.splits[0], 0.95):
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert "None" not in row
            assert "nan" not in " ".join(row)


def test_json_is_plain_and_carries_sentences_and_claims(compared: StudyComparison) -> None:
    data = json.loads(json.dumps(study_json(compared), allow_nan=False))
    assert json.loads(render_study(compared, "json")) == data
    assert data["facts"]["seeds"] == [1, 2, 3]
    assert list(data["runs"]) == ["1", "2", "3"]
    first = data["splits"][0]
    assert tuple(first["sentences"]) == sentences(compared, compared.splits[0])
    for encoded, pair in zip(first["pairs"], compared.splits[0].pairs, strict=True):
        assert encoded["solved"]["claimed"] == pair.solved.claimed
        assert encoded["solved"]["further"].keys() == {"low", "high"}
    broken = study_json(replace(compared, gaps=("seed 3 is gone",)))
    assert not any(pair["solved"]["claimed"] for split in broken["splits"] for pair in split["pairs"])


def test_hostile_names_reach_neither_terminal_nor_markup() -> None:
    label = "\x1b[31m|`x`<script>\n" + "x" * 300
    sessions = sessions_of({label: solved(1, 3), "base": solved(1, 3)})
    compared = compare_study(study_of({1: [replace(session, family=label) for session in sessions]}))
    text, markdown = render_study(compared), render_study(compared, "markdown")
    assert all(character.isprintable() or character == "\n" for character in text + markdown)
    assert "<script>" not in markdown.replace("\\<script\\>", "")


def test_another_form_is_refused(compared: StudyComparison) -> None:
    with pytest.raises(ValueError, match="not 'yaml'"):
        render_study(compared, "yaml")
