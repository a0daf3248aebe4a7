"""First steps: tasks that one or two shell commands solve, for models small enough to train on two CPU cores.

Eight trained families and five that are never trained. Four splits come out: `train`; `dev` and `heldout`, the same
families made of other words and other tables; `unseen`, the untrained families. A recipe is tuned on `dev` and judged
on the last two, once. Everything is drawn from one seed.

Invariants
- The same seed and counts give the same bytes; a larger count keeps the smaller one's tasks and adds to them.
- No word, file name or table of `train`, `dev` or `heldout` occurs in another of them; `unseen` is made of those of
  `heldout`. No instruction occurs twice in a split, nor in two of them.
- Every family has the same share of its split, one task more or less.
- The agent sees the instruction and `environment/`; the answer lies in `tests/` and `solution/` only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness_adapters.errors import TaskError
from harness_adapters.tasks.format import WORKDIR, Task, write_task
from harness_adapters.tasks.sources.first_steps import checks, file_families, table_families, unseen_families
from harness_adapters.tasks.sources.first_steps.draft import Draft, Family, Pool
from harness_adapters.tasks.sources.first_steps.oracle import (
    FINAL,
    STYLES,
    OracleTurn,
    oracle_turns,
    turns_json,
    turns_of,
)
from harness_adapters.tasks.sources.first_steps.words import POOLS
from harness_adapters.tasks.sources.tables import tables_of

__all__ = ["FINAL", "STYLES", "TRAINED", "UNSEEN", "OracleTurn", "generate", "oracle_turns"]

TRAINED: Mapping[str, Family] = {
    "create": file_families.create,
    "append": file_families.append,
    "rename": file_families.rename,
    "lines": file_families.lines,
    "tree": file_families.tree,
    "rows": table_families.rows,
    "largest": table_families.largest,
    "mean": table_families.mean,
}

UNSEEN: Mapping[str, Family] = {
    "copy": unseen_families.copy,
    "delete": unseen_families.delete,
    "upper": unseen_families.upper,
    "smallest": table_families.smallest,
    "merge": unseen_families.merge,
}

_SPLITS = {
    "train": ("train", TRAINED),
    "dev": ("dev", TRAINED),
    "heldout": ("heldout", TRAINED),
    "unseen": ("heldout", UNSEEN),
}
"""Split name: the pool of words and tables it draws from, and its families."""

_MAX_REDRAWS = 1000


def generate(
    folder: Path, *, seed: int, train: int = 0, dev: int = 0, heldout: int = 0, unseen: int = 0
) -> dict[str, list[Task]]:
    """Write `folder/<split>/<id>/` for the four splits and return the tasks, families taking turns.

    Directories of an earlier, equal call are kept. Raises TaskError when other content is in the way or a count asks
    for more distinct tasks than a family has; InfraError when the disk refuses.
    """
    counts = {"train": train, "dev": dev, "heldout": heldout, "unseen": unseen}
    return {split: _generate_split(folder / split, split, seed, count) for split, count in counts.items()}


def _generate_split(folder: Path, split: str, seed: int, count: int) -> list[Task]:
    pool_name, families = _SPLITS[split]
    pool = Pool(POOLS[pool_name], tables_of(pool_name))
    randoms = {name: random.Random(f"first-steps {seed} {split} {name}") for name in families}
    seen: set[str] = set()
    tasks = []
    names = list(families)
    for index in range(count):
        name = names[index % len(names)]
        draft = _draw_new(families[name], randoms[name], pool, seen, name)
        task_id = f"{name}-{split}-{index // len(names):03d}"
        tasks.append(_write(folder / task_id, draft, family=name, split=split, seed=seed))
    return tasks


def _draw_new(family: Family, rng: random.Random, pool: Pool, seen: set[str], name: str) -> Draft:
    for _ in range(_MAX_REDRAWS):
        draft = family(rng, pool)
        if draft.instruction not in seen:
            seen.add(draft.instruction)
            return draft
    raise TaskError(f"family {name!r} has no further distinct task", "ask for fewer tasks")


def _write(folder: Path, draft: Draft, *, family: str, split: str, seed: int) -> Task:
    config: dict[str, Any] = {
        "schema_version": "1.4",
        "artifacts": [WORKDIR],
        "task": {"name": f"first-steps/{folder.name}", "version": "1", "keywords": ["first-steps", family, split]},
        "agent": {"timeout_sec": 240.0},
        "verifier": {"timeout_sec": 30.0, "environment_mode": "separate"},
        "environment": {"workdir": WORKDIR, "network_mode": "no-network"},
        "metadata": {
            "family": family,
            "source": "first-steps",
            "split": split,
            "first_steps": {"seed": seed, **draft.parameters},
        },
    }
    files = {
        "environment/Dockerfile": _dockerfile(draft),
        "solution/solve.sh": f'#!/bin/sh\nset -e\ncd "${{SANDBOX_ROOT:-}}{WORKDIR}"\n{draft.act}\n'.encode("ascii"),
        "solution/direct.json": turns_json(turns_of([draft.act])),
        "solution/careful.json": turns_json(turns_of([draft.look, draft.act])),
        "tests/test.sh": checks.script(draft.conditions),
        **{f"environment/{name}": data for name, data in draft.environment.items()},
        **{f"tests/expected/{name}": data for name, data in draft.expected.items()},
    }
    return write_task(folder, config=config, instruction=draft.instruction, files=files)


def _dockerfile(draft: Draft) -> bytes:
    """What Harbor needs to build the same environment with Docker; not run here."""
    copies = [f"COPY {name} ./\n" for name in sorted(draft.environment)]
    return "".join(["FROM debian:12-slim\n", f"WORKDIR {WORKDIR}\n", *copies]).encode("ascii")
