"""Trees to tar and tar to trees, without ever following a link. Runs inside a sandbox as a script, and on the host.

Standard library only, nothing of this package: it is mounted into sandboxes as one file. As a script:
`transfer.py unpack DIRECTORY < TAR` and `transfer.py pack PATH LIMIT > TAR`; exit code 3 is a path or archive that
cannot be used, with the reason on stderr.

Invariants
- Every step of every path is opened relative to its parent's descriptor with O_NOFOLLOW, so a link swapped in
  between looking and opening is refused, not followed.
- Only regular files and directories are written or read; set-user and set-group bits are dropped.

Asymmetry: in `unpack` a link standing where a member goes is replaced; in the destination itself it is refused.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import IO

UNUSABLE = 3
MAX_DEPTH = 100
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512


class Refused(Exception):
    """An archive or path that is not to be used; the message says why."""


def plain_members(tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, tuple[str, ...]]]:
    """The members with their name's parts; () for the root itself. Raises Refused on the first unsafe one."""
    while True:
        try:
            member = tar.next()
        except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
            raise Refused(f"damaged archive: {error}") from error
        if member is None:
            return
        yield member, _member_parts(member)


def _member_parts(member: tarfile.TarInfo) -> tuple[str, ...]:
    name = member.name
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) or member.sparse is not None:
        raise Refused(f"{name!r} is neither a plain file nor a directory")
    if name.startswith("/") or "\0" in name or member.size < 0:
        raise Refused(f"{name!r} is not a relative name")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or len(parts) > MAX_DEPTH:
        raise Refused(f"{name!r} leaves the archive or is too deep")
    if not parts and not member.isdir():
        raise Refused("a file without a name")
    return parts


def read_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """The whole content of a file member. Raises Refused when the archive is cut short."""
    try:
        file = tar.extractfile(member)
        data = file.read() if file is not None else b""
    except (tarfile.TarError, OSError, OverflowError) as error:
        raise Refused(f"{member.name!r} is damaged: {error}") from error
    if len(data) != member.size:
        raise Refused(f"{member.name!r} is cut short")
    return data


def unpack(stream: IO[bytes], destination: str) -> None:
    """Write a tar stream's files below an absolute path, which is made if absent. Raises Refused or OSError."""
    root = _walk(destination, create=True)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member, parts in plain_members(tar):
                _write(root, member, parts, tar)
    except tarfile.TarError as error:
        raise Refused(f"damaged archive: {error}") from error
    finally:
        os.close(root)


def _write(root: int, member: tarfile.TarInfo, parts: tuple[str, ...], tar: tarfile.TarFile) -> None:
    if not parts:
        return
    folders, name = (parts, "") if member.isdir() else (parts[:-1], parts[-1])
    parent = os.dup(root)
    try:
        for part in folders:
            parent = _enter_replacing(parent, part)
        if not name:
            os.fchmod(parent, member.mode & 0o777 | 0o700)
            return
        if _exists(parent, name):
            os.unlink(name, dir_fd=parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
            file.write(read_member(tar, member))
            os.fchmod(file.fileno(), member.mode & 0o777)
    finally:
        os.close(parent)


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _enter_replacing(parent: int, name: str) -> int:
    """Open a sub-directory, putting a fresh one in the place of anything else. Consumes `parent`."""
    if _exists(parent, name) and not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=parent)
    return _enter(parent, name, create=True)


def _enter(parent: int, name: str, *, create: bool) -> int:
    try:
        if create and not _exists(parent, name):
            os.mkdir(name, 0o755, dir_fd=parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)
    finally:
        os.close(parent)


def _walk(path: str, *, create: bool) -> int:
    """A descriptor of the directory at an absolute path, no step of which is a link."""
    parts = path_parts(path)
    folder = os.open("/", _DIRECTORY)
    for part in parts:
        folder = _enter(folder, part, create=create)
    return folder


def path_parts(path: str) -> tuple[str, ...]:
    """The parts of an absolute path. Raises Refused for a relative one, and for `..` or NUL in it."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if not path.startswith("/") or ".." in parts or "\0" in path:
        raise Refused(f"{path!r} is not an absolute path without '..'")
    return parts


def pack(path: str, out: IO[bytes], limit: int, *, strict: bool = False) -> None:
    """Write a tar of a directory's content, or of one file, of at most `limit` bytes.

    What is neither file nor directory is left out, or refused when `strict`. Raises Refused or OSError.
    """
    parts = path_parts(path)
    if not parts:
        raise Refused("the root directory cannot be packed")
    parent = _walk("/" + "/".join(parts[:-1]), create=False)
    try:
        mode = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            packer = _Packer(tar, limit - 20 * _BLOCK, strict)
            if stat.S_ISDIR(mode):
                packer.directory(parent, parts[-1], ())
            elif stat.S_ISREG(mode):
                packer.file(parent, parts[-1], ())
            else:
                raise Refused(f"{path!r} is neither a plain file nor a directory")
    finally:
        os.close(parent)


class _Packer:
    """Adds entries to a tar and stops at a size; `room` is what is left of it in bytes."""

    def __init__(self, tar: tarfile.TarFile, room: int, strict: bool) -> None:
        self._tar = tar
        self._room = room
        self._strict = strict

    def directory(self, parent: int, name: str, inside: tuple[str, ...]) -> None:
        if len(inside) > MAX_DEPTH:
            raise Refused("directories nested too deep")
        folder = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            if inside:
                self._add(_entry(inside, os.fstat(folder), tarfile.DIRTYPE), None)
            for child in sorted(os.listdir(folder)):
                mode = os.stat(child, dir_fd=folder, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    self.directory(folder, child, (*inside, child))
                elif stat.S_ISREG(mode):
                    self.file(folder, child, inside)
                elif self._strict:
                    raise Refused(f"{'/'.join((*inside, child))!r} is neither a plain file nor a directory")
        finally:
            os.close(folder)

    def file(self, parent: int, name: str, inside: tuple[str, ...]) -> None:
        # O_NONBLOCK: a FIFO put in the file's place since the look at it must not hold the open.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Refused(f"{name!r} changed while it was read")
            entry = _entry((*inside, name), status, tarfile.REGTYPE)
            entry.size = status.st_size
            self._add(entry, file)

    def _add(self, entry: tarfile.TarInfo, file: IO[bytes] | None) -> None:
        # A long name takes two more blocks and itself.
        self._room -= 4 * _BLOCK + len(entry.name.encode(errors="surrogateescape")) + entry.size
        if self._room < 0:
            raise Refused("larger than the limit")
        self._tar.addfile(entry, file)


def _entry(parts: tuple[str, ...], status: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo("/".join(parts))
    entry.type = kind
    entry.mode = stat.S_IMODE(status.st_mode) & 0o777
    entry.mtime = int(status.st_mtime)
    return entry


def _main(arguments: list[str]) -> int:
    try:
        if arguments[0] == "unpack":
            unpack(sys.stdin.buffer, arguments[1])
        else:
            pack(arguments[1], sys.stdout.buffer, int(arguments[2]))
            sys.stdout.buffer.flush()
    except (Refused, OSError) as error:
        sys.stderr.write(str(error))
        return UNUSABLE
    return 0


def packed(path: str, limit: int, *, strict: bool = False) -> bytes:
    """`pack` into memory."""
    out = io.BytesIO()
    pack(path, out, limit, strict=strict)
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
