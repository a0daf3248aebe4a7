"""What runs a batch: a request on its way (`Job`), what a step gave it, and who computes steps (`Backend`).

Only the engine's thread touches a job, but for `future`, through which a client may cancel.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from harness_adapters.engines.embedded.requests import Answer, Generation
from harness_adapters.engines.embedded.sampling import Draw


@dataclass(slots=True, eq=False)
class Job:
    """A request, what it drew so far, and how much of its prompt was not computed again (`cached`).

    `adapter` is what the backend's `read_adapter` gave, None for the base; `key` tells adapters apart.
    """

    request: Generation
    adapter: Any
    key: int
    future: Future[Answer]
    cached: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    prompt_logprobs: list[float | None] = field(default_factory=list)
    draw: Draw = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator()
        seed = self.request.seed
        generator.manual_seed(secrets.randbits(62) if seed is None else seed)
        self.draw = Draw(self.request.temperature, self.request.top_p, generator)

    @property
    def cancelled(self) -> bool:
        return self.future.cancelled()

    def answer(self, finish_reason: str) -> Answer:
        asked = self.request.prompt_logprobs
        return Answer(
            token_ids=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            finish_reason=finish_reason,
            prompt_logprobs=tuple(self.prompt_logprobs) if asked else None,
            cached_tokens=self.cached,
        )


@dataclass(slots=True)
class StepResult:
    """What a job got from a step: `filled` prompt tokens with their scores, and a token with its log-prob."""

    job: Any
    filled: int = 0
    scores: list[float | None] = field(default_factory=list)
    drawn: tuple[int, float] | None = None


class Backend(Protocol):
    """Computes steps of jobs it made itself. The engine's thread calls everything but `new` and `read_adapter`."""

    vocabulary: int
    positions: int

    def read_adapter(self, name: str, folder: Path) -> Any:
        """The adapter of a PEFT folder. Raises EngineError naming what does not fit this model."""

    def open(self, key: int) -> None:
        """An adapter with this key will be used."""

    def drop(self, key: int) -> None:
        """No new job will have this key; those that have it go on."""

    def new(self, request: Generation, adapter: Any, key: int, future: Future[Answer]) -> Any:
        """A job for a request."""

    def should_wait(self, job: Any, running: Sequence[Any]) -> bool:
        """Whether a job had better start after some that are running."""

    def begin(self, job: Any) -> None:
        """Make room for a job that now runs."""

    def step(self, running: Sequence[Any]) -> list[StepResult]:
        """Compute one step for some or all running jobs; changes nothing that `book` would have to undo."""

    def book(self, result: StepResult) -> None:
        """Move a job's context on by what the step computed for it."""

    def leave(self, job: Any, *, store: bool) -> None:
        """Give back what a job holds; `store` keeps what its session's next request may use."""
