"""`harness-adapters study` without a model: what it prints to be committed, what it refuses, what it reports again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness_adapters.cli.main import main
from harness_adapters.config import read_toml
from harness_adapters.records import CallLabel, ModelCall, Outcome, RewardParts, Rollout
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.pools import task_pools
from harness_adapters.runs.study import StudyDirectory
from harness_adapters.runs.study_config import load_study, resolve

FILE = """
preset = "study"
name = "mine"
[tasks]
train = 8
heldout = 12
unseen = 5
"""


def run(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness_adapters", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=dict(os.environ),
        timeout=300,
        check=False,
    )


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The two lines, cause and next step, that a command ends with."""
    with pytest.raises(SystemExit) as left:
        main([str(arg) for arg in args])
    err = capsys.readouterr().err
    assert left.value.code == 1, err
    lines = err.splitlines()
    assert [line[:5] for line in lines] == ["error", "  -> "], err
    return err


def study_file(folder: Path, text: str = FILE) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def rollout(label: str, task: str, family: str, split: str, number: int, seed: int) -> Rollout:
    solved = number % 4 < {"base": 0, "warm": 1, "final": 1 + seed % 3}[label]
    return Rollout(
        id=f"{label}-{task}-a0",
        task=task,
        family=family,
        group="",
        harness="pi",
        policy=label,
        outcome=Outcome.GRADED,
        reward=RewardParts(float(solved), 0.0, False, float(solved)),
        calls=(ModelCall(0, label, (1, 2), (3, 4), (-0.1, -0.2), "stop", CallLabel.AGENT),),
        tool_calls=1 + number % 2,
        ended_by="stop",
        tags={"split": split, "policy_label": label, "attempt": "0"},
    )


def made_up_study(parent: Path) -> Path:
    """A study directory as a study leaves it, its sessions alone made up."""
    with StudyDirectory.create(parent, resolve(load_study(study_file(parent)))) as study:
        for seed in study.config.seeds:
            with RunDirectory.create(study.path, study.config.run_of(seed)) as one:
                pools = task_pools(one)
                sessions = [
                    rollout(label, task.id, task.family, split, number, seed)
                    for split in ("heldout", "unseen")
                    for number, task in enumerate(pools[split])
                    for label in ("base", "warm", "final")
                ]
                for session in sessions:
                    one.save_rollout("eval", session)
                one.mark_done("evaluate", sessions=len(sessions))
        return study.path


def test_a_dry_run_prints_a_study_to_be_committed_that_reads_back_and_writes_nothing(tmp_path: Path) -> None:
    file = study_file(tmp_path)
    first = run("study", file, "--seeds", "4,9", "--dry-run", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert list(tmp_path.iterdir()) == [file]
    assert first.stdout.startswith("seeds = [4, 9]\n")
    committed = study_file(tmp_path, first.stdout)
    assert read_toml(committed)["frozen"]["test_set"].startswith("sha256:")
    assert run("study", committed, "--dry-run").stdout == first.stdout


def test_a_test_set_that_differs_from_the_frozen_one_is_refused_with_both_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen = resolve(load_study(study_file(tmp_path))).run.frozen.test_set
    other = "sha256:" + "0" * 64
    file = study_file(tmp_path, f'{FILE}\n[frozen]\ntest_set = "{other}"\n')
    for flags in (["--dry-run"], ["--runs", tmp_path / "runs"]):
        said = refused(capsys, "study", file, *flags)
        assert frozen in said
        assert other in said
    assert not (tmp_path / "runs").exists()


def test_a_report_is_made_anew_from_the_directory_and_from_its_export_line_for_line(tmp_path: Path) -> None:
    folder = made_up_study(tmp_path)
    export = tmp_path / "sessions.jsonl"
    first = run("study", "--from", folder, "--export", export)
    assert first.returncode == 0, first.stderr
    assert first.stderr == f"153 sessions in {export}\n"
    assert "What GRPO added to the warm start on held-out tasks: " in " ".join(first.stdout.split())
    for form in ("text", "markdown", "json"):
        there, here = (run("study", "--from", source, "--format", form) for source in (folder, export))
        assert there.returncode == here.returncode == 0
        assert there.stdout == here.stdout
    assert run("study", "--from", export).stdout == first.stdout
    assert json.loads(run("study", "--from", export, "--format", "json").stdout)["facts"]["seeds"] == [1, 2, 3]
    assert export.stat().st_size < 20_000


def test_half_a_study_says_so_and_claims_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made_up_study(tmp_path)
    next(folder.glob("mine-s3-*/.done/evaluate")).unlink()
    for session in list(folder.glob("mine-s3-*/eval/*"))[:9]:
        session.unlink()
    with pytest.raises(SystemExit) as left:
        main(["study", "--from", str(folder)])
    assert left.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Missing: seed 3: evaluation is not finished: 42 of 51 sessions." in said
    assert "The study is not whole, so nothing is claimed of it" in said
    assert "are solved" not in said


def test_a_flag_that_would_do_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = study_file(tmp_path)
    assert "give one of the three" in refused(capsys, "study")
    assert "give one of the three" in refused(capsys, "study", file, "--resume", tmp_path)
    assert "give one of the three" in refused(capsys, "study", "--from", tmp_path, "--resume", tmp_path)
    assert "--format goes with --from" in refused(capsys, "study", file, "--format", "json")
    assert "--export goes with --from" in refused(capsys, "study", "--resume", tmp_path, "--export", "x")
    for flag in (["--seeds", "1"], ["--runs", "r"], ["--dry-run"]):
        assert f"{flag[0]} goes with a FILE.toml" in refused(capsys, "study", "--resume", tmp_path, *flag)
        assert f"{flag[0]} goes with a FILE.toml" in refused(capsys, "study", "--from", tmp_path, *flag)


def test_what_is_no_study_is_refused_with_the_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is no study" in refused(capsys, "study", "--resume", tmp_path)
    assert "is no study" in refused(capsys, "study", "--from", tmp_path)
    assert "no study" in refused(capsys, "study", "--from", tmp_path / "absent")
    assert "cannot read" in refused(capsys, "study", tmp_path / "absent.toml")
    assert "not an exported study" in refused(capsys, "study", "--from", study_file(tmp_path))


def test_seeds_that_are_no_numbers_are_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["study", str(study_file(tmp_path)), "--seeds", "1,x"])
    assert left.value.code == 2
    assert "error: argument --seeds: " in capsys.readouterr().err
    assert "names a seed twice" in refused(capsys, "study", study_file(tmp_path), "--seeds", "1,1")
