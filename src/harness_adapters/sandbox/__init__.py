"""Where harnesses and verifiers run: one protocol, and the kinds that speak it."""

from __future__ import annotations

from harness_adapters.errors import ConfigError
from harness_adapters.sandbox.protocol import (
    ExecResult,
    Limits,
    Mount,
    Sandbox,
    SandboxEnded,
    SandboxPathError,
    SandboxSpec,
)

__all__ = [
    "ExecResult",
    "Limits",
    "Mount",
    "Sandbox",
    "SandboxEnded",
    "SandboxPathError",
    "SandboxSpec",
    "open_sandbox",
]


def open_sandbox(kind: str, spec: SandboxSpec) -> Sandbox:
    """A sandbox of a kind, not yet started: `bubblewrap`, or `inprocess` for tests. Raises ConfigError."""
    if kind == "bubblewrap":
        from harness_adapters.sandbox.bubblewrap import BubblewrapSandbox

        return BubblewrapSandbox(spec)
    if kind == "inprocess":
        from harness_adapters.sandbox.inprocess import InProcessSandbox

        return InProcessSandbox(spec)
    raise ConfigError(f"no sandbox kind {kind!r}", "known kinds: bubblewrap, inprocess")
