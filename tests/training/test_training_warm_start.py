"""The warm start sees every session equally often, in an order its seed fixes, and resumes where it stopped."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_cases import session_rows, tiny_trainer

from harness_adapters.config import WarmStartConfig
from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow
from harness_adapters.training.warm_start import learning_rate, sessions_of_step, warm_start

CONFIG = WarmStartConfig(steps=6, sessions_per_step=2, learning_rate=0.01, final_fraction=0.1)


def _sessions(count: int) -> list[list[TrainRow]]:
    return [[row] for row in session_rows(0, count)]


def _families(count: int) -> list[str]:
    return ["rename"] * count


def test_the_learning_rate_falls_in_a_line_to_its_final_fraction() -> None:
    rates = [learning_rate(CONFIG, step) for step in range(CONFIG.steps)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[-1] == pytest.approx(0.001)
    assert rates == pytest.approx([0.01 - step * 0.0018 for step in range(6)])
    assert learning_rate(WarmStartConfig(steps=1, learning_rate=0.5), 0) == 0.5


FAMILIES = st.lists(st.sampled_from(["rename", "count", "mean"]), min_size=1, max_size=9)


@given(FAMILIES, st.integers(1, 12), st.integers(1, 8), st.integers(0, 5))
def test_every_session_is_seen_equally_often(families: list[str], steps: int, per_step: int, seed: int) -> None:
    config = WarmStartConfig(steps=steps, sessions_per_step=per_step)
    seen = Counter(index for step in range(steps) for index in sessions_of_step(families, config, step, seed))
    times = [seen[index] for index in range(len(families))]
    assert sum(times) == steps * per_step
    assert max(times) - min(times) <= 1


def test_a_step_sees_as_many_families_as_it_has_sessions() -> None:
    families = [family for family in ("rename", "count", "mean", "tree") for _ in range(6)]
    for step in range(6):
        chosen = sessions_of_step(families, WarmStartConfig(sessions_per_step=4), step, seed=7)
        assert {families[index] for index in chosen} == {"rename", "count", "mean", "tree"}


def test_another_seed_gives_another_order() -> None:
    config = WarmStartConfig(sessions_per_step=30)
    orders = {tuple(sessions_of_step(["rename"] * 30, config, 0, seed)) for seed in range(4)}
    assert len(orders) == 4


def test_it_lowers_the_loss_at_the_scheduled_rates() -> None:
    metrics = list(warm_start(tiny_trainer(), _sessions(4), CONFIG, families=_families(4), seed=0))
    assert [step.step for step in metrics] == [1, 2, 3, 4, 5, 6]
    assert [step.learning_rate for step in metrics] == [learning_rate(CONFIG, step) for step in range(6)]
    assert metrics[-1].loss < metrics[0].loss


def test_a_resumed_warm_start_takes_the_steps_that_were_left() -> None:
    whole = [step.loss for step in warm_start(tiny_trainer(), _sessions(5), CONFIG, families=_families(5), seed=3)]
    trainer = tiny_trainer()
    running = warm_start(trainer, _sessions(5), CONFIG, families=_families(5), seed=3)
    first = [next(running).loss for _ in range(2)]
    rest = [
        step.loss for step in warm_start(trainer, _sessions(5), CONFIG, families=_families(5), seed=3, start_step=2)
    ]
    assert first + rest == whole


def test_it_needs_sessions_unless_there_is_nothing_left_to_do() -> None:
    with pytest.raises(TrainingError, match="at least one session"):
        next(warm_start(tiny_trainer(), [], CONFIG, families=[], seed=0))
    assert list(warm_start(tiny_trainer(), [], CONFIG, families=[], seed=0, start_step=6)) == []
