"""What this process holds on to, and whether that grows: for tests that repeat something many times over.

    before = holdings()
    ...
    assert holdings().lost_since(before) == []

Invariants
- `holdings` looks at a process at rest: garbage is collected and freed memory given back first, so what is counted is
  held by somebody.
- Dead children count until somebody reaped them, and so do grandchildren: `whole_subtree` makes orphans visible.

Asymmetry: counts can be compared exactly; memory cannot, since allocators keep and fragment. Of memory only the growth
over many samples says something (`growth`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import re
import socket
import stat
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path

from harness_adapters.runs.learning import give_memory_back

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Holdings:
    """What one process holds.

    `memory` is private memory in bytes (resident or swapped out), `blocks` the objects that Python has allocated,
    `descriptors` the open ones apart from `connections` (TCP) and `listeners`, `processes` all below this one, `files`
    the files and folders in the folders that were named, `tasks` asyncio's apart from the one that asks.
    """

    memory: int
    blocks: int
    descriptors: int
    connections: int
    listeners: int
    processes: int
    threads: int
    tasks: int
    files: int

    def lost_since(self, before: Holdings) -> list[str]:
        """Every count that differs from `before`, in words; memory and blocks aside."""
        counts = [field.name for field in fields(self) if field.name not in ("memory", "blocks")]
        pairs = ((name, getattr(before, name), getattr(self, name)) for name in counts)
        return [f"{name} were {old} and are {new}" for name, old, new in pairs if old != new]


def holdings(folders: Sequence[Path] = ()) -> Holdings:
    """What this process holds now. Call it where nothing is going on; it takes some 50 ms."""
    gc.collect()
    blocks = sys.getallocatedblocks()
    give_memory_back()
    kinds = [_kind(int(name)) for name in os.listdir("/proc/self/fd")]
    return Holdings(
        memory=private_memory(),
        blocks=blocks,
        descriptors=kinds.count("other"),
        connections=kinds.count("connection"),
        listeners=kinds.count("listener"),
        processes=len(descendants()),
        threads=threading.active_count(),
        tasks=_other_tasks(),
        files=sum(1 for folder in folders for _ in folder.rglob("*")),
    )


def private_memory() -> int:
    """Bytes of this process that no file backs, resident or swapped out: unlike its size, no reclaim makes it less."""
    status = Path("/proc/self/status").read_text()
    return sum(int(kilobytes) for kilobytes in re.findall(r"(?:RssAnon|VmSwap):\s+(\d+)", status)) << 10


def descendants() -> dict[int, str]:
    """Name by pid of every process below this one, zombies among them."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, tail = path.read_text().rpartition(")")
            parents[int(path.parent.name)] = (int(tail.split()[1]), head.partition("(")[2])
    found: dict[int, str] = {}
    new = {os.getpid()}
    while new:
        below = {pid: name for pid, (parent, name) in parents.items() if parent in new}
        found |= below
        new = set(below)
    return found


@contextlib.contextmanager
def whole_subtree() -> Iterator[None]:
    """Have orphans below this process become its children, as where it is a container's init; they stay visible."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def growth(samples: Sequence[tuple[float, float]], *, warm_up: float = 1 / 3) -> float:
    """By how much a value grew from the end of the warm-up to the last sample: its slope times the distance.

    `samples` are (position, value) in order of position; the first `warm_up` of the distance is left out. The slope is
    Theil's and Sen's, the median over all pairs, which a third of wild samples cannot move far. Raises ValueError where
    fewer than three samples are left.
    """
    first, last = samples[0][0], samples[-1][0]
    start = first + warm_up * (last - first)
    kept = [sample for sample in samples if sample[0] >= start]
    if len(kept) < 3:
        raise ValueError(f"{len(kept)} samples after the warm-up say nothing of growth")
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(kept, 2) if x2 != x1]
    return statistics.median(slopes) * (kept[-1][0] - kept[0][0])


def _kind(descriptor: int) -> str:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return "other"
        with socket.socket(fileno=os.dup(descriptor)) as peer:
            if peer.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return "listener"
            return "connection" if peer.family in (socket.AF_INET, socket.AF_INET6) else "other"
    except OSError:
        return "closed"  # the one that listed the others


def _other_tasks() -> int:
    try:
        return len(asyncio.all_tasks() - {asyncio.current_task()})
    except RuntimeError:  # no loop runs here
        return 0
