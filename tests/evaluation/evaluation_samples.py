"""Rollouts made by hand: the smallest that an evaluation reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from harness_adapters.records import CallLabel, Decision, ModelCall, Outcome, RewardParts, Rollout, Verdict

MakeRollout = Callable[..., Rollout]


def rollout_factory() -> MakeRollout:
    """A factory of evaluation rollouts; each gets an id of its own."""
    numbers = itertools.count()

    def make(
        label: str = "base",
        task: str = "task-0",
        solved: bool = False,
        calls: int = 3,
        *,
        split: str = "heldout",
        outcome: Outcome = Outcome.GRADED,
        verdicts: Sequence[Verdict] = (),
        text: str = "",
        ended_by: str = "stop",
        tags: dict[str, str] | None = None,
    ) -> Rollout:
        blocked = any(verdict.decision is Decision.BLOCK for verdict in verdicts)
        call = ModelCall(0, label, (1, 2), (3, 4, 5), (-0.1, -0.2, -0.3), "stop", CallLabel.AGENT)
        parts = RewardParts(float(solved), 0.05 * solved, blocked, 0.0 if blocked else 1.05 * solved)
        return Rollout(
            id=f"rollout-{next(numbers)}",
            task=task,
            family="edit",
            group="",
            harness="pi",
            policy=label,
            outcome=outcome,
            reward=parts if outcome is Outcome.GRADED else None,
            calls=(replace(call, text=text, verdicts=tuple(verdicts)),),
            tool_calls=calls,
            ended_by=ended_by,
            tags={"split": split, "policy_label": label} if tags is None else tags,
        )

    return make
