"""What every family of first-steps tasks makes: a draft, before it becomes a directory."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness_adapters.tasks.sources.tables import Table


@dataclass(frozen=True, slots=True)
class Draft:
    """One task. `look` and `act` are single shell commands; `act` alone solves it.

    `environment` and `expected` map file names to bytes; `conditions` are what the hidden test checks
    (`checks.script`); `parameters` are the words and the table it was made from, for the split's proof of disjointness.
    """

    instruction: str
    look: str
    act: str
    conditions: Sequence[str]
    environment: Mapping[str, bytes] = field(default_factory=dict)
    expected: Mapping[str, bytes] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    """What the tasks of one pool may be made of."""

    words: tuple[str, ...]
    tables: tuple[Table, ...]


Family = Callable[[random.Random, Pool], Draft]
"""Draws one task from a pool; may draw the same one twice."""


def text_file(rng: random.Random, words: Sequence[str], lines: int) -> bytes:
    """`lines` lines of two words each, every line ended by one line feed."""
    return "".join(" ".join(rng.sample(list(words), 2)) + "\n" for _ in range(lines)).encode("ascii")
