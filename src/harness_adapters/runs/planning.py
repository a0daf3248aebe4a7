"""The plan of one GRPO step: which task each of its groups plays, written down before a session of it starts.

    plans/s00007.json   {"policy": "<version that is sampled from>", "groups": ["<task of group 0>", …]}

A group is drawn when it starts: the first ones together, a refill when a group showed no spread. Whatever a killed
process had drawn, the next one plays under the same ids, so that no finished rollout of it stays unused, also where
the pool of tasks was changed meanwhile.

Invariant: a task is handed out only after the plan on the disk names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from harness_adapters.errors import RunError
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.sampling import TaskSampler
from harness_adapters.storage import write_atomic
from harness_adapters.tasks.format import Task


class StepPlan:
    """Hands out the tasks of a step's groups: those that were drawn before, then new ones from `sampler`.

    `sampler` stands where the step began; for every task handed out, new or not, it moves on by one. A plan and
    rollouts of this step that belong to another policy (weights that a resume could not reproduce) are moved away.
    Raises RunError for a damaged plan.
    """

    def __init__(self, run: RunDirectory, step: int, policy: str, sampler: TaskSampler) -> None:
        self.path = run.folder("plans") / f"s{step:05d}.json"
        self._policy = policy
        self._sampler = sampler
        found, groups = _read(self.path) if self.path.exists() else (policy, [])
        if found != policy:
            why = f"they were sampled from {found}, and the run goes on with {policy}"
            run.set_aside(sorted((run.path / "rollouts").glob(f"s{step}-g*.json")), why)
            run.set_aside([self.path], why)
            groups = []
        self._groups = groups
        self.planned = len(groups)
        """How many groups were drawn before."""
        self._handed_out = 0

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        drawn = next(self._sampler)
        if self._handed_out == len(self._groups):
            plan = {"policy": self._policy, "groups": [*self._groups, drawn.id]}
            write_atomic(self.path, json.dumps(plan).encode())
            self._groups.append(drawn.id)
        name = self._groups[self._handed_out]
        task = self._sampler.task(name)
        if task is None:
            raise RunError(f"{self.path} plans task {name!r}, which the run's tasks no longer hold", "put it back")
        self._handed_out += 1
        return task


def _read(path: Path) -> tuple[str, list[str]]:
    """Policy and tasks of a plan that was begun."""
    try:
        plan = json.loads(path.read_bytes())
        policy, groups = plan["policy"], plan["groups"]
        if not isinstance(policy, str) or not isinstance(groups, list) or not all(isinstance(g, str) for g in groups):
            raise TypeError("a policy and a list of tasks are needed")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error!r}", "delete it; the step is then planned anew") from None
    return policy, groups
