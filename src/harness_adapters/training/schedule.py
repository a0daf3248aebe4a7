"""The learning rate of a policy step. A function of the configuration and the step's number: nothing to save."""

from __future__ import annotations

from harness_adapters.config import TrainerConfig


def policy_learning_rate(config: TrainerConfig, step: int) -> float:
    """The rate of GRPO step `step`, counted from 1: a linear rise over `warmup_steps`, then a linear fall to
    `final_fraction` of the configured rate at the last step."""
    if step <= config.warmup_steps:
        return config.learning_rate * step / (config.warmup_steps + 1)
    falling = config.steps - config.warmup_steps - 1
    done = (step - config.warmup_steps - 1) / falling if falling > 0 else 0.0
    return config.learning_rate * (1 - done * (1 - config.final_fraction))
