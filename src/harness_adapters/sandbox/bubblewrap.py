"""The default sandbox: bubblewrap namespaces, a root in memory, an executor inside. Linux, no privileges needed.

Invariants
- Nothing of the host's environment or command line is visible inside; nothing written inside reaches the host's disk.
- `kill` is confirmed on the sandbox's own init (pid 1 inside): the kernel ends it only after every other process of its
  namespace, so one dead process proves all of them dead.
- The sandbox dies with this process, and with the thread that started it: the kernel's parent-death signal is per
  thread. Start sandboxes on the event loop's own thread.

Asymmetry: this holds a model that is being trained, not a hostile stranger: the kernel is shared. Commands inside have
the executor's user and may end or stop it, which ends only their own sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_adapters.errors import InfraError
from harness_adapters.sandbox import archive, launcher, limits, refusals, transfer
from harness_adapters.sandbox.control import ControlChannel, Reply, sealed_memory
from harness_adapters.sandbox.process import SandboxProcess
from harness_adapters.sandbox.protocol import HOME, WORKSPACE, ExecResult, SandboxEnded, SandboxPathError, SandboxSpec
from harness_adapters.sandbox.stdio import OutputPipe

START_SECONDS = 60.0
REPLY_SECONDS = 15.0
"""How long the executor may take to do what needs no waiting; on a busy machine this is scheduling time."""
TRANSFER_SECONDS = 120.0
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/python/bin",
    "HOME": HOME,
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
    # Nobody is there to answer: what would ask, or open an editor, must end at once.
    "EDITOR": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclass(slots=True)
class _Streams:
    """The host's side of one command's request and stdio."""

    request: int
    stdin: int
    stdout: OutputPipe
    stderr: OutputPipe

    def descriptors(self) -> list[int]:
        return [self.request, self.stdin, self.stdout.write_fd, self.stderr.write_fd]

    def sent(self) -> None:
        os.close(self.request)
        os.close(self.stdin)
        self.stdout.sent()
        self.stderr.sent()


class BubblewrapSandbox:
    """See the module's head and `protocol.Sandbox`. `bwrap` is the program to use instead of the one looked for."""

    kind = "bubblewrap"

    def __init__(self, spec: SandboxSpec, *, bwrap: Path | None = None) -> None:
        self._spec = spec
        self._bwrap = bwrap
        self._boot_task: asyncio.Task[None] | None = None
        self._kill_task: asyncio.Task[None] | None = None
        self._process: SandboxProcess | None = None
        self._control: ControlChannel | None = None
        self._pipes: set[OutputPipe] = set()

    async def start(self) -> None:
        """Boot. Raises InfraError naming the program or kernel setting that is in the way."""
        if self._boot_task is not None or self._kill_task is not None:
            raise InfraError("a sandbox starts once", "open a new one")
        self._boot_task = asyncio.create_task(self._boot())
        booted = False
        try:
            await self._boot_task
            if self._kill_task is not None:
                # Killed between the end of the boot and this line: a caller of `kill` may rely on a start that fails.
                raise SandboxEnded("the sandbox was killed while it started")
            booted = True
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise SandboxEnded("the sandbox was killed while it started") from None
        finally:
            if not booted:
                await self.kill()

    async def _boot(self) -> None:
        said = await self._attempt(lock_userns=True)
        if said is not None and "cannot open /proc/sys/user/max_user_namespaces" in said:
            # A container with a read-only /proc/sys; the seccomp filter refuses new namespaces as well.
            said = await self._attempt(lock_userns=False)
        if said is not None:
            raise refusals.explain(said, refusals.read_knobs())

    async def _attempt(self, *, lock_userns: bool) -> str | None:
        """One start of bwrap; None once the executor is ready, else what was said on stderr."""
        process = self._launch(lock_userns)
        control = ControlChannel(process.host_end)
        self._process, self._control = process, control
        try:
            async with asyncio.timeout(START_SECONDS):
                await process.learn_init()
                process.let_run()
                await control.ready
        except SandboxEnded:
            control.close("it did not start")
            await process.end()
            return process.said()
        except TimeoutError:
            raise InfraError(f"the sandbox was not ready within {START_SECONDS:.0f} s", "lower the load") from None
        process.hush()
        return None

    def _launch(self, lock_userns: bool) -> SandboxProcess:
        python = launcher.interpreter()
        settings = json.dumps(limits.executor_settings(self._spec.limits))
        return SandboxProcess(
            self._bwrap or launcher.find_bwrap(),
            lambda fds: launcher.options(self._spec.mounts, self._spec.limits, fds, lock_userns=lock_userns),
            lambda control_fd: (python.path, "-I", "-S", launcher.EXECD, str(control_fd), settings),
        )

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str = WORKSPACE,
        env: Mapping[str, str] | None = None,
        timeout: float,
        stdin: bytes = b"",
        output_limit: int = 1 << 20,
    ) -> ExecResult:
        """See `protocol.Sandbox.exec`. An executor that does not answer in time ends the sandbox: SandboxEnded."""
        control = self._running()
        request = {"argv": list(argv), "cwd": cwd, "env": {**ENVIRONMENT, **(env or {})}}
        streams = self._open_streams(json.dumps(request).encode(), stdin, output_limit)
        number = 0
        result: ExecResult | None = None
        try:
            try:
                number, reply = await control.ask("exec", streams.descriptors())
            finally:
                streams.sent()
            result = await self._outcome(control, number, reply, streams, timeout)
            return result
        finally:
            if result is None:
                control.tell_kill(number)
                control.forget(number)
                streams.stdout.close()
                streams.stderr.close()
            self._pipes = {pipe for pipe in self._pipes if pipe.open}

    def _open_streams(self, request: bytes, stdin: bytes, output_limit: int) -> _Streams:
        with contextlib.ExitStack() as undo:
            request_fd = sealed_memory(request)
            undo.callback(os.close, request_fd)
            stdin_fd = sealed_memory(stdin)
            undo.callback(os.close, stdin_fd)
            stdout = OutputPipe(output_limit)
            undo.callback(stdout.close)
            stderr = OutputPipe(output_limit)
            undo.pop_all()
        self._pipes |= {stdout, stderr}
        return _Streams(request_fd, stdin_fd, stdout, stderr)

    async def _outcome(
        self, control: ControlChannel, number: int, reply: asyncio.Future[Reply], streams: _Streams, timeout: float
    ) -> ExecResult:
        done, _ = await asyncio.wait({reply}, timeout=timeout)
        timed_out = not done
        if timed_out:
            control.tell_kill(number)
        frame = (await self._answer(reply)).frame
        stdout, stderr = streams.stdout.settle(), streams.stderr.settle()
        truncated = streams.stdout.truncated or streams.stderr.truncated
        returncode = None if timed_out else int(frame["returncode"])
        return ExecResult(returncode, stdout, stderr, timed_out, truncated, str(frame["limit"]))

    async def _answer(self, reply: asyncio.Future[Reply]) -> Reply:
        """A reply that is due now. An executor that owes it longer than REPLY_SECONDS is stopped or broken."""
        done, _ = await asyncio.wait({reply}, timeout=REPLY_SECONDS)
        if not done:
            await self.kill()
            raise SandboxEnded("the sandbox's executor stopped answering; the sandbox was killed")
        answer = reply.result()
        if "error" in answer.frame:
            raise InfraError(
                f"the sandbox's executor refused: {answer.frame['error']}", "see the limits of the sandbox"
            )
        return answer

    async def put(self, tar: bytes, destination: str) -> None:
        """See `protocol.Sandbox.put`."""
        archive.check(tar)
        await self._transfer(["unpack", destination], stdin=tar)

    async def get(self, path: str, *, limit: int = 64 << 20) -> bytes:
        """See `protocol.Sandbox.get`."""
        tar = await self._transfer(["pack", path, str(limit)], output_limit=limit)
        archive.check(tar)
        return tar

    async def _transfer(self, arguments: Sequence[str], *, stdin: bytes = b"", output_limit: int = 1 << 16) -> bytes:
        python = launcher.interpreter()
        done = await self.exec(
            [python.path, "-I", "-S", launcher.TRANSFER, *arguments],
            cwd="/",
            env=dict(python.env),
            timeout=TRANSFER_SECONDS,
            stdin=stdin,
            output_limit=output_limit,
        )
        said = done.stderr.decode(errors="replace").strip()[-500:]
        if done.returncode == transfer.UNUSABLE:
            raise SandboxPathError(f"cannot {arguments[0]} {arguments[1]}: {said}")
        if done.returncode != 0 or done.truncated:
            how = "timed out" if done.timed_out else f"ended with {done.returncode}"
            raise InfraError(
                f"moving files ({arguments[0]} {arguments[1]}) {how}: {said}", "raise the sandbox's limits"
            )
        return done.stdout

    async def listen(self, port: int) -> socket.socket:
        """See `protocol.Sandbox.listen`. Raises InfraError when the port is taken inside."""
        control = self._running()
        number, reply = await control.ask("listen", port=port)
        answer: Reply | None = None
        try:
            answer = await self._answer(reply)
        finally:
            if answer is None:
                control.disown(number, reply)
        if len(answer.descriptors) != 1:
            raise SandboxEnded("the sandbox's executor sent no listener")
        listener = socket.socket(fileno=answer.descriptors[0])
        listener.setblocking(False)
        return listener

    def _running(self) -> ControlChannel:
        if self._control is None:
            raise InfraError("the sandbox is not started", "call start first")
        if self._control.ended:
            raise SandboxEnded(f"the sandbox ended: {self._control.ended}")
        return self._control

    async def kill(self) -> None:
        """See `protocol.Sandbox.kill`. Goes on to its end even when the caller is cancelled."""
        task = self._kill_task
        if task is None or (task.done() and task.exception() is not None):
            task = self._kill_task = asyncio.create_task(self._end())
        await asyncio.shield(task)

    async def _end(self) -> None:
        if self._boot_task is not None and not self._boot_task.done():
            self._boot_task.cancel()
            await asyncio.wait({self._boot_task})
        if self._process is not None:
            # First, since the executor exits when its channel closes, and bwrap would leave its init to the host's.
            self._process.strike()
        if self._control is not None:
            self._control.close("it was killed")
        if self._process is not None:
            await self._process.end()
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()

    def limits_enforced(self) -> Mapping[str, str]:
        """See `protocol.Sandbox.limits_enforced`."""
        return limits.enforced(self._spec.limits)
