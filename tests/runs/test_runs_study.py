"""A study runs every seed once, on one test set, and goes on after whatever stopped it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_support import STUDY, play, play_some, seed_of

from harness_adapters.config import load_config
from harness_adapters.errors import ConfigError, InfraError, RunError
from harness_adapters.evaluation.from_study import STUDY as RESOLVED
from harness_adapters.evaluation.from_study import read_study, run_folders
from harness_adapters.evaluation.study import compare_study
from harness_adapters.evaluation.study_tables import render_study
from harness_adapters.events import read_events
from harness_adapters.runs import stack
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.invocation import command
from harness_adapters.runs.pools import digest_of, task_pools
from harness_adapters.runs.study import StudyDirectory, resume_study, start_study
from harness_adapters.runs.study_config import StudyConfig, load_study, resolve


def study_file(folder: Path, text: str = STUDY) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def study(folder: Path, text: str = STUDY, seeds: tuple[int, ...] = ()) -> StudyConfig:
    return load_study(study_file(folder, text), seeds)


def only_study(parent: Path) -> Path:
    (path,) = (found.parent for found in parent.glob(f"*/{RESOLVED}"))
    return path


def kinds(run: Path) -> list[str]:
    return [event["kind"] for event in read_events(run / "events.jsonl")]


def test_every_seed_is_run_once_on_the_same_test_set_and_all_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start_study(study(tmp_path), tmp_path / "runs", play) == 0
    path = only_study(tmp_path / "runs")
    folders = run_folders(path, (1, 2, 3))
    assert list(folders) == [1, 2, 3]
    judged, trained = set(), set()
    for seed, folder in folders.items():
        assert folder.name.startswith(f"mine-s{seed}-")
        with RunDirectory.resume(folder) as run:
            assert run.config.seed == seed
            pools = task_pools(run)
            trained.add(digest_of({"train": pools.pop("train")}))
            judged.add(digest_of(pools))
            assert judged == {run.config.frozen.test_set}
    assert len(trained) == 3
    out, err = capsys.readouterr()
    text = render_study(compare_study(read_study(path)))
    assert text in out
    assert [f"seed {seed}, {seed} of 3: begins" in err for seed in (1, 2, 3)] == [True] * 3
    assert (path / "report.md").read_text() == render_study(compare_study(read_study(path)), "markdown")
    assert "3 of 3 evaluated" in text
    assert "Missing" not in text


def test_ctrl_c_prints_the_command_that_goes_on_and_a_done_seed_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[int] = []

    def interrupted(run: Path) -> int:
        played.append(seed_of(run))
        if seed_of(run) == 2:
            play_some(run, 1)
            raise KeyboardInterrupt
        return play(run)

    with pytest.raises(KeyboardInterrupt):
        start_study(study(tmp_path), tmp_path / "runs", interrupted)
    path = only_study(tmp_path / "runs")
    assert f"stopped; go on with: {command('study', '--resume', path)}\n" in capsys.readouterr().err
    assert not (path / "report.md").exists()
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file() and "mine-s1" in str(file)}
    (kept,) = path.glob("mine-s2-*/eval/*.json")
    written = kept.stat().st_mtime_ns

    def noted(run: Path) -> int:
        played.append(seed_of(run))
        return play(run)

    assert resume_study(path, noted) == 0
    assert played == [1, 2, 2, 3]
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert kept.stat().st_mtime_ns == written
    err = capsys.readouterr().err
    assert "seed 1, 1 of 3: done already, in mine-s1-" in err
    assert "seed 2, 2 of 3: goes on" in err
    assert resume_study(path, noted) == 0, "a study that is done reports again"
    assert played == [1, 2, 2, 3]


def test_a_killed_study_goes_on_where_it_was(tmp_path: Path) -> None:
    """`kill -9` while the second seed is half evaluated."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom study_support import play, play_some, seed_of\n"
        "from harness_adapters.runs.study import start_study\n"
        "from harness_adapters.runs.study_config import load_study\n"
        "def slow(run):\n"
        "    if seed_of(run) != 2: return play(run)\n"
        "    play_some(run, 7); print('half', flush=True); time.sleep(60)\n"
        "start_study(load_study(Path(sys.argv[1])), Path(sys.argv[2]), slow)\n"
    )
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(study_file(tmp_path)), str(tmp_path / "runs")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any(line == "half\n" for line in process.stdout)
    path = only_study(tmp_path / "runs")
    with pytest.raises(RunError, match="in use by another process"):
        resume_study(path, play)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (half,) = path.glob("mine-s2-*")
    before = {file: file.stat().st_mtime_ns for file in (half / "eval").iterdir()}
    assert len(before) == 7
    (path / "mine-s3-20261201-000000").mkdir()  # what a kill leaves that falls between a folder and its configuration
    assert resume_study(path, play) == 0
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert kinds(half).count("run_created") == 1
    assert read_study(path).gaps() == ()


def test_a_seed_that_was_evaluated_but_not_reported_is_taken_up_again(tmp_path: Path) -> None:
    start_study(study(tmp_path), tmp_path / "runs", play)
    path = only_study(tmp_path / "runs")
    (report,) = path.glob("mine-s2-*/report.html")
    report.unlink()
    played: list[int] = []

    def noted(run: Path) -> int:
        played.append(seed_of(run))
        return play(run)

    resume_study(path, noted)
    assert played == [2]
    assert report.exists()


def test_a_run_that_does_not_come_to_its_report_stops_the_study(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="came to an end without its report"):
        start_study(study(tmp_path), tmp_path / "runs", lambda run: 0)
    path = only_study(tmp_path / "runs")
    assert list(run_folders(path, (1, 2, 3))) == [1]
    assert resume_study(path, play) == 0


def test_a_run_that_fails_stops_the_study_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start_study(study(tmp_path), tmp_path / "runs", lambda run: 143) == 143
    path = only_study(tmp_path / "runs")
    assert f"stopped; go on with the whole study: {command('study', '--resume', path)}\n" in capsys.readouterr().err
    assert list(run_folders(path, (1, 2, 3))) == [1]
    assert resume_study(path, play) == 0


def test_a_run_or_a_study_file_that_was_edited_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="without its report"):
        start_study(study(tmp_path), tmp_path / "runs", lambda run: 0)
    path = only_study(tmp_path / "runs")
    (config,) = path.glob("mine-s1-*/config.resolved.toml")
    kept = config.read_text()
    config.write_text(kept.replace("grad_norm = 1.0", "grad_norm = 2.0"))
    with pytest.raises(RunError, match="another configuration than its study"):
        resume_study(path, play)
    config.write_text(kept)
    resolved = path / RESOLVED
    text = resolved.read_text()
    resolved.write_text("a_key_of_tomorrow = 1\n" + text)
    with pytest.raises(RunError, match=r"made by another version of the program.*a_key_of_tomorrow"):
        resume_study(path, play)
    resolved.write_text(text)
    assert resume_study(path, play) == 0
    with pytest.raises(RunError, match="is no study"):
        resume_study(tmp_path, play)


def test_a_study_for_tuning_is_judged_on_development_tasks_alone(tmp_path: Path) -> None:
    start_study(study(tmp_path, STUDY + 'evaluate_on = "dev"\n'), tmp_path / "runs", play)
    path = only_study(tmp_path / "runs")
    found = read_study(path)
    assert found.facts.test_set == ""
    assert {session.split for run in found.runs.values() for session in run.sessions} == {"dev"}
    assert "on development tasks: " in (path / "report.md").read_text()
    assert not list(path.glob("*/tasks/heldout"))


def test_a_frozen_study_starts_on_its_test_set_and_on_no_other(tmp_path: Path) -> None:
    resolved = resolve(study(tmp_path))
    digest = resolved.run.frozen.test_set
    frozen = f'{STUDY}\n[frozen]\ntest_set = "{digest}"\n'
    assert resolve(study(tmp_path, frozen)).run == resolved.run
    for changed in ("heldout = 16", "unseen = 5"):
        other = frozen.replace(changed, changed.replace("= ", "= 1"))
        with pytest.raises(ConfigError, match=f"frozen.test_set names {digest}"):
            start_study(study(tmp_path, other), tmp_path / "runs", play)
    assert not (tmp_path / "runs").exists()
    assert study(tmp_path, frozen, (1, 2, 3)).seeds == (1, 2, 3)
    with pytest.raises(ConfigError, match="frozen with the seeds 1, 2, 3"):
        study(tmp_path, frozen, (1, 2))


def test_a_resolved_study_reads_back_equal(tmp_path: Path) -> None:
    resolved = resolve(study(tmp_path, seeds=(7, 5)))
    assert resolved.seeds == (7, 5)
    again = load_study(study_file(tmp_path, resolved.to_toml()))
    assert again == resolved
    assert resolve(again) == resolved


def test_the_runs_of_a_study_differ_in_seed_and_name_alone(tmp_path: Path) -> None:
    config = study(tmp_path)
    one, two = (config.run_of(seed).model_dump() for seed in (1, 2))
    assert {key for key in one if one[key] != two[key]} == {"seed", "name"}
    assert one["name"] == "mine-s1"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('preset = "tiny-cpu"', "tasks.evaluation_seed is not set"),
        ('preset = "study"\nseed = 3', "a study has no seed of its own"),
        ('preset = "study"\nseeds = 3', "seeds is not a list of whole numbers"),
        ('preset = "study"\nseeds = []', "seeds is not a list of whole numbers"),
        ('preset = "study"\nseeds = [1, 1]', "seeds names a seed twice"),
        ('preset = "study"\nseeds = [-1]', "study: seed: "),
        (f'preset = "study"\nname = "{"n" * 40}"', "study: name: "),
        ('preset = "study"\nsteps = 3', "did you mean 'trainer.steps'"),
        ('preset = "study"\n[warm_start]\nsteps = 0', "never solves a task untrained"),
    ],
)
def test_a_study_that_cannot_be_is_refused_in_one_line_before_anything_is_made(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        start_study(study(tmp_path, text), tmp_path / "runs", play)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_disk_too_full_for_all_runs_is_told_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(InfraError, match="3 runs need"):
        start_study(study(tmp_path), tmp_path / "runs", play)
    assert not (tmp_path / "runs").exists()


def test_the_preset_of_a_study_needs_nothing_more_than_its_name(tmp_path: Path) -> None:
    config = study(tmp_path, 'preset = "study"\n')
    assert config.seeds == (1, 2, 3)
    assert config.run.tasks.judged == {"heldout": 100, "unseen": 40}
    assert config.run.tasks.evaluation_seed is not None
    assert load_config(preset="study") == config.run


def test_two_studies_of_one_second_get_two_folders(tmp_path: Path) -> None:
    config = study(tmp_path)
    started = time.monotonic()
    with StudyDirectory.create(tmp_path, config) as one, StudyDirectory.create(tmp_path, config) as two:
        assert one.path != two.path
    assert time.monotonic() - started < 1
