"""The supervised warm start: which sessions each step sees, at which learning rate, and the loop over them.

Invariant: what step k trains on depends on the seed, k and the sessions alone, so a resumed warm start (`start_step`)
continues exactly as one that was never stopped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from harness_adapters.config import WarmStartConfig
from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow
from harness_adapters.training.backend import Progress, StepMetrics, TrainingBackend

Sessions = Sequence[Sequence[TrainRow]]


def learning_rate(config: WarmStartConfig, step: int) -> float:
    """Linear decay from `learning_rate` at step 0 to `final_fraction` of it at the last step."""
    done = step / (config.steps - 1) if config.steps > 1 else 0.0
    return config.learning_rate * (1 - done * (1 - config.final_fraction))


def sessions_of_step(count: int, config: WarmStartConfig, step: int, seed: int) -> list[int]:
    """Indices of the sessions of one step: consecutive picks from one shuffle of all `count` after another."""
    picks = range(step * config.sessions_per_step, (step + 1) * config.sessions_per_step)
    shuffles: dict[int, list[int]] = {}
    for epoch in {pick // count for pick in picks}:
        shuffles[epoch] = list(range(count))
        random.Random(f"{seed}/{epoch}").shuffle(shuffles[epoch])
    return [shuffles[pick // count][pick % count] for pick in picks]


def warm_start(
    trainer: TrainingBackend,
    sessions: Sessions,
    config: WarmStartConfig,
    *,
    seed: int,
    start_step: int = 0,
    progress: Progress | None = None,
) -> Iterator[StepMetrics]:
    """Take the steps `start_step .. config.steps - 1`, yielding after each. Raises TrainingError without sessions."""
    if not sessions and start_step < config.steps:
        raise TrainingError(
            "a warm start needs at least one session", "record oracle sessions first, or set warm_start.steps = 0"
        )
    for step in range(start_step, config.steps):
        chosen = sessions_of_step(len(sessions), config, step, seed)
        rows = [row for index in chosen for row in sessions[index]]
        yield trainer.supervised_step(rows, learning_rate(config, step), progress=progress)
