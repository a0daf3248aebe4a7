"""What a comparison reads of one evaluation session, and nothing more: small enough to be committed beside a result.

Invariant: every number of a comparison is a function of these records, so that whoever has them can make it anew
without the recorded sessions themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness_adapters.errors import RunError
from harness_adapters.records import Outcome, Rollout

COUNTED = (Outcome.GRADED, Outcome.AGENT_FAULT)
"""Outcomes that say something about the policy; the others are left out and counted."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One session. `blocked`: the guard blocked a call in it; `tokens` were sampled, auxiliary calls included."""

    split: str
    label: str
    task: str
    family: str
    attempt: str
    outcome: Outcome
    solved: bool
    tool_calls: int
    blocked: bool
    tokens: int
    ended_by: str

    @property
    def counted(self) -> bool:
        return self.outcome in COUNTED

    @property
    def plan(self) -> tuple[str, str, str]:
        """Policy, task and attempt: one planned session. An infra attempt and its retry share one."""
        return self.label, self.task, self.attempt


def evaluated(rollout: Rollout) -> Evaluated:
    """The record of a rollout tagged `split` and `policy_label`. Raises RunError for one without these tags."""
    return Evaluated(
        split=_tag(rollout, "split"),
        label=_tag(rollout, "policy_label"),
        task=rollout.task,
        family=rollout.family,
        attempt=rollout.tags.get("attempt", "0"),
        outcome=rollout.outcome,
        solved=rollout.solved,
        tool_calls=rollout.tool_calls,
        blocked=rollout.blocked,
        tokens=sum(len(call.completion_ids) for call in rollout.calls),
        ended_by=rollout.ended_by,
    )


def harness_of(rollouts: Iterable[Rollout]) -> str:
    """The one harness of some rollouts, empty for none. Raises RunError for several."""
    harnesses = {rollout.harness for rollout in rollouts}
    if len(harnesses) > 1:
        raise RunError(
            f"the rollouts are of several harnesses: {', '.join(sorted(harnesses))}", "compare one at a time"
        )
    return next(iter(harnesses), "")


def _tag(rollout: Rollout, name: str) -> str:
    value = rollout.tags.get(name, "")
    if not value:
        raise RunError(f"rollout {rollout.id!r} has no tag {name!r}", "evaluate it again with this version")
    return value
