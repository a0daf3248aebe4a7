"""What a sandbox is: one place to run a harness or a verifier in, used once and then killed.

Invariants
- `kill` returns only when every process that ever ran inside is confirmed dead; it may be called at any moment, from
  any state, any number of times.
- Nothing that happens inside can make a method hang: every wait is on a process's exit or a host clock, never on the
  end of a stream.
- Files cross the border as tar streams of regular files and directories. Links, devices, sparse members, absolute
  names and `..` are refused on the way in and on the way out.

Asymmetries
- `put` replaces whatever link stands in its way, `get` leaves links and special files out: what goes in must arrive,
  what comes out must be plain.
- A time-out of `exec` is a result (the command was slow); a sandbox that ended is an error (nobody can say what the
  command did).

Paths in every sandbox: /workspace (start folder), /home/agent (HOME), /tmp, /logs; user and group are 1000 inside.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness_adapters.errors import InfraError

WORKSPACE = "/workspace"
HOME = "/home/agent"
LOGS = "/logs"
UID = 1000
GID = 1000


class SandboxEnded(InfraError):
    """The sandbox's processes ended while they were needed: killed by the host, by a limit, or from inside.

    A command inside may kill the executor, since both have one user; that looks like this too.
    """


class SandboxPathError(InfraError):
    """A path inside that is absent, too large, not a plain file or directory, or cannot be written.

    Usually the doing of whatever ran inside: the caller decides whether that is a fault of the agent's.
    """


@dataclass(frozen=True, slots=True)
class Mount:
    """A read-only bind of a host file or directory at an absolute path inside."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one sandbox.

    `memory_mb` (MiB) bounds private memory of all processes plus all files written, since those live in memory;
    `processes` counts threads; `file_mb` (MiB) bounds one file and the whole of /tmp.
    """

    memory_mb: int = 2048
    processes: int = 256
    file_mb: int = 512


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What one sandbox needs beyond the common skeleton."""

    mounts: tuple[Mount, ...] = ()
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended.

    `returncode` is negative for a signal, 126 or 127 when the command could not be run, None after a time-out.
    `truncated` says that a stream had more than the output limit. `limit` names the limit (`memory`, `processes`)
    that killed it or a process of it; empty otherwise.
    """

    returncode: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False
    limit: str = ""


class Sandbox(Protocol):
    """One sandbox. All methods belong to one event loop and raise InfraError (or a subclass) on failure."""

    kind: str

    async def start(self) -> None:
        """Boot; once per object. When it raises, whatever was started is dead already."""

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
        """Run a command until it exits, or `timeout` seconds have passed and it was killed with all it started.

        Many may run at once. `env` is laid over a small fixed environment. `output_limit` bounds each of the two
        streams, in bytes; what is beyond is read and dropped. Processes left in the background live on after a
        normal exit. Cancelling kills the command. Raises SandboxEnded.
        """

    async def put(self, tar: bytes, destination: str) -> None:
        """Unpack into a directory, creating it. Raises ArchiveError, SandboxPathError, SandboxEnded."""

    async def get(self, path: str, *, limit: int = 64 << 20) -> bytes:
        """A tar of a directory's content, or of one file under its own name; at most `limit` bytes.

        Raises SandboxPathError, ArchiveError, SandboxEnded.
        """

    async def listen(self, port: int) -> socket.socket:
        """A listening TCP socket on 127.0.0.1:`port` of the sandbox's own network, accepting in this process.

        The caller owns it, and closes its server before or after `kill`, in either order.
        """

    async def kill(self) -> None:
        """End every process inside. Idempotent; returns when all are confirmed dead."""

    def limits_enforced(self) -> Mapping[str, str]:
        """Which bounds hold here and by what means, in words, for the rollout's record."""
