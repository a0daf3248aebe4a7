"""The reward: what it pays, that the bonus never turns negative, and that a block takes everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.config import RewardConfig
from harness_adapters.rollouts.reward import score

CONFIG = RewardConfig()


@pytest.mark.parametrize(
    ("verifier", "calls", "total"),
    [(1.0, 0, 1.1), (1.0, 3, 1.08), (1.0, 15, 1.0), (1.0, 40, 1.0), (0.5, 0, 0.5), (0.0, 2, 0.0)],
)
def test_reward_is_the_verifier_plus_a_floored_bonus_when_solved(verifier: float, calls: int, total: float) -> None:
    assert score(verifier, tool_calls=calls, blocked=False, config=CONFIG).total == pytest.approx(total)


def test_blocked_rollout_scores_nothing_and_keeps_the_verdict_of_the_verifier() -> None:
    parts = score(1.0, tool_calls=1, blocked=True, config=CONFIG)
    assert (parts.verifier, parts.bonus, parts.total, parts.blocked) == (1.0, 0.0, 0.0, True)


@pytest.mark.parametrize("verifier", [float("nan"), float("inf"), -float("inf")])
def test_reward_that_is_not_a_number_is_refused(verifier: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        score(verifier, tool_calls=0, blocked=False, config=CONFIG)


@given(st.floats(0, 1), st.integers(0, 1000), st.booleans())
def test_bonus_stays_between_zero_and_its_maximum_and_fewer_calls_never_pay_less(
    verifier: float, calls: int, blocked: bool
) -> None:
    parts = score(verifier, tool_calls=calls, blocked=blocked, config=CONFIG)
    more = score(verifier, tool_calls=calls + 1, blocked=blocked, config=CONFIG)
    assert 0.0 <= parts.bonus <= CONFIG.bonus
    assert parts.total >= more.total
    assert parts.total == (0.0 if blocked else parts.verifier + parts.bonus)
