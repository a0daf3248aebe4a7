"""Dead sandboxes leave no zombie, whoever would have to reap it: in a container the host's init may reap nothing."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.sandbox import Sandbox, SandboxEnded

PR_SET_CHILD_SUBREAPER = 36

USES = """
import asyncio, random
from harness_adapters.sandbox import SandboxSpec, open_sandbox

async def used():
    sandbox = open_sandbox("bubblewrap", SandboxSpec())
    await sandbox.start()
    await sandbox.exec(["true"], timeout=30)
    await sandbox.kill()

async def cut_short(after):
    sandbox = open_sandbox("bubblewrap", SandboxSpec())
    start = asyncio.create_task(sandbox.start())
    await asyncio.sleep(after)
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    await sandbox.kill()

async def main():
    for _ in range(4):
        await asyncio.gather(*(used() for _ in range(8)))
    for round in range(4):
        await asyncio.gather(*(cut_short(0.005 * (1 + round + place)) for place in range(8)))

asyncio.run(main())
"""
"""Run in a process of its own, so that what it does not reap is handed to the test."""


@contextmanager
def reaper() -> Iterator[None]:
    """Make this process what the host's init is to its descendants: orphans become its children."""
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def zombies() -> list[str]:
    """The stat lines of this process's dead children."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            stat = path.read_text()
            if stat.rpartition(")")[2].split()[:2] == ["Z", str(os.getpid())]:
                found.append(stat)
    return found


def test_no_zombie_is_handed_to_the_hosts_init(inside: Callable[..., Any]) -> None:
    with reaper():
        subprocess.run([sys.executable, "-c", USES], check=True, timeout=120)
        assert zombies() == []


def test_a_process_that_is_the_hosts_init_itself_reaps_a_sandbox_that_ended_from_inside(
    inside: Callable[..., Any],
) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        with pytest.raises(SandboxEnded):
            await sandbox.exec(["sh", "-c", "kill -9 -1"], timeout=30)
        await asyncio.sleep(0.2)
        await sandbox.kill()

    with reaper():
        for _ in range(3):
            inside(scenario)
        assert zombies() == []
