"""One pass over labelled things in which the labels take turns.

Few sessions make up a step on a small machine. Drawn at random, most of them would often be of one or two families, and
what tells two families apart is learned only where both are in reach of one another.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence


def taking_turns(labels: Sequence[str], rng: random.Random) -> list[int]:
    """Every index of `labels` once. While a label has indices left it comes once a turn; each turn goes through the
    labels in another order, and the indices of one label come in shuffled order."""
    left: dict[str, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        left[label].append(index)
    for indices in left.values():
        rng.shuffle(indices)
    order: list[int] = []
    while left:
        turn = sorted(left)
        rng.shuffle(turn)
        order += [left[label].pop() for label in turn]
        left = {label: indices for label, indices in left.items() if indices}
    return order
