"""Real tables that tasks ask about, shipped beside this file with where they come from (`tables/sources.toml`).

Invariants
- Every table is plain CSV: ASCII, one header line, commas without quoting, no blanks around values, nothing missing.
- A table belongs to one pool, `train`, `dev` or `heldout`; no question about it crosses.
- The bytes on the disk are those the record's `sha256` names; anything else is refused.
"""

from __future__ import annotations

import hashlib
import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness_adapters.errors import TaskError

FOLDER = Path(__file__).parent / "tables"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its provenance. `rows` are the cells as text; `numeric` names the columns to ask about."""

    name: str
    pool: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[str, ...]
    source: Mapping[str, Any]

    def column(self, name: str) -> list[str]:
        """The cells of one column, as text, in row order."""
        index = self.header.index(name)
        return [row[index] for row in self.rows]

    def number(self, name: str) -> int:
        """The column's place counted from 1, as `cut` and `awk` count."""
        return self.header.index(name) + 1

    def sample(self, rng: random.Random, count: int) -> Table:
        """`count` rows drawn without replacement, in their original order."""
        kept = sorted(rng.sample(range(len(self.rows)), count))
        return Table(self.name, self.pool, self.header, tuple(self.rows[i] for i in kept), self.numeric, self.source)

    def csv(self) -> bytes:
        """The table as bytes: header and rows, each ended by one line feed."""
        return "".join(",".join(row) + "\n" for row in (self.header, *self.rows)).encode("ascii")


@cache
def load_tables() -> tuple[Table, ...]:
    """All shipped tables, by name. Raises TaskError when one is missing or is not the recorded bytes."""
    records = tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))
    return tuple(_load(name, record) for name, record in sorted(records.items()))


def tables_of(pool: str) -> tuple[Table, ...]:
    """The tables of one pool, `train`, `dev` or `heldout`."""
    return tuple(table for table in load_tables() if table.pool == pool)


def _load(name: str, record: Mapping[str, Any]) -> Table:
    path = FOLDER / f"{name}.csv"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(f"cannot read the table {path.name}: {error.strerror}", "reinstall the package") from None
    if hashlib.sha256(data).hexdigest() != record["sha256"]:
        raise TaskError(f"the table {path.name} is not the recorded file", "reinstall the package")
    header, *rows = (tuple(line.split(",")) for line in data.decode("ascii").splitlines())
    return Table(name, record["pool"], header, tuple(rows), tuple(record["numeric"]), record)
