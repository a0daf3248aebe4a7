"""The two stages that change weights: the supervised warm start, and GRPO with a published version after each step.

Invariants
- Order within a GRPO step: plan → sample → train → event → checkpoint → save the adapter → publish. A kill between any
  two of them is made good on resume: what was planned is played under the same ids, rollouts on the disk are not
  played again, a step without its checkpoint is trained again from the weights before it (and its event written
  again: `events.standing` counts it once), a checkpoint without its adapter gets it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness_adapters.config import PublishConfig, RunConfig
from harness_adapters.engines.publisher import Canary, CanaryScores, Publisher
from harness_adapters.errors import RunError
from harness_adapters.gateway.renderers import Renderer
from harness_adapters.records import BASE_POLICY, Rollout, TrainRow
from harness_adapters.rollouts.producer import Group, GroupBatch, Producer
from harness_adapters.rollouts.rows import train_rows
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.planning import StepPlan
from harness_adapters.runs.progress import Progress
from harness_adapters.runs.restoring import CHECKPOINTS, restore
from harness_adapters.runs.resuming import ResumingRunner
from harness_adapters.runs.sampling import TaskSampler
from harness_adapters.runs.stack import Stack
from harness_adapters.runs.stages import guard_policy, supervised_sessions
from harness_adapters.runs.versions import Versions
from harness_adapters.storage import atomic_folder, remove_folder, write_atomic
from harness_adapters.tasks.format import Task
from harness_adapters.training.schedule import policy_learning_rate

if TYPE_CHECKING:
    from harness_adapters.training.trainer import Trainer

T = TypeVar("T")

CANARY_SESSIONS = 4
KEPT_CHECKPOINTS = 2


class Learner:
    """Trainer, publisher and run directory of one run, brought to where an earlier process left them.

    A context manager. Raises RunError where the run's checkpoints are of something else (`restoring.restore`).
    """

    def __init__(
        self,
        run: RunDirectory,
        stack: Stack,
        sessions: Sequence[Rollout],
        instructions: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        from harness_adapters.training.trainer import Trainer

        self.run = run
        self.stack = stack
        self.config: RunConfig = run.config
        self.sessions = sessions
        # One thread for all turns: the C library keeps freed memory for the thread that freed it.
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="trainer")
        self.canary = _canary(run.folder("adapters") / "canary.json", stack.renderer, sessions, instructions)
        self._canary_rows = [
            TrainRow("canary", ids, tuple(place >= start for place in range(len(ids))), (0.0,) * len(ids))
            for ids, start in zip(self.canary.sequences, self.canary.starts, strict=True)
        ]
        self.trainer: Trainer = Trainer(
            stack.engine.model,
            lora=self.config.lora,
            config=self.config.trainer,
            temperature=self.config.sampling.temperature,
            seed=self.config.seed,
        )
        publish: PublishConfig = self.config.publish
        publisher = Publisher(
            stack.client,
            run.folder("adapters"),
            self.canary,
            tokens=publish.canary_tokens,
            threshold=publish.canary_threshold,
        )
        with stack.engine.exclusive():
            publisher.remember(BASE_POLICY, self._scores())
        self.state = restore(run, self.trainer, say)
        self.versions = Versions(run, publisher, self.trainer, self.state, lambda: self._exclusively(self._scores))

    def __enter__(self) -> Learner:
        return self

    def __exit__(self, *_: object) -> None:
        self.versions.close()
        self._turns.shutdown(wait=False)

    async def warm_start(self, progress: Progress) -> None:
        """The supervised steps that are left, on the recorded sessions."""
        from harness_adapters.training.warm_start import warm_start

        config = self.config.warm_start
        rows = supervised_sessions(self.sessions)
        done, seed = self.state.warm_steps, self.config.seed
        progress.begin("warm start", config.steps, done, done=done)
        families = [rollout.tags.get("family", "") for rollout in self.sessions]
        steps = warm_start(self.trainer, rows, config, families=families, seed=seed, start_step=done)
        while (metrics := await self._exclusively(lambda: next(steps, None))) is not None:
            self.state.warm_steps += 1
            self.run.events.append("warm_step", step=self.state.warm_steps, metrics=metrics.to_json())
            progress.advance(f"loss {metrics.loss:.3f}, {metrics.unique_tokens} tokens in {metrics.seconds:.0f} s")
            if self.state.warm_steps == config.steps:
                self.trainer.reset_optimizer()
            if self.state.warm_steps % 5 == 0 or self.state.warm_steps == config.steps:
                await self._checkpoint()
        await self._exclusively(give_memory_back)

    async def grpo(self, tasks: Sequence[Task], progress: Progress) -> None:
        """GRPO steps until `trainer.steps`, publishing as configured."""
        config = self.config
        total = config.trainer.steps * config.producer.groups_per_step * config.producer.group_size
        done = self.state.grpo_steps * config.producer.groups_per_step * config.producer.group_size
        progress.begin("reinforcement learning", max(total, 1), done, done=done)
        sampler = TaskSampler(tasks, config.seed, self.state.cursor)
        while self.state.grpo_steps < config.trainer.steps:
            await self._grpo_step(sampler, progress)

    async def _grpo_step(self, sampler: TaskSampler, progress: Progress) -> None:
        step = self.state.grpo_steps + 1
        policy = self.versions.current
        batch = await self._sample(step, policy, sampler, progress)
        rows = training_rows(batch.groups, self.config.trainer.keep_per_group)
        self.run.events.append("sampled", step=step, policy=policy, **asdict(batch.stats))
        metrics = None
        if rows:
            progress.advance(f"step {step}/{self.config.trainer.steps}: training on {len(rows)} sessions", units=0)
            rate = policy_learning_rate(self.config.trainer, step)
            metrics = await self._exclusively(lambda: self.trainer.policy_step(rows, rate))
            await self._exclusively(give_memory_back)
        self.state.grpo_steps, self.state.cursor = step, sampler.cursor
        self.run.events.append(
            "policy_step",
            step=step,
            policy=policy,
            trained=sorted({row.rollout for row in rows}),
            solved=sum(rollout.solved for rollout in batch.rollouts) / max(len(batch.rollouts), 1),
            sampled=len(batch.rollouts),
            **_reward_summary(batch.groups),
            metrics=metrics.to_json() if metrics else None,
        )
        await self._checkpoint()
        if self.versions.due(step):
            await self.versions.publish(step)

    async def _sample(self, step: int, policy: str, sampler: TaskSampler, progress: Progress) -> GroupBatch:
        """The groups of one step, as planned by an earlier process as far as it came."""
        seen: list[bool] = []

        def note(rollout: Rollout) -> None:
            seen.append(rollout.solved)
            progress.advance(f"step {step}/{self.config.trainer.steps}: {sum(seen)} of {len(seen)} solved")

        plan = StepPlan(self.run, step, policy, sampler)
        producer = Producer(ResumingRunner(self.run, "rollouts", self.stack.runner), self.config, on_rollout=note)
        with self.versions.publisher.lease(policy):
            return await producer.groups(
                plan,
                wanted=self.config.producer.groups_per_step,
                policy=policy,
                step=step,
                guard=guard_policy,
                planned=plan.planned,
            )

    def _scores(self) -> CanaryScores:
        values = self.trainer.logprobs(self._canary_rows, temperature=1.0)
        return CanaryScores(tuple(tuple(row) for row in values))

    async def _checkpoint(self) -> None:
        folder = self.run.folder(CHECKPOINTS)
        name = f"step-{self.state.warm_steps + self.state.grpo_steps:05d}"
        await asyncio.to_thread(self.trainer.save_checkpoint, folder / name, asdict(self.state))
        for old in sorted(path for path in folder.glob("step-*") if path.is_dir())[:-KEPT_CHECKPOINTS]:
            remove_folder(old)

    async def _exclusively(self, work: Callable[[], T]) -> T:
        def turn() -> T:
            with self.stack.engine.exclusive():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._turns, turn)


def training_rows(groups: Sequence[Group], keep: int) -> list[TrainRow]:
    """Rows of the groups' rollouts with their group-normalised advantages.

    `keep` > 0 keeps that many best and as many worst rollouts of each group: on a slow machine most of the signal for
    part of the time. The advantages stay those of the whole group.
    """
    from harness_adapters.training.loss import group_advantages

    rows: list[TrainRow] = []
    for group in groups:
        advantages = group_advantages([r.reward.total for r in group.rollouts if r.reward is not None])
        ranked = sorted(zip(advantages, group.rollouts, strict=True), key=lambda pair: -pair[0])
        chosen = ranked if keep <= 0 or 2 * keep >= len(ranked) else ranked[:keep] + ranked[-keep:]
        for advantage, rollout in chosen:
            rows += train_rows(rollout, float(advantage))
    return rows


def _reward_summary(groups: Sequence[Group]) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    if not rollouts:
        return {}
    rewards = [rollout.reward.total for rollout in rollouts if rollout.reward is not None]
    return {
        "reward": sum(rewards) / max(len(rewards), 1),
        "tool_calls": sum(rollout.tool_calls for rollout in rollouts) / len(rollouts),
        "blocked": float(sum(rollout.blocked for rollout in rollouts)),
    }


def _canary(path: Path, renderer: Renderer, sessions: Sequence[Rollout], instructions: Mapping[str, str]) -> Canary:
    """Short sequences: an instruction as a bare chat, and the completion ids that a recorded session gave to it.

    Without recorded sessions the instructions themselves are compared. Chosen once and kept at `path`, so that a
    resumed run compares what the run compared. Raises RunError for a damaged file.
    """
    if path.exists():
        try:
            kept = json.loads(path.read_bytes())
            return Canary(tuple(map(tuple, kept["sequences"])), tuple(kept["starts"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is damaged: {error!r}", "the run cannot go on without it; start a new one"
            ) from error
    pairs = [(instructions[session.task], session.calls[0].completion_ids) for session in sessions[:CANARY_SESSIONS]]
    pairs = pairs or [(text, ()) for _, text in sorted(instructions.items())[:CANARY_SESSIONS]]
    sequences: list[tuple[int, ...]] = []
    starts: list[int] = []
    for instruction, completion in pairs:
        prompt = renderer.render([{"role": "user", "content": instruction}])
        sequences.append((*prompt, *completion))
        starts.append(len(prompt) if completion else 1)
    write_atomic(path, json.dumps({"sequences": sequences, "starts": starts}).encode())
    return Canary(tuple(sequences), tuple(starts))


def give_memory_back() -> None:
    """Return freed memory to the system, where the C library can (glibc).

    It keeps what a thread freed for that thread, 5 GB after a trainer's turn, while the sandboxes need it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def adapter_copy(source: Path, target: Path) -> None:
    """Copy a published adapter to where a person looks for it, whole or not at all."""
    with atomic_folder(target) as work:
        for file in source.iterdir():
            shutil.copy2(file, work / file.name)
