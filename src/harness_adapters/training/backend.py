"""What the rest of the project asks of whatever trains an adapter, without importing any of it.

Invariant: a call that raises TrainingError has not changed the adapter's weights or its optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from harness_adapters.records import TrainRow

Progress = Callable[[int, int], None]
"""Called after each micro-batch of a step with (how many are done, how many there are)."""


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One optimizer step. Means are over trained tokens; `seconds` is wall time, `cpu_seconds` of the whole process.

    `ratio`, `kl` (k3, nats), `clipped_share` and `drift` (mean |log new - log old|) compare the policy before the step
    with the one that sampled; they are 1, 0, 0 and 0 in a supervised step. `entropy` is in nats, temperature applied.
    `packing_ratio` is raw over unique tokens; `rows_dropped` were longer than a micro-batch may be.
    """

    step: int
    loss: float
    tokens: int
    raw_tokens: int
    unique_tokens: int
    detached_tokens: int
    packing_ratio: float
    micro_batches: int
    rows: int
    rows_dropped: int
    learning_rate: float
    grad_norm: float
    entropy: float
    seconds: float
    cpu_seconds: float
    ratio: float = 1.0
    kl: float = 0.0
    clipped_share: float = 0.0
    drift: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class TrainingBackend(Protocol):
    """Trains one LoRA adapter on one base model. Every method may raise TrainingError, saving also InfraError."""

    @property
    def step(self) -> int:
        """Optimizer steps taken so far, supervised and policy steps together."""

    def supervised_step(
        self, rows: Sequence[TrainRow], learning_rate: float, *, progress: Progress | None = None
    ) -> StepMetrics:
        """One step on the mean negative log-prob of the trained tokens at temperature 1; advantages are ignored."""

    def policy_step(
        self, rows: Sequence[TrainRow], learning_rate: float | None = None, *, progress: Progress | None = None
    ) -> StepMetrics:
        """One GRPO step; `TrainRow.logprobs` are the sampler's, at the sampling temperature."""

    def reset_optimizer(self) -> None:
        """Forget the optimizer's moments, between two objectives."""

    def logprobs(self, rows: Sequence[TrainRow], *, temperature: float | None = None) -> list[list[float]]:
        """Per row, the log-prob of each trained token under the current adapter, in token order."""

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter in PEFT's layout; `folder` appears whole or not at all."""

    def save_checkpoint(self, folder: Path, state: Mapping[str, Any] | None = None) -> None:
        """Write all that a resumed run needs, with the caller's JSON `state`; whole or not at all."""

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Continue from a checkpoint and return the `state` it was saved with."""
