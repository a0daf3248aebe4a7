"""The filter decides as its list says, on both architectures, by running it through a small BPF machine."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.sandbox import seccomp

ALLOW, DENY, MISSING = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def decide(program: bytes, number: int, arch: int, argument: int = 0) -> int:
    """What the kernel would return for one call: an interpreter of the instructions used."""
    data = struct.pack("<IIQQ", number, arch, 0, argument)
    instructions = list(struct.iter_unpack("<HBBI", program))
    word = at = 0
    while True:
        code, yes, no, operand = instructions[at]
        at += 1
        if code == 0x20:
            word = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x06:
            return int(operand)
        else:
            holds = {0x15: word == operand, 0x35: word >= operand, 0x45: bool(word & operand)}[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", ARCHES)
def test_listed_calls_are_denied_and_everyday_calls_are_not(machine: str) -> None:
    program, arch = seccomp.deny_list(machine), ARCHES[machine]
    keyctl, bpf, mount, openat, execve, ptrace = {
        "x86_64": (250, 321, 165, 257, 59, 101),
        "aarch64": (219, 280, 40, 56, 221, 117),
    }[machine]
    assert [decide(program, number, arch) for number in (keyctl, bpf, mount, 425, 429)] == [DENY] * 5
    assert [decide(program, number, arch) for number in (openat, execve, ptrace)] == [ALLOW] * 3
    assert decide(program, 435, arch) == MISSING


@pytest.mark.parametrize("machine", ARCHES)
def test_clone_may_make_threads_but_no_namespaces(machine: str) -> None:
    program, arch = seccomp.deny_list(machine), ARCHES[machine]
    clone = {"x86_64": 56, "aarch64": 220}[machine]
    thread = 0x3D0F00
    assert decide(program, clone, arch, thread) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(program, clone, arch, thread | flag) == DENY


@given(st.sampled_from(sorted(ARCHES)), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_foreign_architecture_gets_no_call_through(machine: str, number: int, arch: int) -> None:
    if arch != ARCHES[machine]:
        assert decide(seccomp.deny_list(machine), number, arch) == DENY


@given(st.integers(0x40000000, 2**32 - 1))
def test_x32_calls_are_denied(number: int) -> None:
    assert decide(seccomp.deny_list("x86_64"), number, ARCHES["x86_64"]) == DENY


def test_an_unknown_architecture_has_no_filter() -> None:
    assert seccomp.deny_list("riscv64") == b""
