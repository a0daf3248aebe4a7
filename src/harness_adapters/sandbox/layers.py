"""The skeleton layer: the few files and folders every sandbox's root starts from, on disk, shared and never written.

It is the lower layer of an overlay whose upper layer is memory, so nothing a sandbox writes reaches the disk and no
clean-up is owed after a crash. The only thing that can be left behind is a half-built layer; the next build, which
holds the lock, removes it.

Invariants
- A layer appears whole (rename) and is never changed: its name holds the hash of its content.
- It belongs to the caller, because the caller's user and group are what 1000 inside maps to.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness_adapters.errors import InfraError
from harness_adapters.sandbox.protocol import GID, HOME, LOGS, UID, WORKSPACE

HOSTNAME = "sandbox"
MERGED_USR = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_FOLDERS = (WORKSPACE, HOME, LOGS, "/etc", "/usr", "/proc", "/dev", "/tmp", "/opt", "/run", "/var/tmp", "/root")
_FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{UID}:{GID}:agent:{HOME}:/bin/bash\n",
    "etc/group": f"root:x:0:\nagent:x:{GID}:\n",
    "etc/hosts": f"127.0.0.1 localhost {HOSTNAME}\n",
    "etc/hostname": f"{HOSTNAME}\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/resolv.conf": "",
}


def cache_home() -> Path:
    """`$HARNESS_ADAPTERS_CACHE`, or `harness-adapters` in the user's cache folder."""
    named = os.environ.get("HARNESS_ADAPTERS_CACHE", "")
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "harness-adapters"


def skeleton() -> Path:
    """The skeleton layer's directory, built on first use. Raises InfraError when the cache cannot be written."""
    links = _usr_links()
    recipe = repr((_FOLDERS, sorted(_FILES.items()), links, os.getuid(), os.getgid()))
    layers = cache_home() / "layers"
    layer = layers / f"skeleton-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if layer.is_dir():
        return layer
    try:
        with _lock(layers):
            if not layer.is_dir():
                _build(layer, links)
    except OSError as error:
        raise InfraError(
            f"cannot build the sandbox's root in {layers}: {error.strerror}",
            "set HARNESS_ADAPTERS_CACHE to a folder you can write to",
        ) from error
    return layer


def _usr_links() -> tuple[tuple[str, str], ...]:
    """Top-level names that are links into /usr on this host, with their targets; the others are bound."""
    return tuple((name, os.readlink(f"/{name}")) for name in MERGED_USR if Path("/", name).is_symlink())


@contextmanager
def _lock(layers: Path) -> Iterator[None]:
    layers.mkdir(parents=True, exist_ok=True)
    with (layers / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(layer: Path, links: tuple[tuple[str, str], ...]) -> None:
    building = layer.with_name(".building")
    shutil.rmtree(building, ignore_errors=True)
    for folder in _FOLDERS:
        (building / folder.lstrip("/")).mkdir(parents=True)
    for name, content in _FILES.items():
        (building / name).write_text(content)
    for name, target in links:
        (building / name).symlink_to(target.lstrip("/"))
    building.chmod(0o755)
    building.rename(layer)
