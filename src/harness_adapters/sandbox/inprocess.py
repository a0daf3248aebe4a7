"""Kind `inprocess`: commands run on the host itself, in a temporary folder. For tests only: it isolates nothing,
and sessions in it are refused unless the engine plays scripts.

The sandbox's paths become sub-folders of that folder: through `cwd`, through HOME and TMPDIR, and in each argument
that is an absolute path existing there. Paths written inside scripts are not translated; a script that wants to work in
both kinds uses paths relative to its working directory, or `$SANDBOX_ROOT` (empty in a real sandbox) as a prefix.

Invariants: nothing but the given environment and PATH reaches a command; `kill` ends every process group it started
and removes the folder.

Asymmetries: `listen` is an ordinary loopback socket of the host, so a port can be taken by anyone; a process that makes
its own session escapes `kill`; limits are not enforced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness_adapters.errors import InfraError
from harness_adapters.sandbox import archive, transfer
from harness_adapters.sandbox.protocol import (
    HOME,
    LOGS,
    WORKSPACE,
    ExecResult,
    SandboxEnded,
    SandboxPathError,
    SandboxSpec,
)
from harness_adapters.sandbox.stdio import OutputPipe

POLL_SECONDS = 0.005


class InProcessSandbox:
    """See the module's head and `protocol.Sandbox`. A spec's mounts become links in the folder."""

    kind = "inprocess"

    def __init__(self, spec: SandboxSpec) -> None:
        self._spec = spec
        self._root: Path | None = None
        self._killed = False
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._groups: set[int] = set()
        self._pipes: set[OutputPipe] = set()

    async def start(self) -> None:
        """Make the folder. Raises InfraError when a mount's source is missing."""
        if self._root is not None or self._killed:
            raise InfraError("a sandbox starts once", "open a new one")
        try:
            self._furnish()
        except InfraError:
            await self.kill()
            raise

    def _furnish(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="inprocess-sandbox-")).resolve()
        for folder in (WORKSPACE, HOME, LOGS, "/tmp"):
            self._inside(folder).mkdir(parents=True, exist_ok=True)
        for mount in self._spec.mounts:
            if not mount.source.exists():
                raise InfraError(f"cannot mount {mount.source}: it does not exist", "check that it is installed")
            self._inside(mount.target).parent.mkdir(parents=True, exist_ok=True)
            self._inside(mount.target).symlink_to(mount.source.resolve())

    def _inside(self, path: str) -> Path:
        if self._root is None or self._killed:
            raise SandboxEnded("the sandbox is not running")
        return self._root / path.lstrip("/")

    def _translate(self, argument: str) -> str:
        if argument.startswith("/") and argument.strip("/") and self._inside(argument).exists():
            return str(self._inside(argument))
        return argument

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
        """See `protocol.Sandbox.exec`."""
        stdout, stderr = OutputPipe(output_limit), OutputPipe(output_limit)
        self._pipes |= {stdout, stderr}
        process: subprocess.Popen[bytes] | None = None
        result: ExecResult | None = None
        try:
            process = self._spawn(argv, cwd, env or {}, stdin, stdout, stderr)
            if process is None:
                result = ExecResult(127, b"", f"cannot run {argv[0]!r}\n".encode())
                return result
            timed_out = not await _exited(process, timeout)
            if timed_out:
                _kill_group(process.pid)
                await _exited(process, None)
            if self._killed:
                raise SandboxEnded("the sandbox was killed")
            out, err = stdout.settle(), stderr.settle()
            returncode = None if timed_out else process.returncode
            result = ExecResult(returncode, out, err, timed_out, stdout.truncated or stderr.truncated)
            return result
        finally:
            if result is None:
                stdout.close()
                stderr.close()
                if process is not None:
                    _kill_group(process.pid)
            if process is not None:
                self._running.pop(process.pid, None)

    def _spawn(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes,
        stdout: OutputPipe,
        stderr: OutputPipe,
    ) -> subprocess.Popen[bytes] | None:
        """The started command; None when there is no such program or folder."""
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._inside(HOME)),
            "TMPDIR": str(self._inside("/tmp")),
            "LANG": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "SANDBOX_ROOT": str(self._inside("/")),
            **env,
        }
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            try:
                process = subprocess.Popen(
                    [self._translate(argument) for argument in argv],
                    cwd=self._inside(cwd),
                    env=environment,
                    stdin=file,
                    stdout=stdout.write_fd,
                    stderr=stderr.write_fd,
                    start_new_session=True,
                )
            except OSError:
                return None
            finally:
                stdout.sent()
                stderr.sent()
        self._running[process.pid] = process
        self._groups.add(process.pid)
        return process

    async def put(self, tar: bytes, destination: str) -> None:
        """See `protocol.Sandbox.put`."""
        archive.check(tar)
        with tempfile.TemporaryFile() as file:
            file.write(tar)
            file.seek(0)
            try:
                transfer.path_parts(destination)
                transfer.unpack(file, str(self._inside(destination)))
            except (transfer.Refused, OSError) as error:
                raise SandboxPathError(f"cannot unpack {destination}: {error}") from error

    async def get(self, path: str, *, limit: int = 64 << 20) -> bytes:
        """See `protocol.Sandbox.get`."""
        try:
            if not transfer.path_parts(path):
                raise transfer.Refused("the root directory cannot be packed")
            return transfer.packed(str(self._inside(path)), limit)
        except (transfer.Refused, OSError) as error:
            raise SandboxPathError(f"cannot pack {path}: {error}") from error

    async def listen(self, port: int) -> socket.socket:
        """A loopback listener of the host's own network. Raises InfraError when the port is taken."""
        self._inside("/")
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            raise InfraError(f"cannot listen on port {port}: {error.strerror}", "use a free port") from error
        listener.setblocking(False)
        return listener

    async def kill(self) -> None:
        """End the process groups and remove the folder."""
        self._killed = True
        for group in self._groups:
            _kill_group(group)
        for process in list(self._running.values()):
            await _exited(process, None)
        for pipe in self._pipes:
            pipe.close()
        self._pipes.clear()
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    def limits_enforced(self) -> Mapping[str, str]:
        """Nothing is enforced."""
        return {"isolation": "none: commands run on the host", "memory": "none", "processes": "none", "file": "none"}


async def _exited(process: subprocess.Popen[bytes], timeout: float | None) -> bool:
    """Poll until the process has exited, or the time is up. Portable, and needs no thread."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    while process.poll() is None:
        if deadline is not None and loop.time() >= deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
