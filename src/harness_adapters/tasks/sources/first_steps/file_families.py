"""Trained families about files and folders; each is solved by one shell command."""

from __future__ import annotations

import random

from harness_adapters.tasks.sources.first_steps.draft import Draft, Pool, text_file


def create(rng: random.Random, pool: Pool) -> Draft:
    """A new file with one given line of two words."""
    name, first, second = rng.sample(pool.words, 3)
    line = f"{first} {second}"
    wording = rng.choice(
        (
            "Create a file named {file} that contains the line: {line}",
            'Write the line "{line}" to a new file {file}.',
            'Make a new file {file} with this one line in it: "{line}"',
        )
    )
    return Draft(
        instruction=wording.format(file=f"{name}.txt", line=line),
        look="ls",
        act=f"echo {line} > {name}.txt",
        conditions=[f'same "$work/{name}.txt" line'],
        expected={"line": line.encode()},
        parameters={"words": [name, first, second]},
    )


def append(rng: random.Random, pool: Pool) -> Draft:
    """One word as a new last line of a file that has lines already."""
    name, line = rng.sample(pool.words, 2)
    others = [word for word in pool.words if word not in (name, line)]
    before = text_file(rng, others, rng.randint(2, 4))
    wording = rng.choice(
        (
            'Add the line "{line}" at the end of {file}.',
            "Append this line to the file {file}: {line}",
            'The file {file} needs one more line at its end: "{line}"',
        )
    )
    return Draft(
        instruction=wording.format(file=f"{name}.txt", line=line),
        look=f"cat {name}.txt",
        act=f"echo {line} >> {name}.txt",
        conditions=[f'same "$work/{name}.txt" all'],
        environment={f"{name}.txt": before},
        expected={"all": before + line.encode()},
        parameters={"words": [name, line]},
    )


def rename(rng: random.Random, pool: Pool) -> Draft:
    """A file under a new name, with its content, and nothing left under the old one."""
    old, new = rng.sample(pool.words, 2)
    content = text_file(rng, pool.words, rng.randint(1, 3))
    wording = rng.choice(
        (
            "Rename the file {old} to {new}.",
            "Change the name of the file {old} to {new}.",
            "The file {old} must be called {new} from now on. Rename it.",
        )
    )
    return Draft(
        instruction=wording.format(old=f"{old}.txt", new=f"{new}.txt"),
        look="ls",
        act=f"mv {old}.txt {new}.txt",
        conditions=[f'gone "$work/{old}.txt"', f'same "$work/{new}.txt" content'],
        environment={f"{old}.txt": content},
        expected={"content": content.removesuffix(b"\n")},
        parameters={"words": [old, new]},
    )


def lines(rng: random.Random, pool: Pool) -> Draft:
    """The number of lines of a file, written to another file."""
    name, answer = rng.sample(pool.words, 2)
    count = rng.randint(6, 48)
    wording = rng.choice(
        (
            "Count the lines of {file} and write only the number to {answer}.",
            "How many lines does the file {file} have? Write only the number to {answer}.",
        )
    )
    return Draft(
        instruction=wording.format(file=f"{name}.txt", answer=f"{answer}.txt"),
        look=f"cat {name}.txt",
        act=f"wc -l < {name}.txt > {answer}.txt",
        conditions=[f'number "$work/{answer}.txt" {count} 0'],
        environment={f"{name}.txt": text_file(rng, pool.words, count)},
        parameters={"words": [name, answer], "answer": str(count)},
    )


def tree(rng: random.Random, pool: Pool) -> Draft:
    """A folder with one empty file in it."""
    folder, name = rng.sample(pool.words, 2)
    wording = rng.choice(
        (
            "Make a folder named {folder} with an empty file {file} in it.",
            "Create the folder {folder} and inside it an empty file named {file}.",
        )
    )
    path = f"$work/{folder}/{name}.txt"
    return Draft(
        instruction=wording.format(folder=folder, file=f"{name}.txt"),
        look="ls",
        act=f"mkdir -p {folder} && touch {folder}/{name}.txt",
        conditions=[f'folder "$work/{folder}"', f'plain "{path}"', f'[ ! -s "{path}" ]'],
        parameters={"words": [folder, name]},
    )
