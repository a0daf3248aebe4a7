"""The run directory: one writer, whole files, nothing done twice."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from harness_adapters import __version__
from harness_adapters.config import load_config, to_toml
from harness_adapters.errors import HarnessAdaptersError, RunError
from harness_adapters.events import read_events, standing
from harness_adapters.records import Outcome, RewardParts, Rollout
from harness_adapters.runs.directory import BLOCKED, CONFIG, EVENTS, RunDirectory, latest_run, policy_run_name


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


def closed_run(parent: Path) -> Path:
    with RunDirectory.create(parent, load_config()) as run:
        return run.path


def resumed_id(path: Path) -> str:
    with RunDirectory.resume(path) as run:
        return run.id


def test_a_run_keeps_its_id_however_it_is_reached_renamed_or_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = closed_run(tmp_path)
    (tmp_path / "link").symlink_to(path)
    (path / "sub").mkdir()
    monkeypatch.chdir(path)
    assert {resumed_id(reached) for reached in (Path(), Path("sub/.."), tmp_path / "link")} == {path.name}
    moved = path.rename(tmp_path / "renamed")
    assert resumed_id(moved) == path.name


def test_a_run_without_a_recorded_id_takes_its_folders_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = closed_run(tmp_path)
    (path / EVENTS).unlink()
    monkeypatch.chdir(path)
    assert resumed_id(Path()) == path.name


def test_a_full_disk_leaves_no_half_made_run(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (10, len(to_toml(load_config())) + 10):  # refused at the configuration, refused at the first event
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(HarnessAdaptersError):
                RunDirectory.create(tmp_path, load_config())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("moment", ["to_toml", "rename_to_free"])
def test_a_run_killed_while_it_is_made_leaves_no_folder_that_looks_like_one_and_the_next_clears_it_away(
    tmp_path: Path, moment: str
) -> None:
    code = (
        "import os, sys; from pathlib import Path; from harness_adapters.config import load_config\n"
        "from harness_adapters.runs import directory\n"
        f"directory.{moment} = lambda *_: os.kill(os.getpid(), 9)\n"
        "directory.RunDirectory.create(Path(sys.argv[1]), load_config())"
    )
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
        (left,) = tmp_path.iterdir()
        assert left.name.startswith(".")
        assert latest_run(tmp_path) is None
    path = closed_run(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", [EVENTS, "blocked.jsonl", ".lock"])
def test_a_folder_in_place_of_a_runs_file_is_named_and_the_run_is_let_go(name: str, tmp_path: Path) -> None:
    path = closed_run(tmp_path)
    (path / name).unlink()
    (path / name).mkdir()
    with pytest.raises(HarnessAdaptersError, match=rf"{name}|lock .*Is a directory") as caught:
        RunDirectory.resume(path)
    assert "\n" not in str(caught.value)
    (path / name).rmdir()
    RunDirectory.resume(path).close()


def test_names_that_are_too_long_and_loops_of_links_are_refused_in_one_line(tmp_path: Path) -> None:
    long = load_config().model_copy(update={"name": "n" * 300})
    with pytest.raises(RunError, match="too long"):
        RunDirectory.create(tmp_path, long)
    with pytest.raises(RunError, match="too long"):
        RunDirectory.resume(tmp_path / ("n" * 300))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(RunError):
        RunDirectory.resume(tmp_path / "loop")


def test_a_rollout_nested_too_deep_is_damaged(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        (run.folder("rollouts") / "r1.json").write_bytes(b"[" * 100_000)
        with pytest.raises(RunError, match=r"r1\.json is damaged"):
            run.load_rollout("rollouts", "r1")


def test_a_run_of_another_version_says_so(tmp_path: Path) -> None:
    path = closed_run(tmp_path)
    log = path / EVENTS
    log.write_text(log.read_text().replace(f'"version":"{__version__}"', '"version":"9.8.7"'))
    (path / CONFIG).write_text("a_key_of_tomorrow = 1\n" + (path / CONFIG).read_text())
    with pytest.raises(RunError, match=r"made by another version of the program \(9\.8\.7\).*a_key_of_tomorrow"):
        RunDirectory.resume(path)


def test_a_run_killed_before_its_first_event_has_one_after_the_resume(tmp_path: Path) -> None:
    path = closed_run(tmp_path)
    created = (path / EVENTS).read_bytes()
    (path / EVENTS).write_bytes(created[: len(created) // 2])
    RunDirectory.resume(path).close()
    RunDirectory.resume(path.rename(tmp_path / "moved")).close()
    events = list(read_events(tmp_path / "moved" / EVENTS))
    assert [(event["seq"], event["kind"]) for event in events] == [
        (0, "run_created"),
        (1, "run_resumed"),
        (2, "run_resumed"),
    ]
    assert events[0]["id"] == path.name


def test_what_killed_writers_left_is_cleared_away_and_named_and_all_else_stays(tmp_path: Path) -> None:
    path = closed_run(tmp_path)
    left = [
        ".adapter.abcdefgh.tmp/w",
        "checkpoints/.step-00002.abcdefgh.tmp/w",
        "rollouts/.s1-g0-m0.json.abcdefgh.tmp",
        "tasks/train/.create-000.abcdefgh.tmp/w",
        ".done/.record.abcdefgh.tmp",
    ]
    kept = ["rollouts/readme.txt", "tasks/train/create-000/.x.abcdefgh.tmp", "checkpoints/step-00001/w"]
    for name in (*left, *kept):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("half")
    with RunDirectory.resume(path) as run:
        assert list(run.swept) == sorted(name.removesuffix("/w") for name in left)
    assert all((path / name).exists() for name in kept)
    assert not [name for name in left if (path / name).exists()]
    assert list(read_events(path / EVENTS))[-1]["swept"] == list(run.swept)


def test_a_rollout_whose_event_a_kill_prevented_gets_it_on_resume_and_others_get_none_twice(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        run.save_rollout("rollouts", rollout("r1"))
        run.save_rollout("rollouts", rollout("r2"))
    log = run.path / EVENTS
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    for _ in range(2):
        RunDirectory.resume(run.path).close()
    told = [(event["id"], event["reward"]) for event in read_events(log) if event["kind"] == "rollout"]
    assert told == [("r1", 1.09), ("r2", 1.09)]


def test_a_rollout_that_was_set_aside_and_played_anew_is_logged_anew(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        run.save_rollout("rollouts", rollout("r1"))
        run.set_aside([run.path / "rollouts" / "r1.json"], "of another policy")
        run.set_aside([], "nothing")
        run.save_rollout("rollouts", rollout("r1"))
    log = run.path / EVENTS
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    RunDirectory.resume(run.path).close()
    assert [event["kind"] for event in standing(read_events(log))] == [
        "run_created",
        "set_aside",
        "run_resumed",
        "rollout",
    ]


def test_the_verdict_log_loses_a_torn_line_and_the_verdicts_of_sessions_that_are_played_again(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, load_config()) as run:
        for session in ("r1", "cut-short", "r1"):
            run.log_verdict({"kind": "verdict", "session": session, "rule": "x"})
        run.save_rollout("eval", rollout("r1"))
    with (run.path / BLOCKED).open("a") as file:
        file.write('{"kind":"verdict","session":"r1","ru')
    with RunDirectory.resume(run.path) as run:
        run.log_verdict({"kind": "verdict", "session": "cut-short", "rule": "y"})
    lines = [json.loads(line) for line in (run.path / BLOCKED).read_text().splitlines()]
    assert [(line["session"], line["rule"]) for line in lines] == [("r1", "x"), ("r1", "x"), ("cut-short", "y")]
