"""What a program inside may use up, and what happens to the sandbox and the host when it tries."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness_adapters.sandbox import (
    ExecResult,
    Limits,
    Sandbox,
    SandboxEnded,
    SandboxSpec,
    bubblewrap,
    execd,
    launcher,
    limits,
)

Inside = Callable[..., Any]
SMALL = SandboxSpec(limits=Limits(memory_mb=200, processes=40, file_mb=16))


def sh(sandbox: Sandbox, script: str, **options: Any) -> Any:
    return sandbox.exec(["bash", "-c", script], **{"timeout": 30, **options})


def python(sandbox: Sandbox, code: str) -> Any:
    interpreter = launcher.interpreter()
    return sandbox.exec([interpreter.path, "-I", "-S", "-c", code], env=dict(interpreter.env), timeout=30)


async def usable(sandbox: Sandbox) -> bool:
    done = await sh(sandbox, "echo fine")
    return bool(done.stdout == b"fine\n")


@pytest.mark.parametrize(
    "hog",
    [
        "import time; x = bytearray(300 << 20); time.sleep(20)",
        "import mmap, time; m = mmap.mmap(-1, 300 << 20); m.write(b'x' * (300 << 20)); time.sleep(20)",
    ],
    ids=["private", "shared"],
)
def test_a_memory_hog_alone_is_killed_and_named(inside: Inside, hog: str) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        bystander = asyncio.create_task(sh(sandbox, "sleep 2; echo lived"))
        done: ExecResult = await python(sandbox, hog)
        assert (done.returncode, done.limit) == (-9, "memory")
        assert (await bystander).stdout == b"lived\n"
        assert await usable(sandbox)

    inside(scenario, spec=SMALL)


def test_a_fork_bomb_is_ended_and_the_sandbox_goes_on(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        done: ExecResult = await sh(sandbox, ":(){ :|:& };:; sleep 20")
        assert done.limit == "processes"
        assert await usable(sandbox)
        # Killed at once; that they are gone from the table takes as long as it takes to reap hundreds of them.
        count = "ls -d /proc/[0-9]* 2>/dev/null | wc -l"
        left = await sh(
            sandbox, f"for i in $(seq 100); do n=$({count}); [ $n -lt 12 ] && break; sleep 0.1; done; echo $n"
        )
        assert int(left.stdout) < 12

    inside(scenario, spec=SMALL)


def test_what_a_fork_bomb_left_in_the_table_ends_no_later_command(inside: Inside) -> None:
    """Hundreds of processes take a while to be reaped; the watcher must not take the dying for a new bomb."""

    async def scenario(sandbox: Sandbox) -> None:
        for _ in range(3):
            assert (await sh(sandbox, ":(){ :|:& };:; sleep 20")).limit == "processes"
            for _ in range(4):
                done: ExecResult = await sh(sandbox, "sleep 0.1; echo fine")
                assert (done.stdout, done.limit) == (b"fine\n", "")

    inside(scenario, spec=SMALL)


def test_a_supervisor_killed_while_its_child_holds_the_status_pipe_counts_as_killed() -> None:
    reading, writing = os.pipe()
    try:
        os.set_blocking(reading, False)
        assert execd.Command(1, 2, reading).returncode() == -9
    finally:
        os.close(writing)


def test_threads_count_as_processes(inside: Inside) -> None:
    code = "import threading, time; [threading.Thread(target=time.sleep, args=(20,)).start() for _ in range(60)]"

    async def scenario(sandbox: Sandbox) -> None:
        done: ExecResult = await python(sandbox, code)
        assert done.limit == "processes" or b"can't start new thread" in done.stderr

    inside(scenario, spec=SMALL)


def test_one_file_too_large_is_an_error_the_program_names(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        done = await sh(sandbox, "dd if=/dev/zero of=/workspace/fill bs=1M count=40; echo status $?")
        assert b"File too large" in done.stderr
        assert done.stdout == b"status 1\n"

    inside(scenario, spec=SMALL)


def test_a_full_tmp_is_named_and_can_be_emptied(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        done = await sh(sandbox, "for i in 1 2 3; do dd if=/dev/zero of=/tmp/fill$i bs=1M count=12; done")
        assert b"No space left on device" in done.stderr
        assert (await sh(sandbox, "rm /tmp/fill*; echo x > /tmp/ok && cat /tmp/ok")).stdout == b"x\n"

    inside(scenario, spec=SMALL)


def test_files_beyond_the_memory_limit_end_the_sandbox_with_a_reason(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        with pytest.raises(SandboxEnded, match="files written inside"):
            await sh(
                sandbox, "for i in $(seq 100); do dd if=/dev/zero of=/workspace/f$i bs=1M count=15; done; sleep 20"
            )

    inside(scenario, spec=SMALL)


def test_a_flood_of_output_neither_fills_the_host_nor_takes_its_loop(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> float:
        flood = asyncio.create_task(sh(sandbox, "yes", timeout=2, output_limit=1000))
        worst = 0.0
        while not flood.done():
            started = time.monotonic()
            await asyncio.sleep(0.01)
            worst = max(worst, time.monotonic() - started)
        result = flood.result()
        assert (result.timed_out, result.truncated, len(result.stdout)) == (True, True, 1000)
        return worst

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert inside(scenario) < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_a_background_flood_is_bounded_after_its_command_ended(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        assert (await sh(sandbox, "yes & echo started >&2")).returncode == 0
        await asyncio.sleep(0.5)
        assert await usable(sandbox)

    inside(scenario)


def test_a_server_left_in_the_background_may_still_write_its_log(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        await sh(sandbox, "(sleep 0.5; echo log line; echo ok > /workspace/after) & true")
        await asyncio.sleep(1.2)
        assert (await sh(sandbox, "cat after")).stdout == b"ok\n"

    inside(scenario)


def test_a_timed_out_command_takes_its_daemons_along_and_leaves_others_alone(inside: Inside) -> None:
    script = "(setsid bash -c 'trap \"\" TERM; sleep 71 & sleep 72' &) ; setsid sleep 73 & set -m; sleep 74 & fg"

    async def scenario(sandbox: Sandbox) -> None:
        other = asyncio.create_task(sh(sandbox, "setsid sleep 3 & sleep 2; echo whole"))
        done = await sh(sandbox, script, timeout=1)
        assert done.timed_out
        left = (await sh(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout.decode()
        assert [n for n in (71, 72, 73, 74) if f"sleep {n}" in left] == []
        assert (await other).stdout == b"whole\n"

    inside(scenario)


def test_killing_the_executor_ends_the_sandbox_and_is_told_apart(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        started = time.monotonic()
        with pytest.raises(SandboxEnded, match="died"):
            await sh(sandbox, "kill -9 2; sleep 60", timeout=60)
        with pytest.raises(SandboxEnded):
            await sandbox.listen(18000)
        assert time.monotonic() - started < 5

    inside(scenario)


def test_stopping_the_executor_ends_the_sandbox_by_the_hosts_clock(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "REPLY_SECONDS", 1.0)

    async def scenario(sandbox: Sandbox) -> None:
        with pytest.raises(SandboxEnded, match="stopped answering"):
            await sh(sandbox, "kill -STOP 2; sleep 60", timeout=1)

    inside(scenario)


def test_killing_everything_one_may_kill_is_survived_by_the_host(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        with pytest.raises(SandboxEnded):
            await sh(sandbox, "kill -9 -1; sleep 60", timeout=60)

    inside(scenario)


def test_the_words_follow_the_limits() -> None:
    said = limits.enforced(Limits(memory_mb=77, processes=88, file_mb=99))
    assert ("77" in said["memory"], "88" in said["processes"], "99" in said["file"]) == (True, True, True)
