"""A study read back from its directory and from its export: the same report, line for line, and damage named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_samples import DIGEST, rollouts_of, sessions_of, solved, study_of, write_study

from harness_adapters.errors import RunError
from harness_adapters.evaluation.evaluated import Evaluated
from harness_adapters.evaluation.export import read_export, write_export
from harness_adapters.evaluation.from_study import STUDY, read_study, run_folders
from harness_adapters.evaluation.study import compare_study
from harness_adapters.evaluation.study_tables import render_study
from harness_adapters.records import Outcome, Rollout


def some_runs() -> dict[int, list[Rollout]]:
    return {
        seed: rollouts_of({"base": solved(1, 20), "warm": solved(8, 20, 3), "final": solved(count, 20, 2)})
        + rollouts_of({"base": solved(0, 6), "warm": solved(1, 6), "final": solved(2, 6)}, split="unseen")
        for seed, count in ((1, 12), (2, 15), (3, 11))
    }


def report(path: Path, form: str = "text") -> str:
    return render_study(compare_study(read_study(path)), form)


def test_a_directory_gives_the_numbers_of_its_rollouts(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "s", some_runs()))
    assert (study.facts.name, study.facts.seeds, study.facts.test_set) == ("mine", (1, 2, 3), DIGEST)
    assert study.harness == "pi"
    assert list(study.runs) == [1, 2, 3]
    assert study.gaps() == ()
    pairs = compare_study(study).splits[0].pairs
    assert pairs[1].solved.by_run == pytest.approx((0.2, 0.35, 0.15))


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
@pytest.mark.parametrize("whole", [True, False])
def test_the_export_gives_the_same_report_line_for_line(tmp_path: Path, form: str, whole: bool) -> None:
    runs = some_runs()
    runs[2][0] = replace(runs[2][0], outcome=Outcome.INFRA, reward=None, ended_by="no\u2028sandbox \u00e9")
    folder = write_study(tmp_path / "s", runs)
    if not whole:
        next(folder.glob("mine-s1-*/.done/evaluate")).unlink()
        next(folder.glob("mine-s3-*/config.resolved.toml")).unlink()
    export = tmp_path / "sessions.jsonl"
    assert write_export(export, read_study(folder)) == (234 if whole else 156)
    assert report(export, form) == report(folder, form)
    assert ("has not been evaluated" in report(export, form)) is not whole
    write_export(tmp_path / "again.jsonl", read_study(export))
    assert (tmp_path / "again.jsonl").read_bytes() == export.read_bytes()


def test_an_export_is_small_enough_to_be_committed(tmp_path: Path) -> None:
    results = {label: solved(40, 100) for label in ("base", "warm", "final")}
    runs = {
        seed: sessions_of(results) + sessions_of({k: v[:40] for k, v in results.items()}, "unseen")
        for seed in (1, 2, 3)
    }
    sessions = write_export(tmp_path / "x.jsonl", study_of(runs))
    assert sessions == 1260
    assert (tmp_path / "x.jsonl").stat().st_size < 100_000


names = st.text(min_size=1, max_size=12)
session_records = st.builds(
    Evaluated,
    split=names,
    label=names,
    task=st.text(max_size=12),
    family=st.text(max_size=12),
    attempt=names,
    outcome=st.just(Outcome.INFRA),
    solved=st.booleans(),
    tool_calls=st.integers(0, 2**40),
    blocked=st.booleans(),
    tokens=st.integers(0, 2**40),
    ended_by=st.text(max_size=12),
)


@settings(max_examples=60, deadline=None)
@given(runs=st.dictionaries(st.integers(0, 2**31 - 1), st.lists(session_records, min_size=1, max_size=5), min_size=1))
def test_any_sessions_come_back_equal(
    tmp_path_factory: pytest.TempPathFactory, runs: dict[int, list[Evaluated]]
) -> None:
    path = tmp_path_factory.mktemp("export") / "x.jsonl"
    study = study_of(runs)
    write_export(path, study)
    assert read_export(path) == study


def test_a_seed_without_a_run_or_a_session_is_told(tmp_path: Path) -> None:
    runs = some_runs()
    folder = write_study(tmp_path / "s", {**runs, 2: []})
    assert read_study(folder).gaps() == ("seed 2 has not been evaluated",)
    next(folder.glob("mine-s3-*/eval/*.json")).unlink()
    assert read_study(folder).gaps()[1].startswith("seed 3: the evaluation had 78 sessions and 77 are here")


def test_runs_of_other_tasks_are_told(tmp_path: Path) -> None:
    runs = some_runs()
    runs[3] = rollouts_of({label: solved(3, 19) for label in ("base", "warm", "final")})
    assert read_study(write_study(tmp_path / "s", runs)).gaps() == (
        "the runs were not judged on the same tasks: 19 of 26 are in every run",
    )


def test_what_contradicts_itself_is_refused_with_its_name(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "s", some_runs())
    first = next(folder.glob("mine-s1-*"))
    config = first / "config.resolved.toml"
    text = config.read_text()
    for old, new, complaint in (
        ("seed = 1", "seed = 9", "is the run of seed 9, which is not the study's"),
        ("seed = 1", "seed = 2", "are both of seed 2"),
        (DIGEST, "sha256:" + "0" * 64, "its study sha256:5555"),
        ("seed = 1", "seed = ", "cannot read"),
    ):
        config.write_text(text.replace(old, new))
        with pytest.raises(RunError, match=complaint):
            read_study(folder)
    config.write_text(text)
    rollout = json.loads((path := next((first / "eval").iterdir())).read_text())
    for file in (first / "eval").iterdir():
        file.write_text(json.dumps({**json.loads(file.read_text()), "harness": "opencode"}))
    with pytest.raises(RunError, match="several harnesses: opencode, pi"):
        read_study(folder)
    path.write_text(json.dumps(rollout))
    with pytest.raises(RunError, match="several harnesses"):
        read_study(folder)


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no study"):
        read_study(tmp_path / "absent")
    with pytest.raises(RunError, match=f"it has no {STUDY}"):
        read_study(tmp_path)
    empty = write_study(tmp_path / "s", {1: [], 2: []})
    with pytest.raises(RunError, match="has no evaluated session"):
        read_study(empty)
    (empty / STUDY).write_text('seeds = ["one"]\n')
    with pytest.raises(RunError, match="names no seeds"):
        read_study(empty)
    (empty / STUDY).write_text("seeds = [")
    with pytest.raises(RunError, match="cannot read"):
        read_study(empty)


def test_runs_are_found_by_their_seeds_and_half_made_folders_passed_over(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "s", {3: [], 1: []})
    (folder / "mine-s2-20261201-000000").mkdir()
    assert list(run_folders(folder, (1, 2, 3))) == [1, 3]


DAMAGE = [
    (0, b"", "is not an exported study"),
    (0, b"[]", "is not an exported study"),
    (0, b'{"study":2}', "is not an exported study"),
    (0, b"{", "is not an exported study"),
    (3, b"{", "line 4 is not an array"),
    (3, b"{}", "line 4 is not an array of 12 values"),
    (3, b"[1]", "line 4 is not an array"),
    (3, b"[" * 100_000, "line 4 is not an array"),
    (3, b"\xff", "line 4 is not an array"),
]


@pytest.mark.parametrize(("line", "damage", "complaint"), DAMAGE)
def test_a_damaged_export_is_named_by_its_line(tmp_path: Path, line: int, damage: bytes, complaint: str) -> None:
    path = tmp_path / "x.jsonl"
    write_export(path, study_of({1: sessions_of({"base": solved(1, 5), "final": solved(2, 5)})}))
    lines = path.read_bytes().split(b"\n")
    lines[line] = damage
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(RunError, match=complaint) as caught:
        read_study(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        (0, 2, "line 3 is of seed 2, which the first line does not name"),
        (0, "1", "seed cannot be"),
        (1, "", "split cannot be"),
        (6, "won", "outcome cannot be"),
        (7, 2, "solved cannot be"),
        (8, -1, "tool_calls cannot be"),
        (8, True, "tool_calls cannot be"),
        (10, 1.5, "tokens cannot be"),
        (3, "heldout-000", "line 3 is a second result of one session"),
    ],
)
def test_a_session_that_cannot_be_is_named(tmp_path: Path, column: int, value: object, complaint: str) -> None:
    path = tmp_path / "x.jsonl"
    write_export(path, study_of({1: sessions_of({"base": solved(1, 5), "final": solved(2, 5)})}))
    lines = path.read_text().split("\n")
    session = json.loads(lines[2])
    session[column] = value
    lines[2] = json.dumps(session)
    path.write_text("\n".join(lines))
    with pytest.raises(RunError, match=complaint):
        read_study(path)


@pytest.mark.parametrize(
    ("key", "value"), [("confidence", 1.0), ("seeds", 3), ("runs", {"1": {"planned": -1, "tasks": 0}}), ("runs", [])]
)
def test_a_damaged_head_is_named(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "x.jsonl"
    write_export(path, study_of({1: sessions_of({"base": solved(1, 5)})}))
    head, *rest = path.read_text().split("\n")
    path.write_text("\n".join([json.dumps({**json.loads(head), key: value}), *rest]))
    with pytest.raises(RunError, match="line 1 is damaged"):
        read_study(path)
