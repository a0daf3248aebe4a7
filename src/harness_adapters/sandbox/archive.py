"""Tar in memory, on the host's side of the border: pure helpers that trust no archive.

Invariant: whatever passes `unpack` or `check` holds plain files and directories with relative names only, whoever
made it. Archives made here are byte-for-byte the same for the same files: sorted, owner and time zero.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from harness_adapters.errors import InfraError
from harness_adapters.sandbox import transfer

PACK_LIMIT = 1 << 30


class ArchiveError(InfraError):
    """A tar or a directory that holds links, devices, unsafe names, or is damaged."""


def pack(files: Mapping[str, bytes | tuple[bytes, int]]) -> bytes:
    """A tar of relative name to content, or to (content, mode); the mode is 0o644 where none is given.

    Raises ArchiveError for a name that `unpack` would refuse.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, value in sorted(files.items()):
            content, mode = value if isinstance(value, tuple) else (value, 0o644)
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = mode
            tar.addfile(entry, io.BytesIO(content))
    tar_bytes = out.getvalue()
    check(tar_bytes)
    return tar_bytes


def pack_dir(path: Path) -> bytes:
    """A tar of a host directory's content, at most 1 GiB. Raises ArchiveError when it holds a link or special file."""
    try:
        return transfer.packed(str(path.resolve()), PACK_LIMIT, strict=True)
    except transfer.Refused as error:
        raise ArchiveError(f"{path}: {error}", "keep plain files and directories only in it") from None
    except OSError as error:
        raise ArchiveError(f"cannot read {path}: {error.strerror}", "check that it exists and is readable") from error


def unpack(tar: bytes) -> dict[str, bytes]:
    """Relative name to content of every file; directories are implied. Raises ArchiveError."""
    files: dict[str, bytes] = {}
    try:
        with _open(tar) as archive:
            for member, parts in transfer.plain_members(archive):
                if member.isreg():
                    files["/".join(parts)] = transfer.read_member(archive, member)
    except transfer.Refused as error:
        raise ArchiveError(f"archive refused: {error}", "only plain files with relative names may cross") from None
    return files


def check(tar: bytes) -> None:
    """Raise ArchiveError unless `unpack` would take the archive."""
    unpack(tar)


def _open(tar: bytes) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=io.BytesIO(tar), mode="r:")
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise transfer.Refused(f"not a tar archive: {error}") from error
