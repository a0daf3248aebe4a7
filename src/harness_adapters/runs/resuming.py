"""A session runner that never does a finished session twice, and writes each one down as it ends.

Invariant: an attempt's file is never written over. The first attempt of a session has the session's id, the next ones
add `.r1`, `.r2` and so on, over all processes that had a hand in it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from harness_adapters.records import Outcome, Rollout
from harness_adapters.rollouts.session import SessionPlan, SessionRunner
from harness_adapters.runs.directory import RunDirectory

UNFINISHED = (Outcome.INFRA, Outcome.CANCELLED)

_RETRY = re.compile(r"\.r\d+\Z")


class ResumingRunner:
    """Wraps a `SessionRunner` for one set of a run (`oracle`, `rollouts`, `eval`).

    A rollout on the disk counts as finished when it is of the plan's task and policy and did not end as infra or
    cancelled; those are tried again. One of another task or policy is moved away before the plan is played.
    """

    def __init__(self, run: RunDirectory, kind: str, runner: SessionRunner) -> None:
        self._run = run
        self._kind = kind
        self._runner = runner

    def finished(self, plan: SessionPlan) -> bool:
        return _finished(plan, self._attempts(plan)) is not None

    async def run(self, plan: SessionPlan) -> Rollout:
        """The finished rollout of this plan, from the disk or played now and saved under the next free id."""
        attempts = self._attempts(plan)
        done = _finished(plan, attempts)
        if done is not None:
            return done
        foreign = [attempt for attempt in attempts if not _is_of(plan, attempt)]
        self._run.set_aside(
            [self._run.path / self._kind / f"{attempt.id}.json" for attempt in foreign],
            f"they are of another task or policy than {plan.task.id} and {plan.policy}",
        )
        taken = {attempt.id for attempt in attempts} - {attempt.id for attempt in foreign}
        identity = next(name for name in _names(plan) if name not in taken)
        rollout = await self._runner.run(replace(plan, id=identity))
        self._run.save_rollout(self._kind, rollout)
        return rollout

    def _attempts(self, plan: SessionPlan) -> list[Rollout]:
        """Every attempt at this session on the disk, the first one first."""
        loaded = (self._run.load_rollout(self._kind, name) for name in _names(plan))
        return [rollout for rollout in itertools.takewhile(lambda one: one is not None, loaded) if rollout is not None]


def _names(plan: SessionPlan) -> itertools.chain[str]:
    first = _RETRY.sub("", plan.id)
    return itertools.chain([first], (f"{first}.r{number}" for number in itertools.count(1)))


def _is_of(plan: SessionPlan, rollout: Rollout) -> bool:
    return (rollout.task, rollout.policy) == (plan.task.id, plan.policy)


def _finished(plan: SessionPlan, attempts: Sequence[Rollout]) -> Rollout | None:
    whole = (attempt for attempt in attempts if _is_of(plan, attempt) and attempt.outcome not in UNFINISHED)
    return next(whole, None)
