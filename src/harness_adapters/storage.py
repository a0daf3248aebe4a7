"""Where things lie on the disk, and how they get there whole.

Invariants
- A folder or file appears under its final name complete or not at all: it is written beside it and renamed.
- Whatever can be made twice at once (layers, installs, converted weights) is made under an exclusive file lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness_adapters.errors import InfraError


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

    An existing `final` is replaced; readers see the old one or the new one.
    """
    with explained(f"cannot write {final}"):
        final.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".tmp", dir=final.parent))
        work.chmod(0o755)
    try:
        with explained(f"cannot write {final}"):
            yield work
            if final.exists():
                retired = work.with_suffix(".old")
                final.rename(retired)
                work.rename(final)
                shutil.rmtree(retired, ignore_errors=True)
            else:
                work.rename(final)
    finally:
        shutil.rmtree(work, ignore_errors=True)


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
