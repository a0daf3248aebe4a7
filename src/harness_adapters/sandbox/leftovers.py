"""Ends the sandboxes that a killed program could not take along.

A sandbox dies with the program that started it, by the kernel's parent-death signal and by the executor's own end; but
bwrap, killed between making its child and telling it to go on, leaves that child waiting for ever (3 in 100 kills that
fall into a start). Nothing runs inside yet, and nobody can reach it any more.

Invariant: only such a child is ended. It still bears bwrap's command line with our executor's name, and the session
that it is in lost its leader, the bwrap that made it; a sandbox in use or starting has both.
"""

from __future__ import annotations

import contextlib
import os
import signal

from harness_adapters.sandbox.launcher import EXECD


def end_orphans() -> list[int]:
    """End every sandbox process of a program that is gone; their pids. Nothing where the kernel has no /proc."""
    ended = []
    for pid in _processes():
        if not _is_orphan(pid):
            continue
        with contextlib.suppress(OSError):  # it ended by itself, or belongs to another user
            handle = os.pidfd_open(pid)
            try:
                if _is_orphan(pid):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    ended.append(pid)
            finally:
                os.close(handle)
    return ended


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _is_orphan(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        if words[0] != b"bwrap" or EXECD.encode() not in words:
            return False
        leader = int(_stat(pid)[3])
        return leader > 0 and not _lives(leader)  # 0: a process of another namespace, of which nothing can be told
    except OSError:
        return False


def _lives(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    try:
        return _stat(pid)[0] not in "ZX"
    except OSError:
        return False


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and so on; the fields after the program's name, which may hold anything."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
