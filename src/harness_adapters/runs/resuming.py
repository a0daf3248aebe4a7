"""A session runner that never does a finished session twice, and writes each one down as it ends."""

from __future__ import annotations

from harness_adapters.records import Outcome, Rollout
from harness_adapters.rollouts.session import SessionPlan, SessionRunner
from harness_adapters.runs.directory import RunDirectory

UNFINISHED = (Outcome.INFRA, Outcome.CANCELLED)


class ResumingRunner:
    """Wraps a `SessionRunner` for one set of a run (`oracle`, `rollouts`, `eval`).

    A rollout on the disk counts as finished when it is of the plan's task and policy and did not end as infra or
    cancelled; those are tried again. A retry's file (`<id>.r<N>`) finishes the plan it was a retry of.
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
        retries = range(1, self._run.config.session.infra_retries + 1)
        for identity in (plan.id, *(f"{plan.id}.r{number}" for number in retries)):
            rollout = self._run.load_rollout(self._kind, identity)
            if (
                rollout is not None
                and (rollout.task, rollout.policy) == (plan.task.id, plan.policy)
                and rollout.outcome not in UNFINISHED
            ):
                return rollout
        return None
