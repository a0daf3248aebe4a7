"""A run's adapter versions: which number each gets, when one is published, and which a resumed run goes on with.

Invariants
- A version's name and folder never stand for two contents. The number is the step's; where a resume came to other
  weights than a folder of that number holds, it is the next one that was never used.
- Numbers grow with the steps. Version 0 is leased from the start to the end, so that the evaluation finds it.
- Sessions only ever sample from a version that passed the canary, or that could not be told apart (which is logged).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness_adapters.config import RunConfig
from harness_adapters.engines.publisher import CanaryReport, CanaryScores, Publisher
from harness_adapters.errors import RunError
from harness_adapters.records import BASE_POLICY, PolicyVersion
from harness_adapters.runs.directory import RunDirectory, policy_run_name
from harness_adapters.runs.restoring import LearnerState
from harness_adapters.storage import write_atomic

if TYPE_CHECKING:
    from harness_adapters.training.trainer import Trainer


class Versions:
    """The versions of one run on one engine. `scores` gives the trainer's present canary scores."""

    def __init__(
        self,
        run: RunDirectory,
        publisher: Publisher,
        trainer: Trainer,
        state: LearnerState,
        scores: Callable[[], Awaitable[CanaryScores]],
    ) -> None:
        self.publisher = publisher
        self._run = run
        self._config: RunConfig = run.config
        self._trainer = trainer
        self._state = state
        self._scores = scores
        self._held = contextlib.ExitStack()

    def version(self, number: int) -> PolicyVersion:
        return PolicyVersion(policy_run_name(self._run.id), self._config.harness, number)

    @property
    def current(self) -> str:
        """The name that sessions sample from now."""
        return self.publisher.current or BASE_POLICY

    @property
    def current_folder(self) -> Path:
        return self.publisher.folder(self.version(self._state.version))

    @property
    def warm(self) -> str:
        """The name of version 0: the weights after the warm start."""
        return self.version(self._state.warm_version).name

    def due(self, step: int) -> bool:
        """Whether a version is published after this step; always after the warm start (0) and the last one."""
        return step % self._config.publish.every == 0 or step == self._config.trainer.steps

    async def publish(self, step: int) -> CanaryReport:
        """Save the trainer's present weights as the version of `step`, unless they lie there, and make it current.

        Raises EngineError if the canary fails.
        """
        number = await asyncio.to_thread(self._number_for, step)
        version = self.version(number)
        folder = self.publisher.folder(version)
        await asyncio.to_thread(self._trainer.save_adapter, folder)
        right = await self._scores()
        write_atomic(_scores_file(folder), json.dumps(right.values).encode())
        report = await self.publisher.publish(version, right)
        self._run.events.append("published", step=step, version=version.name, number=number, **asdict(report))
        self._state.version = number
        if step == 0:
            self._state.warm_version = number
            self._hold(version)
        return report

    async def serve(self) -> None:
        """Bring version 0 and the current one onto this engine, which may know nothing of them.

        The current one is the last that was due: between two of them sessions go on with the older. Raises RunError
        where its folder is gone.
        """
        reached = self._state.grpo_steps
        if reached == 0:
            await self.publish(0)
            return
        await self._bring_back(self._state.warm_version)
        self._hold(self.version(self._state.warm_version))
        if self.due(reached):
            await self.publish(reached)
        elif self._state.version != self._state.warm_version:
            await self._bring_back(self._state.version)

    def close(self) -> None:
        self._held.close()

    def _hold(self, version: PolicyVersion) -> None:
        self._held.enter_context(self.publisher.lease(version.name))

    def _number_for(self, step: int) -> int:
        """The first number that is free, or whose folder holds exactly the present weights."""
        number = max(step, self._state.version + 1)
        while (folder := self.publisher.folder(self.version(number))).exists():
            if self._trainer.holds_adapter(folder):
                break
            number += 1
        return number

    async def _bring_back(self, number: int) -> None:
        await self.publisher.publish(self.version(number), self._published_scores(number))

    def _published_scores(self, number: int) -> CanaryScores:
        folder = self.publisher.folder(self.version(number))
        path = _scores_file(folder)
        try:
            values = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise RunError(
                f"cannot read {path}: {error}", "the run cannot go on without it; start a new one"
            ) from error
        if not folder.is_dir():
            raise RunError(f"{folder} is gone", "the run cannot go on without it; start a new one")
        return CanaryScores(tuple(tuple(scores) for scores in values))


def _scores_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.canary.json")
