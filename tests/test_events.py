"""The event log: nothing is lost, nothing is half there, and a refusing disk is said in words."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.errors import RunError
from harness_adapters.events import EventLog, read_events, standing

LONG = "x" * 400


def write(path: Path, count: int) -> None:
    log = EventLog(path)
    for number in range(count):
        log.append("tick", number=number)
    log.close()


def test_events_come_back_in_order_with_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    returned = [log.append("tick", number=number, note="line\nend ü") for number in range(3)]
    log.close()
    assert list(read_events(path)) == returned
    assert [event["seq"] for event in returned] == [0, 1, 2]


def test_a_log_that_is_not_there_has_no_events(tmp_path: Path) -> None:
    assert list(read_events(tmp_path / "none.jsonl")) == []


def test_a_second_writer_goes_on_counting(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 3)
    write(path, 2)
    assert [event["seq"] for event in read_events(path)] == [0, 1, 2, 3, 4]


@settings(max_examples=60, deadline=None)
@given(kept=st.integers(min_value=0, max_value=400))
def test_a_log_torn_at_any_byte_keeps_its_whole_lines_and_can_be_written_again(
    tmp_path_factory: pytest.TempPathFactory, kept: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "events.jsonl"
    write(path, 5)
    whole = path.read_bytes()
    torn = whole[: min(kept, len(whole))]
    path.write_bytes(torn)
    lines = torn.count(b"\n")
    assert [event["number"] for event in read_events(path)] == list(range(lines))
    write(path, 1)
    assert [event["seq"] for event in read_events(path)] == list(range(lines + 1))


def test_threads_write_whole_lines_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    start = threading.Barrier(8)

    def work(worker: int) -> None:
        start.wait()
        for number in range(50):
            log.append("tick", worker=worker, number=number, padding=LONG)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    events = list(read_events(path))
    assert [event["seq"] for event in events] == list(range(400))
    for worker in range(8):
        assert [event["number"] for event in events if event["worker"] == worker] == list(range(50))


def test_a_damaged_middle_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"seq": 1, "ki\n' + lines[2])
    with pytest.raises(RunError, match=r"events\.jsonl line 2 is not JSON"):
        list(read_events(path))


def test_a_folder_that_cannot_hold_the_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write the event log"):
        EventLog(tmp_path / "no-such-folder" / "events.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_a_clear_error_and_the_event_can_be_written_later(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.append("before")
    kept, full = os.dup(log._file.fileno()), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._file.fileno())
    with pytest.raises(RunError, match=r"cannot append .*No space left.*free some disk space"):
        log.append("lost")
    os.dup2(kept, log._file.fileno())
    log.append("after")
    log.close()
    os.close(kept)
    os.close(full)
    assert [(event["seq"], event["kind"]) for event in read_events(path)] == [(0, "before"), (1, "after")]


def test_a_disk_that_takes_half_a_line_leaves_no_torn_line_in_the_middle(tmp_path: Path) -> None:
    """A nearly full disk writes what fits and reports no error; here a file size limit plays it."""
    path = tmp_path / "events.jsonl"
    code = f"""
import resource
from pathlib import Path
from harness_adapters.errors import RunError
from harness_adapters.events import EventLog
log = EventLog(Path({str(path)!r}))
log.append("first", text={LONG!r})
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))
try:
    log.append("second", text={LONG!r})
except RunError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.append("third")
"""
    assert resource.RLIM_INFINITY in resource.getrlimit(resource.RLIMIT_FSIZE)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "cannot append" in result.stdout
    assert [(event["seq"], event["kind"]) for event in read_events(path)] == [(0, "first"), (1, "third")]


def test_a_line_is_on_the_disk_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.append("tick")
    assert json.loads(path.read_bytes())["kind"] == "tick"
    log.close()


def learned(warm: int, grpo: int) -> dict[str, object]:
    return {"kind": "learner_restored", "warm_steps": warm, "grpo_steps": grpo}


def test_a_step_that_two_processes_took_stands_once_as_it_was_taken_last() -> None:
    events = [
        learned(0, 0),
        {"kind": "warm_step", "step": 1, "loss": 2.0},
        {"kind": "warm_step", "step": 2, "loss": 1.5},
        learned(1, 0),
        {"kind": "warm_step", "step": 2, "loss": 1.4},
        {"kind": "published", "step": 0, "number": 0},
        {"kind": "policy_step", "step": 1, "trained": ["a"]},
        learned(2, 0),
        {"kind": "published", "step": 0, "number": 0},
        {"kind": "policy_step", "step": 1, "trained": ["b"]},
    ]
    steps = [event for event in standing(events) if event["kind"] != "learner_restored"]
    assert steps == [events[1], events[4], events[8], events[9]]


def test_steps_after_the_checkpoint_that_a_run_went_on_from_do_not_stand() -> None:
    events = [
        *({"kind": kind, "step": step} for step in (1, 2, 3) for kind in ("sampled", "policy_step", "published")),
        learned(5, 1),
    ]
    assert [(event["kind"], event["step"]) for event in standing(events)[:-1]] == [
        ("sampled", 1),
        ("policy_step", 1),
        ("published", 1),
    ]


def test_rollouts_that_were_set_aside_do_not_stand_and_all_else_stays_as_it_is() -> None:
    events = [
        {"kind": "run_created"},
        *({"kind": "rollout", "set": "rollouts", "id": name, "reward": 0.5} for name in ("a", "b")),
        {"kind": "rollout", "set": "eval", "id": "a", "reward": 0.5},
        {"kind": "guard", "session": "a", "counts": {"block": 1}},
        {"kind": "set_aside", "set": "rollouts", "ids": ["a", "never-seen"]},
        {"kind": "run_resumed"},
        {"kind": "guard", "session": "a", "counts": {"block": 1}},
        {"kind": "rollout", "set": "rollouts", "id": "b", "reward": 0.7},
        {"kind": "run_resumed"},
    ]
    assert standing(events) == [events[number] for number in (0, 3, 5, 6, 7, 8, 9)]
