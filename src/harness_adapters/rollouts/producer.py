"""Many sessions at once: one bound on the sandboxes alive, paced starts, retries, groups with reward spread.

Invariants
- At most `producer.in_flight` sessions hold sandboxes at any time, their verifiers included; a retry counts as one.
- Only infrastructure failures are retried; every attempt is reported, and none of them becomes a reward of 0.
- A group is handed on with its scorable members only; one that is too small or shows no spread of reward is dropped,
  counted and replaced by the next task, at most `producer.max_refills` times a call.
- Group n plays the n-th task drawn, and the groups come in the order of their numbers, whichever ended first.
- When the caller is cancelled, every session started here has cleaned up before the cancellation goes on.

Asymmetry: seeds follow from (run seed, group, member), so the same plan samples the same way again; the order in which
sessions finish depends on the machine, and so may whether one fails as infra and a refill is drawn for its group.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from harness_adapters.config import RunConfig
from harness_adapters.records import Outcome, Rollout
from harness_adapters.rollouts.session import SessionPlan
from harness_adapters.tasks.format import Task

if TYPE_CHECKING:
    from harness_adapters.guard import GuardPolicy

log = logging.getLogger(__name__)

START_GAP_SECONDS = 0.05
"""Least time between two session starts, so that a full pool does not boot all its sandboxes in one moment."""

MIN_SCORABLE = 2
"""A group needs this many scorable rollouts, and at least half its size, to compare them."""

TOO_SMALL = "too small"
NO_SPREAD = "no spread"
SPREAD = 1e-9
"""Rewards closer together than this are equal: the group carries no signal."""


class Runner(Protocol):
    """What the producer needs of a `SessionRunner`."""

    async def run(self, plan: SessionPlan) -> Rollout: ...


@dataclass(slots=True)
class ProducerStats:
    """Counts since the producer was made; `failures` maps the detail of an infra failure to how often it was seen."""

    sessions: int = 0
    graded: int = 0
    solved: int = 0
    blocked: int = 0
    agent_faults: int = 0
    infra: int = 0
    cancelled: int = 0
    retries: int = 0
    groups: int = 0
    dropped_no_spread: int = 0
    dropped_too_small: int = 0
    refills: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    def count(self, rollout: Rollout) -> None:
        self.sessions += 1
        self.graded += rollout.outcome is Outcome.GRADED
        self.solved += rollout.solved
        self.blocked += rollout.reward is not None and rollout.reward.blocked
        self.agent_faults += rollout.outcome is Outcome.AGENT_FAULT
        self.cancelled += rollout.outcome is Outcome.CANCELLED
        if rollout.outcome is Outcome.INFRA:
            self.infra += 1
            self.failures[rollout.detail] = self.failures.get(rollout.detail, 0) + 1


@dataclass(frozen=True, slots=True)
class Group:
    """The scorable rollouts of one task under one policy; their rewards are not all equal."""

    id: str
    task: str
    policy: str
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """What one call of `Producer.groups` brought.

    `dropped` holds the unscorable rollouts and those of groups not handed on; `stats` is the producer's count so far.
    """

    groups: tuple[Group, ...]
    dropped: tuple[Rollout, ...]
    stats: ProducerStats

    @property
    def rollouts(self) -> tuple[Rollout, ...]:
        """Every finished rollout, kept or dropped: what reward curves are drawn from."""
        return (*(rollout for group in self.groups for rollout in group.rollouts), *self.dropped)


class Producer:
    """Runs session plans within the bounds of `config.producer`; `on_rollout` hears of every finished attempt."""

    def __init__(
        self, runner: Runner, config: RunConfig, *, on_rollout: Callable[[Rollout], None] | None = None
    ) -> None:
        self.stats = ProducerStats()
        self._runner = runner
        self._config = config
        self._on_rollout = on_rollout
        self._slots = asyncio.Semaphore(config.producer.in_flight)
        self._pace = asyncio.Lock()

    async def run_all(self, plans: Iterable[SessionPlan]) -> list[Rollout]:
        """The last attempt of each plan, in the order of the plans.

        What `on_rollout` raises ends all of them, cleaned up, and is raised here.
        """
        started = [asyncio.create_task(self.run_one(plan), name=f"session {plan.id}") for plan in plans]
        try:
            return list(await asyncio.gather(*started))
        finally:
            await _end(started)

    async def run_one(self, plan: SessionPlan) -> Rollout:
        """Play one plan, again while it fails as infra and retries are left; the id of a retry ends in `.r<N>`."""
        async with self._slots:
            rollout = await self._attempt(plan)
            for attempt in range(1, self._config.session.infra_retries + 1):
                if rollout.outcome is not Outcome.INFRA:
                    break
                log.warning("session %s is infra and played again: %s", rollout.id, rollout.detail)
                self.stats.retries += 1
                rollout = await self._attempt(replace(plan, id=f"{plan.id}.r{attempt}"))
        return rollout

    async def groups(
        self,
        tasks: Iterator[Task],
        wanted: int,
        *,
        policy: str,
        step: int,
        guard: Callable[[Task], GuardPolicy | None],
        planned: int = 0,
        allow_base: bool = False,
        tags: Mapping[str, str] | None = None,
    ) -> GroupBatch:
        """`wanted` groups with reward spread, one a task drawn from `tasks`, or fewer when refills or tasks run out.

        All groups play at once within `in_flight`; a dropped one is replaced while refills are left. Group ids are
        `s<step>-g<number>`, session ids add `-m<member>`; `guard` gives a task's policy. `planned` groups were drawn
        before (by a process that was stopped): all of them are played, also where one of them turns out not needed.
        """
        numbers: dict[asyncio.Task[list[Rollout]], int] = {}
        ended: dict[int, list[Rollout]] = {}
        dropped = 0

        def start() -> bool:
            task = next(tasks, None)
            if task is None:
                return False
            number = len(numbers)
            name = f"s{step}-g{number}"
            plans = self._group_plans(task, name, policy, guard(task), allow_base, {"step": str(step), **(tags or {})})
            numbers[asyncio.create_task(self.run_all(plans), name=f"group {name}")] = number
            self.stats.refills += number >= wanted
            return True

        try:
            while len(numbers) < max(wanted, planned) and start():
                pass
            while pending := [group for group, number in numbers.items() if number not in ended]:
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for group in done:
                    ended[numbers[group]] = group.result()
                    dropped += not self._judge(group.result())
                while len(numbers) < wanted + min(dropped, self._config.producer.max_refills) and start():
                    pass
        finally:
            await _end(numbers)
        return self._batch([ended[number] for number in sorted(ended)])

    async def _attempt(self, plan: SessionPlan) -> Rollout:
        async with self._pace:
            await asyncio.sleep(START_GAP_SECONDS)
        rollout = await self._runner.run(plan)
        self.stats.count(rollout)
        if self._on_rollout is not None:
            self._on_rollout(rollout)
        return rollout

    def _group_plans(
        self,
        task: Task,
        group: str,
        policy: str,
        guard: GuardPolicy | None,
        allow_base: bool,
        tags: Mapping[str, str],
    ) -> list[SessionPlan]:
        return [
            SessionPlan(
                id=f"{group}-m{member}",
                task=task,
                group=group,
                policy=policy,
                seed=derive_seed(self._config.seed, group, member),
                guard=guard,
                allow_base=allow_base,
                tags=tags,
            )
            for member in range(self._config.producer.group_size)
        ]

    def _judge(self, rollouts: Sequence[Rollout]) -> bool:
        """Count a group that ended; whether it is handed on."""
        why_not = unfit(rollouts)
        self.stats.groups += not why_not
        self.stats.dropped_too_small += why_not == TOO_SMALL
        self.stats.dropped_no_spread += why_not == NO_SPREAD
        return not why_not

    def _batch(self, ended: Sequence[Sequence[Rollout]]) -> GroupBatch:
        groups: list[Group] = []
        dropped: list[Rollout] = []
        for rollouts in ended:
            if unfit(rollouts):
                dropped += rollouts
                continue
            scorable = [rollout for rollout in rollouts if rollout.reward is not None]
            groups.append(Group(scorable[0].group, scorable[0].task, scorable[0].policy, tuple(scorable)))
            dropped += [rollout for rollout in rollouts if rollout.reward is None]
        return GroupBatch(tuple(groups), tuple(dropped), replace(self.stats, failures=dict(self.stats.failures)))


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel what still runs and wait until all of it has cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def unfit(rollouts: Sequence[Rollout]) -> str:
    """Why nothing can be learned from a group: `TOO_SMALL` or `NO_SPREAD`; empty where something can."""
    scorable = [rollout for rollout in rollouts if rollout.reward is not None]
    if len(scorable) < max(MIN_SCORABLE, (len(rollouts) + 1) // 2):
        return TOO_SMALL
    return "" if has_spread(scorable) else NO_SPREAD


def has_spread(rollouts: Sequence[Rollout]) -> bool:
    """Whether the rewards of scorable rollouts differ at all."""
    totals = [rollout.reward.total for rollout in rollouts if rollout.reward is not None]
    return bool(totals) and max(totals) - min(totals) > SPREAD


def derive_seed(run_seed: int, group: str, member: int) -> int:
    """A 31-bit seed that depends on all three and on nothing else."""
    digest = hashlib.sha256(f"{run_seed}/{group}/{member}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
