"""A command in a process of its own, for work whose memory must be gone when it ends.

Invariants
- It dies with this process, however that ends; nothing of it is left behind.
- Whatever tells this process to stop (Ctrl-C, SIGTERM) reaches it once, as SIGTERM, and it is waited for until it has
  cleaned up; a second Ctrl-C ends it at once.

Asymmetry: it has a process group of its own, since a terminal would send its Ctrl-C to both, and a second signal in the
middle of a clean-up cuts that short.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence

from harness_adapters.errors import Terminated

_PR_SET_PDEATHSIG = 1


def run_apart(command: Sequence[str]) -> int:
    """Run a command on this process's own input and outputs to its end; its exit code, 128 and the number for a signal.

    Call it from the main thread. Raises KeyboardInterrupt or Terminated where this process is told to stop, OSError
    where the command cannot be started.
    """
    with (
        _told_by_exception(),
        subprocess.Popen(command, process_group=0, preexec_fn=_dying_with(os.getpid())) as process,
    ):
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            try:
                process.wait()
            except BaseException:
                process.kill()
                raise
            raise
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _told_by_exception() -> Iterator[None]:
    """SIGTERM raises Terminated, as Ctrl-C raises KeyboardInterrupt."""

    def stop(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _dying_with(parent: int) -> Callable[[], None]:
    """What a child does first: it has the kernel kill it when its parent is gone, or ends where that is so already."""
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
