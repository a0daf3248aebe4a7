"""A command in a process of its own ends with this one, told once and waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness_adapters.errors import Terminated
from harness_adapters.runs.apart import run_apart

TIDY = """
import pathlib, signal, sys, time
log = pathlib.Path(sys.argv[1])
def told(number, frame):
    with log.open("a") as file: file.write(f"{signal.Signals(number).name}\\n")
    time.sleep(0.5)
    with log.open("a") as file: file.write("clean\\n")
    sys.exit(5)
signal.signal(signal.SIGTERM, told)
signal.signal(signal.SIGINT, told)
log.write_text("ready\\n")
time.sleep(60)
"""


def when_ready(log: Path, number: signal.Signals) -> threading.Thread:
    """Send this process a signal as soon as the child is there."""

    def wait() -> None:
        deadline = time.monotonic() + 30
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.05)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """A shell starts its background jobs deaf to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_exit_code_is_the_commands(code: int) -> None:
    assert run_apart([sys.executable, "-c", f"raise SystemExit({code})"]) == code


def test_a_killed_command_has_the_code_that_a_shell_gives() -> None:
    assert run_apart([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_a_stop_reaches_the_command_once_and_it_is_waited_for(
    tmp_path: Path, number: signal.Signals, raised: type[BaseException]
) -> None:
    log = tmp_path / "log"
    before = signal.getsignal(signal.SIGTERM)
    sender = when_ready(log, number)
    with pytest.raises(raised):
        run_apart([sys.executable, "-c", TIDY, str(log)])
    sender.join()
    assert log.read_text().splitlines() == ["ready", "SIGTERM", "clean"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_terminals_ctrl_c_does_not_reach_the_command_by_itself(tmp_path: Path) -> None:
    """A terminal sends it to the whole process group; the command is told by its parent alone, once."""
    log = tmp_path / "log"
    code = (
        "import signal, sys; from harness_adapters.runs.apart import run_apart\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try: run_apart([sys.executable, '-c', sys.argv[1], sys.argv[2]])\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, TIDY, str(log)], start_new_session=True)
    deadline = time.monotonic() + 30
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.wait(20) == 130
    assert log.read_text().splitlines() == ["ready", "SIGTERM", "clean"]


def test_the_command_is_killed_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    code = (
        "import sys; from harness_adapters.runs.apart import run_apart\n"
        "run_apart([sys.executable, '-c', *sys.argv[1:]])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, child, str(pid_file)])
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    pid = int(pid_file.read_text())
    parent.kill()
    parent.wait()
    while time.monotonic() < deadline and _lives(pid):
        time.sleep(0.02)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
