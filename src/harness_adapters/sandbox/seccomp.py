"""The system calls no sandboxed program may make, as a classic BPF program for `bwrap --seccomp`.

A deny list, not an allow list: it takes away kernel surface that coding work never needs (key rings, BPF, io_uring,
mounts, new namespaces, clocks, modules), and leaves everything a compiler, debugger or runtime uses. Denied calls
fail with EPERM; `clone3` fails with ENOSYS, because its flags lie behind a pointer no filter can read and C libraries
then fall back to `clone`, whose flags are checked.

Layout of the data a filter sees: `struct seccomp_data` of <linux/seccomp.h>, little-endian on both architectures:
nr at 0, arch at 4, low half of the first argument at 16. An architecture without a table gets no filter.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NEW_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS | CLONE_NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET of <linux/sched.h>."""
_X32_CALLS = 0x40000000

_SAME_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
_CLONE3 = 435


@dataclass(frozen=True, slots=True)
class _Architecture:
    audit: int
    clone: int
    denied: Mapping[str, int]


_ARCHITECTURES = {
    "x86_64": _Architecture(
        0xC000003E,
        56,
        {
            "syslog": 103,
            "uselib": 134,
            "vhangup": 153,
            "pivot_root": 155,
            "adjtimex": 159,
            "chroot": 161,
            "acct": 163,
            "settimeofday": 164,
            "mount": 165,
            "umount2": 166,
            "swapon": 167,
            "swapoff": 168,
            "reboot": 169,
            "iopl": 172,
            "ioperm": 173,
            "init_module": 175,
            "delete_module": 176,
            "quotactl": 179,
            "clock_settime": 227,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "unshare": 272,
            "perf_event_open": 298,
            "fanotify_init": 300,
            "name_to_handle_at": 303,
            "open_by_handle_at": 304,
            "clock_adjtime": 305,
            "setns": 308,
            "kcmp": 312,
            "finit_module": 313,
            "kexec_file_load": 320,
            "bpf": 321,
            "userfaultfd": 323,
        },
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        220,
        {
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "chroot": 51,
            "vhangup": 58,
            "quotactl": 60,
            "acct": 89,
            "unshare": 97,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "clock_settime": 112,
            "syslog": 116,
            "reboot": 142,
            "settimeofday": 170,
            "adjtimex": 171,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "swapon": 224,
            "swapoff": 225,
            "perf_event_open": 241,
            "fanotify_init": 262,
            "name_to_handle_at": 264,
            "open_by_handle_at": 265,
            "clock_adjtime": 266,
            "setns": 268,
            "kcmp": 272,
            "finit_module": 273,
            "bpf": 280,
            "userfaultfd": 282,
            "kexec_file_load": 294,
        },
    ),
}


def deny_list(machine: str = "") -> bytes:
    """The filter as `struct sock_filter` entries; empty for an architecture without a table.

    `machine` is as `platform.machine()` gives it, the running one's by default.
    """
    architecture = _ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        return b""
    numbers = sorted({**architecture.denied, **_SAME_EVERYWHERE}.values())
    jumps = [(_JUMP_EQUAL, number, "deny") for number in numbers]
    return _assemble(
        [
            (_LOAD_WORD, 4, ""),
            (_JUMP_EQUAL, architecture.audit, "native"),
            (_RETURN, _ERRNO | errno.EPERM, ""),
            ("native",),
            (_LOAD_WORD, 0, ""),
            (_JUMP_AT_LEAST, _X32_CALLS, "deny"),
            (_JUMP_EQUAL, _CLONE3, "unknown"),
            (_JUMP_EQUAL, architecture.clone, "clone"),
            *jumps,
            (_RETURN, _ALLOW, ""),
            ("clone",),
            (_LOAD_WORD, 16, ""),
            (_JUMP_ANY_BIT, _NEW_NAMESPACE_FLAGS, "deny"),
            (_RETURN, _ALLOW, ""),
            ("deny",),
            (_RETURN, _ERRNO | errno.EPERM, ""),
            ("unknown",),
            (_RETURN, _ERRNO | errno.ENOSYS, ""),
        ]
    )


def _assemble(lines: Sequence[tuple[int, int, str] | tuple[str]]) -> bytes:
    """Instructions (code, operand, label to jump to when true) and label lines to the kernel's 8-byte form."""
    labels: dict[str, int] = {}
    instructions: list[tuple[int, int, str]] = []
    for line in lines:
        if len(line) == 1:
            labels[line[0]] = len(instructions)
        else:
            instructions.append(line)
    return b"".join(
        struct.pack("<HBBI", code, labels[label] - index - 1 if label else 0, 0, operand)
        for index, (code, operand, label) in enumerate(instructions)
    )
