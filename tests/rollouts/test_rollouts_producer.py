"""The producer: bounds, retries, groups with spread, refills, and that cancelling leaves nothing running."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.config import RunConfig, load_config
from harness_adapters.errors import RunError
from harness_adapters.records import Outcome, RewardParts, Rollout
from harness_adapters.rollouts.producer import Group, Producer, derive_seed, has_spread
from harness_adapters.rollouts.session import SessionPlan
from harness_adapters.tasks.format import Task

Judge = Callable[[SessionPlan], float | Outcome]


class TableRunner:
    """Ends each session as a table says: a number is a reward, an outcome is that outcome without one."""

    def __init__(self, judge: Judge, seconds: float = 0.0) -> None:
        self.plans: list[SessionPlan] = []
        self.alive = self.most = 0
        self._judge = judge
        self._seconds = seconds

    async def run(self, plan: SessionPlan) -> Rollout:
        self.plans.append(plan)
        self.alive += 1
        self.most = max(self.most, self.alive)
        try:
            await asyncio.sleep(self._seconds)
            return _rollout(plan, self._judge(plan))
        finally:
            await asyncio.sleep(0)
            self.alive -= 1


def _rollout(plan: SessionPlan, end: float | Outcome) -> Rollout:
    reward = None if isinstance(end, Outcome) else RewardParts(end, 0.0, False, end)
    outcome = end if isinstance(end, Outcome) else Outcome.GRADED
    return Rollout(plan.id, plan.task.id, "f", plan.group, "h", plan.policy, outcome, "why", reward)


def _tasks() -> Iterator[Task]:
    return (Task(f"t{i}", "f", "do", Path("/nowhere"), "/workspace", None, 1.0, (), {}, {}) for i in itertools.count())


def _config(*overrides: str) -> RunConfig:
    return load_config(
        overrides=["producer.group_size=4", "producer.in_flight=64", "session.infra_retries=2", *overrides]
    )


def _plans(count: int) -> list[SessionPlan]:
    return [SessionPlan(f"s{i}", task, "g", "r-h-v1", i) for i, task in zip(range(count), _tasks(), strict=False)]


def _groups(producer: Producer, wanted: int = 3) -> tuple[Sequence[Group], tuple[Rollout, ...]]:
    batch = asyncio.run(producer.groups(_tasks(), wanted, policy="r-h-v1", step=2, guard=lambda task: None))
    return batch.groups, batch.dropped


def _member(plan: SessionPlan) -> int:
    return int(plan.id.split("-m")[1].split(".")[0])


def _group(plan: SessionPlan) -> int:
    return int(plan.group.split("-g")[1])


def test_results_come_in_the_order_of_the_plans_and_never_more_than_in_flight_run() -> None:
    runner = TableRunner(lambda plan: 1.0, seconds=0.2)
    producer = Producer(runner, _config("producer.in_flight=3"))
    rollouts = asyncio.run(producer.run_all(_plans(10)))
    assert [rollout.id for rollout in rollouts] == [f"s{i}" for i in range(10)]
    assert runner.most == 3


def test_infra_is_retried_under_new_ids_and_every_attempt_is_reported() -> None:
    seen: list[str] = []
    runner = TableRunner(lambda plan: 1.0 if plan.id.endswith(".r2") else Outcome.INFRA)
    producer = Producer(runner, _config(), on_rollout=lambda rollout: seen.append(rollout.id))
    (rollout,) = asyncio.run(producer.run_all(_plans(1)))
    assert seen == ["s0", "s0.r1", "s0.r2"]
    assert rollout.outcome is Outcome.GRADED
    assert (producer.stats.infra, producer.stats.retries, producer.stats.failures) == (2, 2, {"why": 2})
    assert {plan.seed for plan in runner.plans} == {0}


@pytest.mark.parametrize("outcome", [Outcome.AGENT_FAULT, Outcome.CANCELLED])
def test_nothing_but_infra_is_retried(outcome: Outcome) -> None:
    runner = TableRunner(lambda plan: outcome)
    asyncio.run(Producer(runner, _config()).run_all(_plans(1)))
    assert len(runner.plans) == 1


def test_lasting_infra_ends_after_the_retries_without_a_reward() -> None:
    runner = TableRunner(lambda plan: Outcome.INFRA)
    (rollout,) = asyncio.run(Producer(runner, _config()).run_all(_plans(1)))
    assert (rollout.outcome, rollout.reward, len(runner.plans)) == (Outcome.INFRA, None, 3)


def test_groups_without_spread_are_dropped_and_replaced() -> None:
    runner = TableRunner(lambda plan: 1.0 if _group(plan) < 2 else float(_member(plan) == 0))
    producer = Producer(runner, _config())
    groups, dropped = _groups(producer)
    assert sorted(group.id for group in groups) == ["s2-g2", "s2-g3", "s2-g4"]
    assert len(dropped) == 8
    assert (producer.stats.groups, producer.stats.dropped_no_spread, producer.stats.refills) == (3, 2, 2)


def test_groups_come_in_the_order_of_their_numbers_whichever_ended_first() -> None:
    class Slower(TableRunner):
        async def run(self, plan: SessionPlan) -> Rollout:
            await asyncio.sleep(0.05 * (5 - _group(plan)))
            return await super().run(plan)

    runner = Slower(lambda plan: float(_member(plan) == 0) if _group(plan) != 1 else 0.0)
    groups, dropped = _groups(Producer(runner, _config()))
    assert [group.id for group in groups] == ["s2-g0", "s2-g2", "s2-g3"]
    assert [rollout.id for rollout in dropped] == [f"s2-g1-m{member}" for member in range(4)]


@pytest.mark.parametrize(
    ("planned", "without_spread", "played"), [(0, 0, 3), (2, 0, 3), (5, 2, 5), (5, 0, 5), (4, 2, 5)]
)
def test_what_a_stopped_process_had_drawn_is_played_and_only_what_is_still_missing_is_drawn_besides(
    planned: int, without_spread: int, played: int
) -> None:
    runner = TableRunner(lambda plan: float(_member(plan) == 0 and _group(plan) >= without_spread))
    producer = Producer(runner, _config())
    batch = asyncio.run(producer.groups(_tasks(), 3, policy="r-h-v1", step=2, guard=lambda task: None, planned=planned))
    assert {_group(plan) for plan in runner.plans} == set(range(played))
    assert [group.id for group in batch.groups] == [f"s2-g{number}" for number in range(without_spread, played)]
    assert producer.stats.refills == played - 3


def test_refills_are_bounded_and_may_leave_too_few_groups() -> None:
    runner = TableRunner(lambda plan: 0.0)
    producer = Producer(runner, _config("producer.max_refills=2"))
    groups, dropped = _groups(producer)
    assert groups == ()
    assert len(dropped) == len(runner.plans) == (3 + 2) * 4
    assert producer.stats.refills == 2


def test_tasks_that_run_out_end_the_call() -> None:
    producer = Producer(TableRunner(lambda plan: 0.0), _config())
    tasks = itertools.islice(_tasks(), 2)
    batch = asyncio.run(producer.groups(tasks, 3, policy="p-h-v0", step=1, guard=lambda task: None))
    assert (batch.groups, len(batch.dropped)) == ((), 8)


def test_infra_members_are_left_out_of_their_group() -> None:
    runner = TableRunner(lambda plan: Outcome.INFRA if _member(plan) == 0 else float(_member(plan) == 1))
    groups, dropped = _groups(Producer(runner, _config()), wanted=1)
    assert [len(group.rollouts) for group in groups] == [3]
    assert [rollout.outcome for rollout in dropped] == [Outcome.INFRA]


def test_group_with_under_half_of_its_members_is_dropped_as_too_small() -> None:
    runner = TableRunner(lambda plan: float(_member(plan) == 0) if _member(plan) < 1 else Outcome.INFRA)
    producer = Producer(runner, _config("producer.max_refills=0"))
    groups, _ = _groups(producer, wanted=1)
    assert (groups, producer.stats.dropped_too_small) == ((), 1)


def test_members_differ_in_seed_and_a_second_run_has_the_same_seeds() -> None:
    runners = [TableRunner(lambda plan: float(_member(plan) == 0)) for _ in range(2)]
    for runner in runners:
        _groups(Producer(runner, _config()))
    first, second = ({plan.id: plan.seed for plan in runner.plans} for runner in runners)
    assert first == second
    assert len(set(first.values())) == len(first) == 12


def test_cancelling_the_caller_ends_every_session_first() -> None:
    runner = TableRunner(lambda plan: 1.0, seconds=60)

    async def run() -> None:
        producer = Producer(runner, _config())
        task = asyncio.create_task(producer.groups(_tasks(), 2, policy="r-h-v1", step=0, guard=lambda task: None))
        while runner.alive < 3:  # noqa: ASYNC110 - the runner keeps a count, not an event
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert runner.alive == 0

    asyncio.run(run())


def test_failure_of_the_callback_ends_all_sessions_and_is_raised_as_it_is() -> None:
    def full(rollout: Rollout) -> None:
        raise RunError("disk full")

    runner = TableRunner(lambda plan: 1.0)

    async def run() -> None:
        with pytest.raises(RunError, match="disk full"):
            await Producer(runner, _config(), on_rollout=full).run_all(_plans(4))
        assert runner.alive == 0

    asyncio.run(run())


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=8))
def test_spread_is_seen_exactly_when_two_rewards_differ(rewards: list[float]) -> None:
    (plan,) = _plans(1)
    assert has_spread([_rollout(plan, reward) for reward in rewards]) == (len(set(rewards)) > 1)


@given(st.integers(0, 2**31), st.text(max_size=8), st.integers(0, 64))
def test_seeds_fit_31_bits_and_depend_on_the_member(run: int, group: str, member: int) -> None:
    seed = derive_seed(run, group, member)
    assert 0 <= seed < 2**31
    assert seed != derive_seed(run, group, member + 1)
