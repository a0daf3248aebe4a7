"""Matrix products over many rows on numpy's BLAS, in pieces that the engine's thread and its helpers share.

A library that splits a product between its threads waits at its end for the slowest: as soon as other processes want
a core, and an agent's process does all the time, every product waits for a thread that the system has put aside, 8 ms
a time. Here a piece of work is done by whoever comes to it first, so a helper that is held up holds up nobody by more
than the piece it has begun. For the few rows of a decoding step see `kernels`.

Invariants
- Which thread does a piece never changes the result.
- With a multiple of `WHOLE` rows, a row of a product depends on that row alone, to the last bit: BLAS gets products
  that are neither narrow nor have columns left over, for which it has other loops.

Asymmetry: the number of OpenBLAS threads and of helpers is one setting of the whole process; torch's is not touched.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness_adapters.engines.embedded.kernels import project

log = logging.getLogger(__name__)

WORTH_SHARING = 1 << 22
"""Multiplications from which on a part of a product outweighs waking a helper (some 30 µs)."""

WHOLE = 16
"""Rows and columns of which BLAS's inner loops take whole numbers on every processor: cut and filled up to these, a
product's row has the same bits in any company."""

NARROW = 128
"""Columns below which BLAS may choose other loops for fewer rows."""

MOST_HELPERS = 3
"""More helpers than this wait for Python's lock more than they compute."""

SETTERS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")
"""What OpenBLAS calls its setter in numpy's wheels, newest first."""


def dense(x: Tensor, *weights: Tensor) -> Tensor:
    """`x` `[rows, in]` times the transpose of each weight `[out, in]`, side by side `[rows, sum of outs]`; fp32, no
    gradients."""
    left = x.numpy()
    out = np.empty((left.shape[0], sum(weight.shape[0] for weight in weights)), dtype=np.float32)
    hands = helpers().count + 1
    work = left.shape[0] * left.shape[1] * out.shape[1]
    # Two pieces a hand where that is cheap: a helper that comes late then takes one instead of none.
    pieces = 1 if work < WORTH_SHARING or hands == 1 else hands if work < 8 * WORTH_SHARING else 2 * hands
    width = -(-out.shape[1] // (pieces * WHOLE)) * WHOLE
    errands, at = [], 0
    for weight in weights:
        right, columns = weight.numpy(), weight.shape[0]
        whole = columns // WHOLE * WHOLE if columns >= NARROW else 0
        for first in range(0, whole, width):
            last = min(first + width, whole)
            errands.append(functools.partial(np.matmul, left, right[first:last].T, out=out[:, at + first : at + last]))
        if whole < columns:
            rest = (0, left.shape[0], whole, columns, out, at + whole, False)
            errands.append(functools.partial(project, left, weight.data_ptr(), left.shape[1], *rest))
        at += columns
    if pieces == 1:
        for errand in errands:
            errand()
    else:
        share(errands)
    return torch.from_numpy(out)


def share(pieces: Sequence[Callable[[], None]]) -> None:
    """Do all pieces, the later ones wherever a helper gets to them first; none is still running when this returns.

    Raises what a piece raised, the first one's in their order.
    """
    errands = [Errand(piece) for piece in pieces]
    if helpers().count:
        for errand in errands[1:]:
            helpers().ask(errand)
    for errand in errands:
        errand.wait()
    for errand in errands:
        errand.check()


class Errand:
    """Work that is done exactly once, by whoever claims it first."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None

    def try_to_do(self) -> bool:
        """Do the work unless somebody has begun it; whether it was begun here. What it raises is kept for `check`."""
        if not self._claim.acquire(blocking=False):
            return False
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            self._error = error
        finally:
            self._done.release()
        return True

    def wait(self) -> None:
        """Return when the work is done: at once here if nobody has begun it, else when they are through."""
        if not self.try_to_do():
            self._done.acquire()

    def check(self) -> None:
        """Raise what the work raised."""
        if self._error is not None:
            raise self._error


class Helpers:
    """Threads that take work off another one's hands when they get to run in time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._errands: queue.SimpleQueue[Errand] = queue.SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._serve, name=f"engine helper {number}", daemon=True).start()

    def ask(self, errand: Errand) -> None:
        """Let a helper have it, unless somebody else is faster."""
        self._errands.put(errand)

    def _serve(self) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            while True:
                self._errands.get().try_to_do()


@functools.cache
def helpers() -> Helpers:
    """The process's helpers, started at first use: one for each further core it may run on."""
    return Helpers(min(len(os.sched_getaffinity(0)) - 1, MOST_HELPERS))


def use_one_openblas_thread() -> bool:
    """Have numpy's OpenBLAS compute on the calling thread only. False where numpy came with another BLAS."""
    for path in (Path(np.__file__).parent.parent / "numpy.libs").glob("*openblas*"):
        library = ctypes.CDLL(str(path))
        for name in SETTERS:
            if hasattr(library, name):
                getattr(library, name)(ctypes.c_int(1))
                return True
    log.info("numpy has no OpenBLAS of its own; its BLAS keeps its threads")
    return False
