"""A session runner that never does a finished session twice, and writes each one down as it ends."""

from __future__ import annotations

from harness_adapters.records import Outcome, Rollout
from harness_adapters.rollouts.session import SessionPlan, SessionRunner
from harness_adapters.runs.directory import RunDirectory


class ResumingRunner:
    """Wraps a `SessionRunner` for one set of a run (`oracle`, `rollouts`, `eval`).

    A rollout on the disk counts as finished when it was played by the plan's policy and did not end as infra or
    cancelled; those are tried again.
    """

    def __init__(self, run: RunDirectory, kind: str, runner: SessionRunner) -> None:
        self._run = run
        self._kind = kind
        self._runner = runner

    def finished(self, plan: SessionPlan) -> bool:
        return self._load(plan) is not None

    async def run(self, plan: SessionPlan) -> Rollout:
        """The finished rollout of this plan, from the disk or played now and saved."""
        done = self._load(plan)
        if done is not None:
            return done
        rollout = await self._runner.run(plan)
        self._run.save_rollout(self._kind, rollout)
        return rollout

    def _load(self, plan: SessionPlan) -> Rollout | None:
        rollout = self._run.load_rollout(self._kind, plan.id)
        if rollout is None or rollout.policy != plan.policy or rollout.outcome in (Outcome.INFRA, Outcome.CANCELLED):
            return None
        return rollout
