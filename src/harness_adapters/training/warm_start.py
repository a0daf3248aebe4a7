"""The supervised warm start: which sessions each step sees, at which learning rate, and the loop over them.

Invariant: what step k trains on depends on the seed, k, the sessions and their families alone, so a resumed warm start
(`start_step`) continues exactly as one that was never stopped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from harness_adapters.config import WarmStartConfig
from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow
from harness_adapters.training.backend import Progress, StepMetrics, TrainingBackend
from harness_adapters.training.turns import taking_turns

Sessions = Sequence[Sequence[TrainRow]]


def learning_rate(config: WarmStartConfig, step: int) -> float:
    """Linear decay from `learning_rate` at step 0 to `final_fraction` of it at the last step."""
    done = step / (config.steps - 1) if config.steps > 1 else 0.0
    return config.learning_rate * (1 - done * (1 - config.final_fraction))


def sessions_of_step(families: Sequence[str], config: WarmStartConfig, step: int, seed: int) -> list[int]:
    """Indices of the sessions of one step: consecutive picks from one pass over all of them after another.

    `families[i]` is the task family of session i; in each pass the families take turns.
    """
    count = len(families)
    picks = range(step * config.sessions_per_step, (step + 1) * config.sessions_per_step)
    passes = {
        number: taking_turns(families, random.Random(f"{seed}/{number}"))
        for number in {pick // count for pick in picks}
    }
    return [passes[pick // count][pick % count] for pick in picks]


def warm_start(
    trainer: TrainingBackend,
    sessions: Sessions,
    config: WarmStartConfig,
    *,
    families: Sequence[str],
    seed: int,
    start_step: int = 0,
    progress: Progress | None = None,
) -> Iterator[StepMetrics]:
    """Take the steps `start_step .. config.steps - 1`, yielding after each.

    `families[i]` is the task family of `sessions[i]`. Raises TrainingError without sessions.
    """
    if not sessions and start_step < config.steps:
        raise TrainingError(
            "a warm start needs at least one session", "record oracle sessions first, or set warm_start.steps = 0"
        )
    for step in range(start_step, config.steps):
        chosen = sessions_of_step(families, config, step, seed)
        rows = [row for index in chosen for row in sessions[index]]
        yield trainer.supervised_step(rows, learning_rate(config, step), progress=progress)
