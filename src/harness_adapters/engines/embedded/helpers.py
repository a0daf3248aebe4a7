"""Threads that take part in the engine's work, whenever they get to run.

A library that splits a product between its threads waits at its end for the slowest: as soon as other processes want
a core, and an agent's process does all the time, every product waits for a thread that the system has put aside, 8 ms
a time. Here a piece of work is done by whoever comes to it first, so a helper that is held up holds up nobody by more
than the piece it has begun.

Invariant: which thread does a piece never changes the result.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
from collections.abc import Callable, Sequence

import torch

MOST_HELPERS = 3
"""More helpers than this wait for Python's lock more than they compute."""


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
