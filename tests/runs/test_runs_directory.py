"""The run directory: one writer, whole files, nothing done twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness_adapters.config import load_config
from harness_adapters.errors import RunError
from harness_adapters.events import read_events
from harness_adapters.records import Outcome, RewardParts, Rollout
from harness_adapters.runs.directory import RunDirectory, latest_run, policy_run_name


def rollout(identity: str = "r1", outcome: Outcome = Outcome.GRADED) -> Rollout:
    reward = RewardParts(1.0, 0.09, False, 1.09) if outcome is Outcome.GRADED else None
    return Rollout(identity, "task", "create", "g", "pi", "demo-pi-v0", outcome, reward=reward)


def test_a_second_writer_is_refused_while_the_first_is_open(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config(preset="tiny-cpu")) as run:
        with pytest.raises(RunError, match="in use"):
            RunDirectory.resume(run.path)
        path = run.path
    with RunDirectory.resume(path) as again:
        assert again.config == load_config(preset="tiny-cpu")


def test_two_runs_created_in_the_same_second_get_two_folders(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as first, RunDirectory.create(tmp_path, load_config()) as second:
        assert first.path != second.path
        assert latest_run(tmp_path) in (first.path, second.path)


def test_a_folder_that_is_no_run_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"config\.resolved\.toml"):
        RunDirectory.resume(tmp_path)


def test_a_saved_rollout_reads_back_equal_and_is_noted_in_the_log(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        run.save_rollout("rollouts", rollout())
        assert run.load_rollout("rollouts", "r1") == rollout()
        assert run.load_rollout("rollouts", "r2") is None
        kinds = [event["kind"] for event in read_events(run.path / "events.jsonl")]
    assert kinds == ["run_created", "rollout"]


def test_a_damaged_rollout_file_is_named(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        (run.folder("rollouts") / "r1.json").write_text('{"id": "r1"')
        with pytest.raises(RunError, match=r"r1\.json is damaged"):
            run.load_rollout("rollouts", "r1")


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from harness_adapters.config import load_config\n"
        "from harness_adapters.runs.directory import RunDirectory\n"
        "run = RunDirectory.create(Path(sys.argv[1]), load_config()); print(run.path, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    path = Path(process.stdout.readline().strip())
    with pytest.raises(RunError, match="in use"):
        RunDirectory.resume(path)
    process.kill()
    process.wait()
    RunDirectory.resume(path).close()


def test_run_names_are_safe_inside_adapter_names() -> None:
    assert policy_run_name("Demo 1/x") == "demo-1-x"
