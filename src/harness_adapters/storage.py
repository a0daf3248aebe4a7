"""Where things lie on the disk, and how they get there whole.

Invariants
- A folder or file appears under its final name complete or not at all: it is written beside it and renamed.
- A folder that is replaced is exchanged in one step where the file system can (Linux, renameat2); elsewhere a kill can
  fall between two renames, and the next writer of that folder puts the old one back first.
- Whatever can be made twice at once (layers, installs, converted weights) is made under an exclusive file lock.
- What a killed writer leaves has a hidden name that ends in `.tmp` or `.old`. A half-made folder is locked by its
  writer, so the next one tells a dead writer's from a live one's and clears it away.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness_adapters.errors import InfraError

if TYPE_CHECKING:
    import torch

_ABANDONED_AFTER_S = 24 * 3600.0
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}\.(?P<kind>tmp|old)")
"""What `tempfile` and this module call unfinished files and folders, and folders about to be replaced or removed."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def cache_root() -> Path:
    """`$HARNESS_ADAPTERS_CACHE`, else `harness-adapters` in the user's cache folder."""
    named = os.environ.get("HARNESS_ADAPTERS_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "harness-adapters"


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn a full or read-only disk met while doing `what` into an InfraError that says so."""
    try:
        yield
    except OSError as error:
        hint = (
            "free some disk space and run it again"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "check the folder and its permissions"
        )
        raise InfraError(f"{what}: {error.strerror or error}", hint) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` (created if absent) among all processes of this machine."""
    with explained(f"cannot lock {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a")
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """A temporary folder that becomes `final` when the block ends well, and vanishes when it does not.

    An existing `final` is replaced. Readers see the old one or the new one; where the file system cannot exchange
    two folders they may, for an instant, see none. What killed writers of `final` left is cleared away first.
    """
    with contextlib.ExitStack() as held:
        with explained(f"cannot write {final}"):
            final.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(final)
            work = held.enter_context(work_folder(final))
        try:
            with explained(f"cannot write {final}"):
                yield work
                if not final.exists():
                    work.rename(final)
                elif not _exchange(work, final):
                    _replace(work, final)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def work_folder(final: Path) -> Iterator[Path]:
    """A new hidden folder beside `final`, locked by this process as long as the block lasts.

    Whoever asks for one renames or removes it; what a killed process left of it is cleared away by the next one.
    """
    while True:
        work = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
        work.chmod(0o755)
        handle = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with contextlib.suppress(OSError):  # a file system without such locks: the folder's age must do
                fcntl.flock(handle, fcntl.LOCK_EX)
            if work.exists():  # else somebody who clears away took it for a leftover before it was locked
                yield work
                return
        finally:
            os.close(handle)


def remove_folder(path: Path) -> None:
    """Delete a folder that readers may look at: its name is gone before its content is."""
    with explained(f"cannot remove {path}"):
        retired = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        path.rename(retired)
        shutil.rmtree(retired, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the C library, the kernel or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    status: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return status == 0


def _replace(work: Path, final: Path) -> None:
    """The two renames that stand in for an exchange."""
    retired = work.with_suffix(".old")
    final.rename(retired)
    try:
        work.rename(final)
    except OSError:
        retired.rename(final)
        raise
    shutil.rmtree(retired, ignore_errors=True)


def clear_leftovers(final: Path) -> None:
    """Put back a folder that a killed `_replace` retired, and remove what dead writers of `final` left half made."""
    for path in _entries(final.parent):
        left = _LEFTOVER.fullmatch(path.name)
        if left is None or left["name"] != final.name or not path.is_dir():
            continue
        if left["kind"] == "old" and not final.exists():
            with contextlib.suppress(FileNotFoundError):  # its writer was alive and finished with it
                path.rename(final)
        else:
            _remove_abandoned(path)


def clear_abandoned(folder: Path) -> None:
    """Remove every half-made folder directly in `folder` that nobody is writing any more."""
    for path in _entries(folder):
        left = _LEFTOVER.fullmatch(path.name)
        if left is not None and left["kind"] == "tmp" and path.is_dir():
            _remove_abandoned(path)


def _remove_abandoned(folder: Path) -> None:
    """Remove a half-made folder unless somebody is still writing it: its writer holds a lock on it.

    Where the file system has no such locks (a network's, with writers on other machines) its age decides. One that
    cannot be removed (another user's) stays.
    """
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            return
        except OSError:
            if time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def sweep(folder: Path) -> list[str]:
    """Clear away everything that killed writers left directly in `folder`; the names, sorted.

    Only for a folder whose one writer is the caller: nothing is asked for its lock or age.
    """
    swept = []
    for path in _entries(folder):
        left = _LEFTOVER.fullmatch(path.name)
        if left is None:
            continue
        if left["kind"] == "old" and not path.with_name(left["name"]).exists():
            path.rename(path.with_name(left["name"]))
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        swept.append(path.name)
    return swept


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file. Raises OSError, which `explained` and `atomic_folder` explain, when the disk refuses.

    The safetensors library has an exception of its own for a failed write and names the system's error in its text.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), str(path), metadata={"format": "pt"})
    except SafetensorError as error:
        code = re.search(r"\(os error (\d+)\)", str(error))
        if code is None:
            raise OSError(f"{path.name}: {error}") from error
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises InfraError when the disk refuses."""
    with explained(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
