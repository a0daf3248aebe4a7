"""The one vocabulary of failures: what went wrong, and what the person can do next.

Every error a person may cause or meet derives from `HarnessAdaptersError` and carries a `hint`: the next step, in
one sentence. The command line prints `error: message (hint)` on one line and exits with 1; anything else is our bug
and keeps its traceback.

Asymmetry: `InfraError` is never the agent's fault. Whoever catches one ends the rollout as `infra`, never as a
reward of 0.
"""

from __future__ import annotations


class HarnessAdaptersError(Exception):
    """Base of all expected failures; `hint` says what to do next (may be empty)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class Terminated(Exception):
    """The system asked the program to end (SIGTERM): no failure, and what was finished is kept."""


class ConfigError(HarnessAdaptersError):
    """A configuration file, flag or policy that cannot be used."""


class TaskError(HarnessAdaptersError):
    """A task directory that does not parse or cannot run here."""


class EngineError(HarnessAdaptersError):
    """An engine that is absent, refuses, or answers outside its contract."""


class HarnessError(HarnessAdaptersError):
    """A harness that is not installed, or ended in a way that is not the agent's doing."""


class InfraError(HarnessAdaptersError):
    """A sandbox, verifier, disk or process failure: never scored, always retried or reported."""


class RunError(HarnessAdaptersError):
    """A run directory that is in use, damaged, or of another configuration."""


class TrainingError(HarnessAdaptersError):
    """Training cannot go on: non-finite loss, a checkpoint of another base, an adapter that is not served."""


class SessionError(HarnessAdaptersError):
    """A recorded session that cannot be read, or a file that holds none."""
