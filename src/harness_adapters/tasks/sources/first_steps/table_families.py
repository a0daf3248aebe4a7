"""Families that ask about a real table; each is solved by one pipeline of tail, cut, sort, wc or awk.

`smallest` is never trained: it asks of an unseen family what `largest` asks of a trained one.

Every task gets its own seeded sample of the table's rows, so no answer can be known from having seen the table, and a
constant answer solves next to nothing. Each expected value is computed in two independent ways that must agree.

Tolerance: counts, largest and smallest values are exact as numbers (4.50 is 4.5). A mean may be off by 0.1 percent,
which the instruction states; with at most 120 rows, dividing by one row too many or too few is off by more than 0.8
percent.
"""

from __future__ import annotations

import csv
import io
import math
import random
from decimal import Decimal
from fractions import Fraction

from harness_adapters.errors import TaskError
from harness_adapters.tasks.sources.first_steps.draft import Draft, Pool
from harness_adapters.tasks.sources.tables import Table

MEAN_TOLERANCE = 1e-3
"""Relative; the means asked for are all at least `SMALLEST_MEAN` in size, so no absolute floor hides an answer."""

SMALLEST_MEAN = 0.05

_ROWS = (40, 120)


def rows(rng: random.Random, pool: Pool) -> Draft:
    """The number of data rows of a table."""
    table, answer = _sampled(rng, pool), rng.choice(pool.words)
    data = table.csv()
    count = _agreed(len(table.rows), sum(1 for _ in csv.DictReader(io.StringIO(data.decode("ascii")))))
    wording = rng.choice(
        (
            "How many rows does {table} have, without its header line? Write only the number to {answer}.",
            "Count the rows of {table}, the header line not counted, and write only the number to {answer}.",
        )
    )
    return _draft(
        table,
        answer,
        instruction=wording.format(table=f"{table.name}.csv", answer=f"{answer}.txt"),
        act=f"tail -n +2 {table.name}.csv | wc -l > {answer}.txt",
        value=str(count),
        tolerance="0",
    )


def largest(rng: random.Random, pool: Pool) -> Draft:
    """The largest value of a numeric column."""
    table, answer = _sampled(rng, pool), rng.choice(pool.words)
    column = rng.choice(table.numeric)
    values = table.column(column)
    top = _agreed(float(max(map(Decimal, values))), sorted(float(v) for v in values)[-1])
    number = table.number(column)
    wording = rng.choice(
        (
            "Find the largest value in column {number} ({column}) of {table} and write only that number to {answer}.",
            "What is the largest value of {column} (column {number}) in {table}? Write only the number to {answer}.",
        )
    )
    return _draft(
        table,
        answer,
        instruction=wording.format(number=number, column=column, table=f"{table.name}.csv", answer=f"{answer}.txt"),
        act=f"tail -n +2 {table.name}.csv | cut -d, -f{number} | sort -n | tail -n 1 > {answer}.txt",
        value=repr(top),
        tolerance="0",
        column=column,
    )


def smallest(rng: random.Random, pool: Pool) -> Draft:
    """The smallest value of a numeric column, never 0: many columns have that one, and it would be guessed."""
    answer = rng.choice(pool.words)
    while True:
        table = _sampled(rng, pool)
        column = rng.choice(table.numeric)
        values = table.column(column)
        if min(map(Decimal, values)) != 0:
            break
    bottom = _agreed(float(min(map(Decimal, values))), sorted(float(v) for v in values)[0])
    number = table.number(column)
    wording = rng.choice(
        (
            "Find the smallest value in column {number} ({column}) of {table} and write only that number to {answer}.",
            "What is the smallest value of {column} (column {number}) in {table}? Write only the number to {answer}.",
        )
    )
    return _draft(
        table,
        answer,
        instruction=wording.format(number=number, column=column, table=f"{table.name}.csv", answer=f"{answer}.txt"),
        act=f"tail -n +2 {table.name}.csv | cut -d, -f{number} | sort -n | head -n 1 > {answer}.txt",
        value=repr(bottom),
        tolerance="0",
        column=column,
    )


def mean(rng: random.Random, pool: Pool) -> Draft:
    """The arithmetic mean of a numeric column, to 0.1 percent."""
    answer = rng.choice(pool.words)
    while True:
        table = _sampled(rng, pool)
        column = rng.choice(table.numeric)
        values = table.column(column)
        exact = float(sum(map(Fraction, values)) / len(values))
        if abs(exact) >= SMALLEST_MEAN:
            break
    value = _agreed(exact, math.fsum(map(float, values)) / len(values))
    number = table.number(column)
    wording = rng.choice(
        (
            "Compute the mean of column {number} ({column}) of {table} and write only the number to {answer}. "
            "It may be off by 0.1 percent.",
            "What is the mean of {column} (column {number}) in {table}? Write only the number to {answer}, "
            "at most 0.1 percent off.",
        )
    )
    return _draft(
        table,
        answer,
        instruction=wording.format(number=number, column=column, table=f"{table.name}.csv", answer=f"{answer}.txt"),
        act=f"awk -F, 'NR>1{{s+=${number}}}END{{print s/(NR-1)}}' {table.name}.csv > {answer}.txt",
        value=repr(value),
        tolerance=repr(abs(value) * MEAN_TOLERANCE),
        column=column,
    )


def _sampled(rng: random.Random, pool: Pool) -> Table:
    table = rng.choice(pool.tables)
    low, high = _ROWS
    return table.sample(rng, rng.randint(low, min(high, len(table.rows) - 1)))


def _agreed(first: float, second: float) -> float:
    """`first`, when a second way of computing it gives the same. Raises TaskError otherwise."""
    if not math.isclose(first, second, rel_tol=1e-12):
        raise TaskError(f"two ways of computing one answer disagree: {first!r} and {second!r}", "drop the question")
    return first


def _draft(
    table: Table, answer: str, *, instruction: str, act: str, value: str, tolerance: str, column: str = ""
) -> Draft:
    return Draft(
        instruction=instruction,
        look=f"head -n 2 {table.name}.csv",
        act=act,
        conditions=[f'number "$work/{answer}.txt" {value} {tolerance}'],
        environment={f"{table.name}.csv": table.csv()},
        parameters={"words": [answer], "table": table.name, "column": column, "answer": value},
    )
