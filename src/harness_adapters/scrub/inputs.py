"""Which files a run reads and under which names it writes them.

Invariants
- A link inside a folder is not followed: it may lead to what nobody asked to publish.
- Two inputs never get one name, and a name says no more than the scrubbed texts do: user names in it are replaced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness_adapters.errors import SessionError
from harness_adapters.scrub.placeholders import PLACEHOLDER
from harness_adapters.scrub.scrubber import Scrubber

_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".traj"})
_BINARY_SIGN = b"\0"
_HEAD = 8192
BINARY = "no text"
"""Why a file of a folder was left out that may well be a session: a run that leaves one out is not all done."""


@dataclass(frozen=True, slots=True)
class Input:
    """A file to read, and its name (relative, with `/`) in the output folder."""

    path: Path
    name: str


def inputs_of(paths: Sequence[Path]) -> tuple[list[Input], list[tuple[str, str]]]:
    """Files named or in named folders; those of folders that are left out, each with the reason.

    Raises SessionError for a path that does not exist and where nothing is left to read.
    """
    found: list[Input] = []
    left_out: list[tuple[str, str]] = []
    for path in paths:
        if path.is_dir():
            _walk(path, found, left_out)
        elif path.is_file():
            found.append(Input(path, path.name))
        else:
            raise SessionError(f"no file or folder at {path}", "check the path, or list your sessions with --find")
    if not found:
        raise SessionError(
            "no session in what was given", "folders are searched for .json, .jsonl, .ndjson and .traj files"
        )
    return _told_apart(found), left_out


def _walk(folder: Path, found: list[Input], left_out: list[tuple[str, str]]) -> None:
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(here) / name
            inside = path.relative_to(folder).as_posix()
            if path.is_symlink():
                left_out.append((inside, "a link"))
            elif not path.is_file():  # opening a FIFO would wait for a writer
                left_out.append((inside, "no regular file"))
            elif path.suffix.lower() not in _SUFFIXES:
                left_out.append((inside, "not JSON by its name"))
            elif _is_binary(path):
                left_out.append((inside, BINARY))
            else:
                found.append(Input(path, inside))


def _is_binary(path: Path) -> bool:
    """Whether a file is no text. One that cannot be read is taken: reading it will say why."""
    try:
        with path.open("rb") as file:
            return _BINARY_SIGN in file.read(_HEAD)
    except OSError:
        return False


def _told_apart(found: list[Input]) -> list[Input]:
    """Inputs of one name get the folder they came from before it, then a number."""
    named: dict[str, Input] = {}
    seen: set[Path] = set()
    for given in found:
        real = given.path.resolve()
        if real in seen:
            continue
        seen.add(real)
        name = given.name
        if name in named:
            name = f"{given.path.resolve().parent.name}/{given.name}"
        count = 2
        while name in named:
            name = str(PurePosixPath(given.name).with_stem(f"{PurePosixPath(given.name).stem}-{count}"))
            count += 1
        named[name] = Input(given.path, name)
    return list(named.values())


def read(path: Path) -> bytes:
    """The bytes of an input. Raises SessionError when it cannot be read or is no text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror or error}", "check the file's permissions") from None
    if _BINARY_SIGN in data[:_HEAD]:
        raise SessionError(
            f"{path} is no text",
            "export a session from a database first: `opencode export SESSION_ID` or `hermes sessions export FILE`",
        )
    return data


def scrubbed_name(scrubber: Scrubber, name: str) -> str:
    """A file name without names of people; a stand-in becomes `user-1`, since `<`, `:` and `>` stand badly in names."""
    scrubbed = scrubber.scrub(f"/{name}".encode(errors="surrogateescape")).data.removeprefix(b"/")
    return PLACEHOLDER.sub(rb"\1-\2", scrubbed).decode(errors="surrogateescape")
