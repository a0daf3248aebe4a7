"""The loss functions equal a plain loop over the formulas, and group advantages their definition."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.training.loss import group_advantages, has_spread, k3, policy_loss, supervised_loss

LOW, HIGH, DUAL = 0.2, 0.28, 3.0

TERM = st.tuples(st.floats(-8, -0.01), st.floats(-8, -0.01), st.floats(-3, 3))


def _loop_objective(new: float, old: float, advantage: float) -> tuple[float, bool]:
    """A term's objective and whether the clips leave it without gradient."""
    ratio = math.exp(new - old)
    if advantage >= 0:
        held = ratio > 1 + HIGH and advantage > 0
        return min(ratio, 1 + HIGH) * advantage, held
    if ratio < 1 - LOW:
        return (1 - LOW) * advantage, True
    return max(ratio * advantage, DUAL * advantage), ratio > DUAL


@given(st.lists(TERM, min_size=1, max_size=12), st.integers(1, 50))
@settings(deadline=None)
def test_policy_loss_its_gradient_and_its_sums_equal_a_loop_over_the_terms(
    terms: list[tuple[float, float, float]], tokens: int
) -> None:
    new, old, advantages = (torch.tensor(column, dtype=torch.float64) for column in zip(*terms, strict=True))
    new.requires_grad_()
    result = policy_loss(new, old, advantages, tokens=tokens, clip_low=LOW, clip_high=HIGH, dual_clip=DUAL)
    (gradient,) = torch.autograd.grad(result.loss, new)
    objectives = [_loop_objective(*term) for term in terms]
    assert float(result.loss.detach()) == pytest.approx(
        -sum(value for value, _ in objectives) / tokens, rel=1e-9, abs=1e-12
    )
    for term, (_, held), slope in zip(terms, objectives, gradient.tolist(), strict=True):
        ratio = math.exp(term[0] - term[1])
        assert slope == pytest.approx(0.0 if held else -ratio * term[2] / tokens, rel=1e-9, abs=1e-12)
    ratios = [math.exp(a - b) for a, b, _ in terms]
    assert result.ratio == pytest.approx(sum(ratios))
    assert result.kl == pytest.approx(sum(r - 1 - math.log(r) for r in ratios), abs=1e-9)
    assert result.clipped == sum(held for _, held in objectives)
    assert result.drift == pytest.approx(sum(abs(a - b) for a, b, _ in terms))


def test_micro_batches_add_up_to_the_loss_of_the_whole_step() -> None:
    new, old, advantages = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))

    def loss(part: slice) -> float:
        terms = (new[part], old[part], advantages[part])
        return float(policy_loss(*terms, tokens=10, clip_low=LOW, clip_high=HIGH, dual_clip=DUAL).loss)

    assert loss(slice(0, 4)) + loss(slice(4, 10)) == pytest.approx(loss(slice(0, 10)))
    assert float(supervised_loss(new, 10)) == pytest.approx(-float(new.mean()))


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_huge_ratio_gives_a_finite_loss_and_gradient(advantage: float) -> None:
    new = torch.tensor([-0.1], requires_grad=True)
    terms = (new, torch.tensor([-500.0]), torch.tensor([advantage]))
    result = policy_loss(*terms, tokens=1, clip_low=LOW, clip_high=HIGH, dual_clip=DUAL)
    (gradient,) = torch.autograd.grad(result.loss, new)
    assert math.isfinite(float(result.loss.detach()))
    assert gradient.tolist() == [0.0]


def test_k3_averages_to_the_kl_of_the_old_from_the_new() -> None:
    old, new = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.3, 0.2])
    kl = float((old * (old / new).log()).sum())
    assert float((old * k3((new / old).log())).sum()) == pytest.approx(kl, rel=1e-5)


@given(st.lists(st.floats(-1, 1.1), min_size=2, max_size=8).filter(has_spread))
def test_group_advantages_follow_the_definition(rewards: list[float]) -> None:
    expected = [(r - statistics.fmean(rewards)) / (statistics.pstdev(rewards) + 1e-6) for r in rewards]
    assert group_advantages(rewards) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("rewards", [[], [0.5], [0.1, 0.1, 0.1], [1.1 - 0.1, 1.0]])
def test_a_group_without_spread_gets_advantages_of_exactly_zero(rewards: list[float]) -> None:
    assert not has_spread(rewards)
    assert group_advantages(rewards) == [0.0] * len(rewards)
