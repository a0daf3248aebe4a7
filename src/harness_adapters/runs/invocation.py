"""How a person calls this program again: for the commands that a run prints."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAME = "harness-adapters"


def program() -> str:
    """The bare name where a shell finds it, else the path it was started by, from the current folder."""
    started = Path(sys.argv[0])
    if shutil.which(NAME) is not None or started.name != NAME:
        return NAME
    if not started.is_absolute():
        return str(started)
    try:
        return str(started.relative_to(Path.cwd()))
    except ValueError:
        return str(started)
