"""Matrix products of few and of many rows, each by the library and the number of threads that suit it.

With few rows (decoding) a product takes a millisecond or less. A library that shares it between its threads waits at
its end for the slowest: as soon as other processes want a core, every product waits for a thread that the system has
put aside, 8 ms a time. So few rows go through numpy's BLAS without its threads, on AMD processors 1.5 times as fast
there as torch's, and a large product is halved with a `Partner` whose half is done by whoever comes to it first. Many
rows (prompts) are arithmetic: torch, on all its threads.

Asymmetry: the number of OpenBLAS threads is one setting of the whole process; torch's is not touched.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

FEW_ROWS = 64

WORTH_HALVING = 1 << 22
"""Multiplications from which on half a product outweighs waking the partner (some 30 µs)."""

SETTERS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")
"""What OpenBLAS calls its setter in numpy's wheels, newest first."""


def dense(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight` for `x` `[rows, in]` and `weight` `[in, out]`, fp32, no gradients."""
    if x.shape[0] > FEW_ROWS:
        return torch.mm(x, weight)
    left, right = x.numpy(), weight.numpy()
    if left.shape[0] * right.size < WORTH_HALVING or torch.get_num_threads() == 1:
        return torch.from_numpy(left @ right)
    half = right.shape[1] // 2
    out = np.empty((left.shape[0], right.shape[1]), dtype=np.float32)

    def second_half() -> None:
        out[:, half:] = left @ right[:, half:]

    errand = partner().ask(second_half)
    out[:, :half] = left @ right[:, :half]
    errand.finish()
    return torch.from_numpy(out)


class _Errand:
    """Work that is done exactly once, by whoever claims it first."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None

    def try_to_do(self) -> bool:
        """Do the work unless somebody has begun it; whether it was begun here. What it raises is kept for `finish`."""
        if not self._claim.acquire(blocking=False):
            return False
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
            self._error = error
        finally:
            self._done.release()
        return True

    def finish(self) -> None:
        """Return when the work is done: at once here if nobody has begun it, else when they are through.

        Raises what the work raised.
        """
        if not self.try_to_do():
            self._done.acquire()
        if self._error is not None:
            raise self._error


class Partner:
    """A thread that takes work off another one's hands when it gets to run in time."""

    def __init__(self) -> None:
        self._errands: queue.SimpleQueue[_Errand] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="blas partner", daemon=True).start()

    def ask(self, work: Callable[[], None]) -> _Errand:
        errand = _Errand(work)
        self._errands.put(errand)
        return errand

    def _serve(self) -> None:
        while True:
            self._errands.get().try_to_do()


@functools.cache
def partner() -> Partner:
    """The process's one partner, started at first use."""
    return Partner()


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
