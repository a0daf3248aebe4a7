"""The learning rate of policy steps: constant by default, else up in a line and down in a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.config import TrainerConfig
from harness_adapters.training.schedule import policy_learning_rate


def rates(**settings: float) -> list[float]:
    config = TrainerConfig.model_validate({"learning_rate": 1.0, **settings})
    return [policy_learning_rate(config, step) for step in range(1, config.steps + 1)]


def test_the_recipe_s_rate_is_constant() -> None:
    assert rates(steps=4) == [1.0] * 4


def test_it_rises_over_the_first_steps_and_falls_to_its_final_fraction() -> None:
    assert rates(steps=8, warmup_steps=3, final_fraction=0.2) == pytest.approx([0.25, 0.5, 0.75, 1, 0.8, 0.6, 0.4, 0.2])


@given(st.integers(1, 40), st.integers(0, 50), st.floats(0.01, 1))
def test_it_is_never_zero_and_never_more_than_configured(steps: int, warmup: int, fraction: float) -> None:
    assert all(0 < rate <= 1 for rate in rates(steps=steps, warmup_steps=warmup, final_fraction=fraction))
