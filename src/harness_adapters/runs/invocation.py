"""How a person calls this program again: for the commands that a run prints, ready for a shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

NAME = "harness-adapters"


def program() -> str:
    """The bare name where a shell finds it, else as it was started: by its path or as a module of a Python."""
    started = Path(sys.argv[0])
    if shutil.which(NAME) is not None:
        return NAME
    if started.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m harness_adapters"
    if started.name != NAME:
        return NAME
    if started.is_absolute() and started.is_relative_to(Path.cwd()):
        started = started.relative_to(Path.cwd())
    return shlex.quote(str(started) if len(started.parts) > 1 else f"./{started}")


def command(*words: object) -> str:
    """A whole command line for this program."""
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])
