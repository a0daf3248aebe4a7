"""Folders that appear whole or not at all, whenever the process is killed.

A folder is written under a hidden temporary name beside its place, flushed to disk and renamed. What a killed writer
left behind is ignored by readers and removed by the next writer of the same name; two processes never write one name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness_adapters.errors import TrainingError

_PREFIX = ".writing-"
_OLD = ".replaced-"


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; on a clean exit it takes the place of `folder`, replacing one that is there.

    On an exception nothing is left. Raises TrainingError when the disk refuses.
    """
    temporary, replaced = folder.with_name(_PREFIX + folder.name), folder.with_name(_OLD + folder.name)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        _flush(temporary)
        if folder.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            folder.rename(replaced)
        temporary.rename(folder)
        _flush_entry(folder.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        raise TrainingError(
            f"cannot write {folder}: {error.strerror}", "free some disk space and resume the run"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_whole(folder: Path) -> bool:
    """Whether a folder's name is that of a finished one."""
    return not folder.name.startswith((_PREFIX, _OLD))


def _flush(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    _flush_entry(folder)


def _flush_entry(folder: Path) -> None:
    entry = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)
