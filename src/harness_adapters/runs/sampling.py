"""Which task comes next, so that a resumed run goes on where it was.

A round hands out every task once. Its order takes turns among the families, so that the few groups of one step are not
all of the same hardness by chance: success among them, and with it the signal, stays near the pool's. Within a family
the order is a seeded shuffle, and each turn goes through the families in another order.

Invariant: the order depends on the pool, the seed and the round alone; `cursor` counts the tasks handed out since the
start of the run and is all there is to save.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from harness_adapters.tasks.format import Task
from harness_adapters.training.turns import taking_turns


class TaskSampler:
    """Endless iterator over a pool of tasks; every task once a round."""

    def __init__(self, pool: Sequence[Task], seed: int, cursor: int = 0) -> None:
        if not pool:
            raise ValueError("the task pool is empty")
        self._pool = sorted(pool, key=lambda task: task.id)
        self._seed = seed
        self.cursor = cursor
        self._round: tuple[int, list[Task]] = (-1, [])

    def task(self, task_id: str) -> Task | None:
        """The task of this id; None where the pool has none."""
        return next((task for task in self._pool if task.id == task_id), None)

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        number, place = divmod(self.cursor, len(self._pool))
        if self._round[0] != number:
            self._round = (number, self._order(number))
        self.cursor += 1
        return self._round[1][place]

    def _order(self, number: int) -> list[Task]:
        families = [task.family for task in self._pool]
        return [self._pool[index] for index in taking_turns(families, random.Random(f"{self._seed}:{number}"))]
