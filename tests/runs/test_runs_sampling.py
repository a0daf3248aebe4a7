"""Which task comes next: every task once a round, families in turns, and the same again after a resume."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.runs.sampling import TaskSampler
from harness_adapters.tasks.format import Task


def pool(sizes: list[int]) -> list[Task]:
    """`sizes[f]` tasks of family f."""
    return [
        Task(
            id=f"f{family}-{number}",
            family=f"f{family}",
            instruction="",
            path=Path(),
            workdir="/workspace",
            agent_timeout=None,
            verifier_timeout=1.0,
            artifacts=(),
            guard={},
            metadata={},
        )
        for family, size in enumerate(sizes)
        for number in range(size)
    ]


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(SIZES, st.integers(0, 100))
def test_every_task_comes_once_a_round(sizes: list[int], seed: int) -> None:
    tasks = pool(sizes)
    sampler = TaskSampler(tasks, seed)
    for _ in range(2):
        assert Counter(task.id for task in itertools.islice(sampler, len(tasks))) == Counter(task.id for task in tasks)


@given(SIZES, st.integers(0, 100))
def test_families_take_turns_while_they_last(sizes: list[int], seed: int) -> None:
    tasks = pool(sizes)
    turns = list(itertools.islice(TaskSampler(tasks, seed), len(tasks)))
    for turn in range(min(sizes)):
        families = [task.family for task in turns[turn * len(sizes) : (turn + 1) * len(sizes)]]
        assert sorted(families) == sorted({task.family for task in tasks})


@given(SIZES, st.integers(0, 100), st.integers(0, 40))
def test_a_sampler_goes_on_from_its_cursor(sizes: list[int], seed: int, handed_out: int) -> None:
    whole = [task.id for task in itertools.islice(TaskSampler(pool(sizes), seed), handed_out + 20)]
    resumed = TaskSampler(list(reversed(pool(sizes))), seed, handed_out)
    assert [task.id for task in itertools.islice(resumed, 20)] == whole[handed_out:]
    assert resumed.cursor == handed_out + 20


def test_seeds_and_rounds_differ() -> None:
    tasks = pool([4, 4, 4])
    orders = {
        tuple(task.id for task in itertools.islice(TaskSampler(tasks, seed, start), 12))
        for seed in (1, 2)
        for start in (0, 12)
    }
    assert len(orders) == 4


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        TaskSampler([], 1)
