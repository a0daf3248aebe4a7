"""How the limits of a bubblewrap sandbox are enforced, and the words for a record that must be able to say so.

Two means, both without privileges and without anything left on the disk: resource limits of the kernel, and the
executor's watcher, which polls memory and thread counts. There is no cgroup driver. A watcher sees a burst late, so
its bounds are called what they are. RLIMIT_AS is not used: it bounds address space, of which Node and the sanitizers
reserve terabytes.

Asymmetry: RLIMIT_NPROC counts per user *namespace* since Linux 5.14 and is ignored for the host's root, so it is set
only for ordinary users on such kernels; everywhere else the watcher alone bounds processes.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping

from harness_adapters.sandbox import seccomp
from harness_adapters.sandbox.execd import WATCH_SECONDS
from harness_adapters.sandbox.protocol import Limits

MIB = 1 << 20
OWN_PROCESSES = 40
"""Room for the executor, its supervisors and helpers, which the kernel counts and the limit does not mean."""


def kernel_counts_per_namespace() -> bool:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return os.getuid() != 0 and found is not None and (int(found[1]), int(found[2])) >= (5, 14)


def executor_settings(limits: Limits) -> Mapping[str, int]:
    """What the executor is told: bytes and counts; `nproc` is 0 where the kernel's own limit is of no use."""
    return {
        "memory": limits.memory_mb * MIB,
        "file": limits.file_mb * MIB,
        "processes": limits.processes,
        "nproc": limits.processes + OWN_PROCESSES if kernel_counts_per_namespace() else 0,
    }


def enforced(limits: Limits) -> Mapping[str, str]:
    """The bounds of one sandbox, in words."""
    polled = f"watcher every {WATCH_SECONDS} s"
    processes = "RLIMIT_NPROC and " + polled if kernel_counts_per_namespace() else polled
    return {
        "memory": f"{limits.memory_mb} MiB of private memory and files: {polled}, not a hard bound",
        "processes": f"{limits.processes} threads: {processes}",
        "file": f"{limits.file_mb} MiB: RLIMIT_FSIZE, and the size of /tmp",
        "network": "own namespace with loopback only",
        "syscalls": "seccomp deny list" if seccomp.deny_list() else f"no filter for {platform.machine()}",
        "cpu": "not limited",
        "user": "the host's root without capabilities" if os.getuid() == 0 else f"user {os.getuid()} of the host",
    }
