"""The whole loop with every part real: pi in sandboxes, the packaged model, a kill in the middle, a resume, the table.

The run is as small as it can be (it learns next to nothing); what it proves is that each part meets the next and that
a killed run loses and repeats nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness_adapters.evaluation.from_run import load_rollouts
from harness_adapters.events import read_events
from harness_adapters.records import CallLabel, Outcome

SMALL = (
    "trainer.steps=1",
    "warm_start.steps=2",
    "warm_start.sessions_per_step=3",
    "tasks.train=8",
    "tasks.heldout=2",
    "tasks.unseen=1",
    "producer.groups_per_step=1",
    "producer.group_size=2",
    "producer.max_refills=0",
)
COMMAND = [sys.executable, "-m", "harness_adapters"]


def kinds(run: Path) -> list[str]:
    return [event["kind"] for event in read_events(run / "events.jsonl")]


def start(runs: Path) -> subprocess.Popen[bytes]:
    flags = [part for setting in SMALL for part in ("--set", setting)]
    return subprocess.Popen(
        [*COMMAND, "demo", "--runs", str(runs), *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def kill_after_first_warm_step(process: subprocess.Popen[bytes], runs: Path) -> Path:
    """Wait until the log shows a warm-start step, then `kill -9`; the run directory."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be killed"
        for run in runs.glob("demo-*"):
            if "warm_step" in kinds(run):
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                return run
        time.sleep(0.1)
    process.kill()
    pytest.fail("no warm-start step within the time allowed")


@pytest.mark.slow
@pytest.mark.real_pi
@pytest.mark.real_model
@pytest.mark.timeout(1500)
def test_a_killed_run_resumes_to_its_table_without_playing_a_finished_session_again(tmp_path: Path) -> None:
    run = kill_after_first_warm_step(start(tmp_path / "runs"), tmp_path / "runs")
    recorded = {path.name: path.stat().st_mtime_ns for path in (run / "oracle").glob("*.json")}
    assert len(recorded) == 6

    resumed = subprocess.run(
        [*COMMAND, "demo", "--resume", str(run)], capture_output=True, text=True, timeout=1200, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    assert {path.name: path.stat().st_mtime_ns for path in (run / "oracle").glob("*.json")} == recorded

    check_the_record(run)
    again = subprocess.run([*COMMAND, "eval", "--from", str(run)], capture_output=True, text=True, check=True)
    assert again.stdout.strip()
    assert again.stdout.strip() in resumed.stdout


def check_the_record(run: Path) -> None:
    evaluated, trained = load_rollouts(run, "eval"), load_rollouts(run, "training")
    assert {(r.tags["policy_label"], r.task) for r in evaluated} == {
        (label, path.name)
        for label in ("base", "warm", "final")
        for split in ("heldout", "unseen")
        for path in (run / "tasks" / split).iterdir()
    }
    assert len({r.id for r in trained}) == len(trained) == 2
    for rollout in evaluated + trained:
        assert rollout.outcome is Outcome.GRADED, rollout.detail
        assert rollout.reward is not None
        assert rollout.calls
        for call in rollout.calls:
            assert call.label is CallLabel.AGENT
            assert call.policy == rollout.policy
            assert len(call.completion_ids) == len(call.logprobs) > 0
            assert len(call.prompt_ids) > 1000
    published = [event for event in read_events(run / "events.jsonl") if event["kind"] == "published"]
    assert [event["number"] for event in published] == [0, 1]
    assert published[0]["verdict"] == "passed"
    for name in ("adapters/v0", "adapters/v1", "adapter"):
        assert (run / name / "adapter_config.json").is_file()
        assert (run / name / "adapter_model.safetensors").is_file()
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not [path for path in run.rglob("*") if path.name.endswith(".tmp")]
    assert json.loads((run / ".done" / "evaluate").read_text())["sessions"] == 9
