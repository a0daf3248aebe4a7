"""What a harness is to the rest of the package: files to mount, files to write, a command, and how to read its end.

Invariants
- A harness runs unmodified: it is configured through its own files, flags and environment only.
- Everything it needs is installed before a sandbox opens; a launch does no network but the model's.
- The instruction travels on standard input, byte for byte, whatever it looks like.

Asymmetry: a harness describes; the sandbox and the gateway are driven by `rollouts`. So a harness names its mounts as
plain pairs and imports neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness_adapters.records import ToolMap

HOME = "/home/agent"
"""HOME of the agent in every sandbox; fixed, so prompts that mention it are the same in all sessions."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to run in the task's working directory; `env` is laid over the sandbox's own small environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class HarnessExit:
    """How the harness says it ended.

    `ok` is false when the harness reports that a model request failed, or when its process died; `error` says how in
    one line. `crashed` tells the two apart: the process ended on its own without a final report.
    """

    ok: bool
    error: str = ""
    crashed: bool = False


class Harness(Protocol):
    """One installed harness at one version."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def tool_map(self) -> ToolMap:
        """What each of its tools does with which arguments, for the guard."""
        ...

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 inside the sandbox at which it expects the model."""
        ...

    def install(self, cache: Path, say: Callable[[str], None]) -> None:
        """Install into `cache` unless it is there, telling `say` each step. Raises HarnessError or InfraError."""
        ...

    def mounts(self) -> tuple[tuple[Path, str], ...]:
        """Read-only folders as (source on the host, target in the sandbox). Raises HarnessError if not installed."""
        ...

    def files(self, *, base_url: str, alias: str, context: int, max_tokens: int) -> Mapping[str, bytes]:
        """Configuration files by absolute path in the sandbox. `context` and `max_tokens` are in tokens."""
        ...

    def launch(self, instruction: str, *, session_id: str, alias: str) -> Launch:
        """The command that plays `instruction` to its end and exits."""
        ...

    def read_exit(self, result_stdout: bytes, result_stderr: bytes, returncode: int | None) -> HarnessExit:
        """What the harness's output says about its end; tolerant of cut and foreign lines."""
        ...
