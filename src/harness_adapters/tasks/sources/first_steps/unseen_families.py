"""Families about files that are never trained, only evaluated; each is solved by one shell command.

Invariant: no trained family asks for one of these things, as a whole or on the way: none copies or removes a file,
changes letters, or puts two files together. `smallest`, in `table_families`, is the fifth: its question is near to one
that is trained, as these are not.
"""

from __future__ import annotations

import random
import string

from harness_adapters.errors import TaskError
from harness_adapters.tasks.sources.first_steps.draft import Draft, Pool, text_file


def copy(rng: random.Random, pool: Pool) -> Draft:
    """The same content under a second name, and the first file as it was."""
    old, new = rng.sample(pool.words, 2)
    content = text_file(rng, pool.words, rng.randint(1, 3))
    wording = rng.choice(
        (
            "Copy the file {old} to {new}.",
            "Make a copy of the file {old} named {new}.",
        )
    )
    return Draft(
        instruction=wording.format(old=f"{old}.txt", new=f"{new}.txt"),
        look="ls",
        act=f"cp {old}.txt {new}.txt",
        conditions=[f'same "$work/{old}.txt" content', f'same "$work/{new}.txt" content'],
        environment={f"{old}.txt": content},
        expected={"content": content.removesuffix(b"\n")},
        parameters={"words": [old, new]},
    )


def delete(rng: random.Random, pool: Pool) -> Draft:
    """One file gone, and the other one as it was."""
    name, other = rng.sample(pool.words, 2)
    content = text_file(rng, pool.words, rng.randint(1, 3))
    kept = text_file(rng, pool.words, rng.randint(1, 3))
    wording = rng.choice(
        (
            "Delete the file {file}.",
            "Remove the file {file}.",
        )
    )
    return Draft(
        instruction=wording.format(file=f"{name}.txt"),
        look="ls",
        act=f"rm {name}.txt",
        conditions=[f'gone "$work/{name}.txt"', f'same "$work/{other}.txt" kept'],
        environment={f"{name}.txt": content, f"{other}.txt": kept},
        expected={"kept": kept.removesuffix(b"\n")},
        parameters={"words": [name]},
    )


def upper(rng: random.Random, pool: Pool) -> Draft:
    """The text of a file in capital letters, in a new file."""
    old, new = rng.sample(pool.words, 2)
    content = text_file(rng, pool.words, rng.randint(1, 3))
    capitals = content.upper()
    if capitals != content.translate(bytes.maketrans(string.ascii_lowercase.encode(), string.ascii_uppercase.encode())):
        raise TaskError("two ways of writing a text in capital letters disagree", "drop the question")
    wording = rng.choice(
        (
            "Write the text of {old} in capital letters to a new file {new}.",
            "Make a file {new} that holds the text of {old} in capital letters.",
        )
    )
    return Draft(
        instruction=wording.format(old=f"{old}.txt", new=f"{new}.txt"),
        look=f"cat {old}.txt",
        act=f"tr a-z A-Z < {old}.txt > {new}.txt",
        conditions=[f'same "$work/{new}.txt" capitals'],
        environment={f"{old}.txt": content},
        expected={"capitals": capitals.removesuffix(b"\n")},
        parameters={"words": [old, new]},
    )


def merge(rng: random.Random, pool: Pool) -> Draft:
    """The lines of one file and then those of another, in a third."""
    first, second, both = rng.sample(pool.words, 3)
    start, end = (text_file(rng, pool.words, rng.randint(1, 3)) for _ in range(2))
    wording = rng.choice(
        (
            "Write the lines of {first} and after them those of {second} to a new file {both}.",
            "Make a file {both} out of the lines of {first} followed by those of {second}.",
        )
    )
    return Draft(
        instruction=wording.format(first=f"{first}.txt", second=f"{second}.txt", both=f"{both}.txt"),
        look="ls",
        act=f"cat {first}.txt {second}.txt > {both}.txt",
        conditions=[f'same "$work/{both}.txt" lines'],
        environment={f"{first}.txt": start, f"{second}.txt": end},
        expected={"lines": (start + end).removesuffix(b"\n")},
        parameters={"words": [first, second, both]},
    )
