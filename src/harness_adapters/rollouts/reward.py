"""The reward of a finished session: the verifier's verdict, plus a small bonus for few tool calls when solved. Pure."""

from __future__ import annotations

import math

from harness_adapters.config import RewardConfig
from harness_adapters.records import RewardParts

SOLVED = 1.0
"""A verifier reward from here on counts as solved."""


def score(verifier: float, *, tool_calls: int, blocked: bool, config: RewardConfig) -> RewardParts:
    """`verifier + bonus·(1 − calls/bonus_calls)` when solved, the bonus floored at 0; 0 in total when blocked.

    `tool_calls` counts every call the model made, blocked and parallel ones included. Raises ValueError for a verifier
    reward that is not finite or a negative count.
    """
    if not math.isfinite(verifier):
        raise ValueError(f"verifier reward {verifier!r} is not a finite number")
    if tool_calls < 0:
        raise ValueError(f"{tool_calls} tool calls")
    bonus = 0.0
    if verifier >= SOLVED and not blocked:
        bonus = max(0.0, config.bonus * (1 - tool_calls / config.bonus_calls))
    return RewardParts(verifier=verifier, bonus=bonus, blocked=blocked, total=0.0 if blocked else verifier + bonus)
