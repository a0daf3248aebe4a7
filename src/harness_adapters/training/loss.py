"""The losses of supervised and policy training as pure functions, and the advantages of a group.

Sources: GRPO (arXiv 2402.03300), the clipped ratio of PPO (arXiv 1707.06347), dual clip (arXiv 1912.09729, eq. 5),
separate upper and lower clip bounds and the token-level mean over a whole step from DAPO (arXiv 2503.14476).

Asymmetry: every loss here is a *sum* over the given terms divided by `tokens`, the trained tokens of the whole
optimizer step, so micro-batches add up to the same loss however a step is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_BOUND = 30.0
"""Log ratios are clamped here, far beyond any clip bound, so that exp() stays finite in float32."""


@dataclass(frozen=True)
class PolicyLoss:
    """`loss`: scalar with gradient. The rest are sums over the terms, without gradient.

    `ratio` of new to old probability, `kl` the k3 estimate of KL(old || new), `clipped` the number of terms whose
    gradient the clips removed, `drift` |log new - log old|.
    """

    loss: Tensor
    ratio: float
    kl: float
    clipped: float
    drift: float


def supervised_loss(logprobs: Tensor, tokens: int) -> Tensor:
    """-sum(log p) / tokens for log-probs [K] in nats."""
    return -logprobs.sum() / tokens


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    tokens: int,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
) -> PolicyLoss:
    """GRPO's token loss over terms [K], float32, log-probs in nats.

    With r = exp(log p - log p_old) and advantage A, a term's objective is min(r A, clip(r, 1 - clip_low,
    1 + clip_high) A), and for A < 0 at least dual_clip A; the loss is -sum(objective) / tokens.
    """
    log_ratio = (logprobs - old_logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    ratio = log_ratio.exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    objective = torch.minimum(unclipped, clipped)
    floor = torch.where(advantages < 0, dual_clip * advantages, torch.full_like(advantages, -math.inf))
    objective = torch.maximum(objective, floor)
    loss = -objective.sum() / tokens
    with torch.no_grad():
        cut = ((clipped < unclipped) | (floor > torch.minimum(unclipped, clipped))) & (advantages != 0)
        return PolicyLoss(
            loss=loss,
            ratio=float(ratio.sum()),
            kl=float(k3(log_ratio).sum()),
            clipped=float(cut.sum()),
            drift=float(log_ratio.abs().sum()),
        )


def k3(log_ratio: Tensor) -> Tensor:
    """r - 1 - log r with r = p_new / p_old: unbiased for KL(old || new) on samples of the old, and never negative."""
    return log_ratio.exp() - 1 - log_ratio


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-6) with the population standard deviation; all exactly 0 when the rewards are equal."""
    if not has_spread(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]


def has_spread(rewards: Sequence[float]) -> bool:
    """Whether a group teaches anything: at least two rewards that differ by more than rounding."""
    return len(rewards) > 1 and max(rewards) - min(rewards) > 1e-9
