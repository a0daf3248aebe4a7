"""Which task comes next, so that a resumed run goes on where it was.

The order is a seeded shuffle of the pool, another one each time round; `cursor` counts the tasks handed out since the
start of the run and is all there is to save.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from harness_adapters.tasks.format import Task


class TaskSampler:
    """Endless iterator over a pool of tasks; every task once a round."""

    def __init__(self, pool: Sequence[Task], seed: int, cursor: int = 0) -> None:
        if not pool:
            raise ValueError("the task pool is empty")
        self._pool = sorted(pool, key=lambda task: task.id)
        self._seed = seed
        self.cursor = cursor
        self._round: tuple[int, list[Task]] = (-1, [])

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        number, place = divmod(self.cursor, len(self._pool))
        if self._round[0] != number:
            order = list(self._pool)
            random.Random(f"{self._seed}:{number}").shuffle(order)
            self._round = (number, order)
        self.cursor += 1
        return self._round[1][place]
