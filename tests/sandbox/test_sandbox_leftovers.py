"""What a killed program leaves of its sandboxes: nothing that lives on, but a waiting child that the next one ends."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness_adapters.sandbox import Sandbox, SandboxSpec, open_sandbox
from harness_adapters.sandbox.leftovers import end_orphans

Inside = Callable[..., Any]

HOST = """
import asyncio, os, sys
from harness_adapters.sandbox import SandboxSpec, open_sandbox
from harness_adapters.sandbox.process import SandboxProcess
# bwrap tells the pid of its child before it lets the child go on: into a full pipe it tells nothing and waits.
real_pipe = os.pipe
def full_pipe():
    read, write = real_pipe()
    if sys._getframe(1).f_code is SandboxProcess._launch.__code__ and not filled:
        filled.append(write)
        os.set_blocking(write, False)
        try:
            while True:
                os.write(write, bytes(4096))
        except BlockingIOError:
            os.set_blocking(write, True)
    return read, write
filled = []
os.pipe = full_pipe
SandboxProcess.learn_init = lambda self: asyncio.sleep(600)
async def main():
    sandbox = open_sandbox("bubblewrap", SandboxSpec())
    starting = asyncio.create_task(sandbox.start())
    while not starting.done():
        await asyncio.sleep(0.01)
        for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split():
            child = open(f"/proc/{pid}/task/{pid}/children").read().split()
            if child:
                print(*child, flush=True)
                await asyncio.sleep(600)
asyncio.run(main())
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not come about within a minute"
        time.sleep(0.01)


def test_a_child_that_bwrap_left_waiting_when_the_program_was_killed_is_ended(inside: Inside) -> None:
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        child = int(host.stdout.readline())
        outer = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
        assert child not in end_orphans(), "its program lives"
        host.kill()
    wait_until(lambda: not lives(outer))
    assert lives(child), "the kernel takes it along now: the sweep is not needed any more"
    assert child in end_orphans()
    wait_until(lambda: not lives(child))


def test_sandboxes_in_use_or_starting_are_left_alone(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        others = [open_sandbox("bubblewrap", SandboxSpec()) for _ in range(4)]
        starting = asyncio.gather(*(other.start() for other in others))
        try:
            while not starting.done():
                end_orphans()
                await asyncio.sleep(0.001)
            await starting
            for one in (sandbox, *others):
                assert (await one.exec(["sh", "-c", "setsid true; sleep 0.1"], timeout=60)).returncode == 0
                end_orphans()
        finally:
            await asyncio.gather(*(other.kill() for other in others))

    inside(scenario)


def test_a_program_killed_at_any_moment_of_a_start_leaves_nothing_after_the_next_sweep(inside: Inside) -> None:
    rng = random.Random(7)
    code = """
import asyncio, sys
from harness_adapters.sandbox import SandboxSpec, open_sandbox
async def main():
    while True:
        sandbox = open_sandbox("bubblewrap", SandboxSpec())
        await sandbox.start()
        await sandbox.kill()
sys.stdin.readline()
asyncio.run(main())
"""
    for _ in range(20):
        host = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        assert host.stdin is not None
        host.stdin.write(b"go\n")
        host.stdin.flush()
        seen: set[int] = set()
        wait_until(lambda host=host, seen=seen: bool(seen.update(below(host.pid)) or seen))  # type: ignore[misc]
        moment = time.monotonic() + rng.uniform(0, 0.15)
        while time.monotonic() < moment:
            seen |= below(host.pid)
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
        host.stdin.close()
        end = time.monotonic() + 60
        while any(map(lives, seen)):
            end_orphans()
            assert time.monotonic() < end, "a killed program's sandbox lives on"


def below(pid: int) -> set[int]:
    found: set[int] = set()
    todo = [pid]
    while todo:
        try:
            new = Path(f"/proc/{todo[-1]}/task/{todo.pop()}/children").read_text().split()
        except OSError:
            continue
        found.update(map(int, new))
        todo += map(int, new)
    return found
