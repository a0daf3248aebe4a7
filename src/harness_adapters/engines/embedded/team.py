"""Threads that go through the phases of a computation together and share each phase's items by claiming them.

A phase is over when its last item is done, whoever did it: a thread that the system has put aside holds up the others
by the one item it has begun, and one that comes late finds nothing left to claim and does no harm.

Invariant: a thread passes `wait` only when all items of the phase are done, so what one phase writes the next may read.

Asymmetry: `board` counts are used once; each computation brings a fresh board of zeros.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from harness_adapters.engines.embedded.compiled import add_at, give_way, loop, read_at

Board: TypeAlias = npt.NDArray[np.int64]

LINE = 8
"""Int64s of a cache line: counters that different threads write lie on lines of their own."""

SPINS = 2000
"""Reads before a waiting thread gives its core away; an item takes microseconds."""


def new_board(phases: int) -> Board:
    """Counters of `phases` phases, int64 `[phases, 2 lines]`: items claimed, items done."""
    return np.zeros((phases, 2 * LINE), dtype=np.int64)


@loop
def claim(board: Board, phase: int, items: int) -> int:
    """An item of the phase that nobody has begun, or -1 when all are taken."""
    item = add_at(board.ctypes.data + phase * 2 * LINE * 8, 1)
    return item if item < items else -1


@loop
def done(board: Board, phase: int) -> None:
    """A claimed item is done."""
    add_at(board.ctypes.data + (phase * 2 + 1) * LINE * 8, 1)


@loop
def wait(board: Board, phase: int, items: int) -> int:
    """Return the next phase's number when all items of this one are done."""
    spins = 0
    while read_at(board.ctypes.data + (phase * 2 + 1) * LINE * 8) < items:
        spins += 1
        if spins > SPINS:
            give_way()
    return phase + 1
