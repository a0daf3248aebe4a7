"""What every kind of sandbox does alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.errors import ConfigError, InfraError
from harness_adapters.sandbox import (
    Mount,
    Sandbox,
    SandboxEnded,
    SandboxPathError,
    SandboxSpec,
    archive,
    open_sandbox,
)

InEach = Callable[..., Any]


def sh(sandbox: Sandbox, script: str, **options: Any) -> Any:
    return sandbox.exec(["bash", "-c", script], **{"timeout": 20, **options})


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="bubblewrap, inprocess"):
        open_sandbox("docker", SandboxSpec())


def test_streams_status_input_and_environment_arrive(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        done = await sh(sandbox, 'cat; echo "$NAME" >&2; exit 7', stdin=b"in\x00put", env={"NAME": "värde"})
        assert (done.returncode, done.stdout, done.stderr) == (7, b"in\x00put", "värde\n".encode())
        assert not done.timed_out
        assert not done.truncated

    in_each(scenario)


def test_a_signal_is_a_negative_status_and_a_missing_program_127(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        assert (await sh(sandbox, "kill -TERM $$")).returncode == -15
        missing = await sandbox.exec(["no-such-program"], timeout=10)
        assert missing.returncode == 127
        assert b"no-such-program" in missing.stderr

    in_each(scenario)


def test_a_slow_command_is_killed_and_says_what_it_wrote(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        started = time.monotonic()
        done = await sh(sandbox, "echo early; sleep 60", timeout=0.5)
        assert (done.returncode, done.timed_out, done.stdout) == (None, True, b"early\n")
        assert time.monotonic() - started < 10

    in_each(scenario)


def test_output_beyond_the_limit_is_dropped_and_the_command_goes_on(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        done = await sh(sandbox, "head -c 3000000 /dev/zero; echo end >&2; exit 4", output_limit=1000)
        assert (done.returncode, len(done.stdout), done.truncated, done.stderr) == (4, 1000, True, b"end\n")

    in_each(scenario)


def test_output_up_to_a_large_limit_is_whole(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        done = await sh(sandbox, "head -c 5000000 /dev/zero", output_limit=5_000_000)
        assert (len(done.stdout), done.truncated) == (5_000_000, False)

    in_each(scenario)


def test_a_background_process_holding_the_output_does_not_hang_the_command(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        started = time.monotonic()
        done = await sh(sandbox, "sleep 30 & echo now")
        assert (done.returncode, done.stdout) == (0, b"now\n")
        assert time.monotonic() - started < 10

    in_each(scenario)


def test_many_commands_run_at_once(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        started = time.monotonic()
        done = await asyncio.gather(*(sh(sandbox, f"sleep 0.5; exit {n}") for n in range(12)))
        assert [result.returncode for result in done] == list(range(12))
        assert time.monotonic() - started < 5

    in_each(scenario)


def test_a_cancelled_command_is_killed(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        command = asyncio.create_task(sh(sandbox, "sleep 0.7; touch survived"))
        await asyncio.sleep(0.3)
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        await asyncio.sleep(0.8)
        assert (await sandbox.exec(["ls"], timeout=10)).stdout == b""

    in_each(scenario)


def test_files_go_in_and_come_out(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        files = {"a/b.txt": b"text", "run.sh": (b"#!/bin/sh\necho ran", 0o755)}
        await sandbox.put(archive.pack(files), "/workspace/new/deep")
        assert (await sandbox.exec(["./run.sh"], cwd="/workspace/new/deep", timeout=10)).stdout == b"ran\n"
        whole = archive.unpack(await sandbox.get("/workspace/new"))
        assert whole == {"deep/a/b.txt": b"text", "deep/run.sh": b"#!/bin/sh\necho ran"}
        assert archive.unpack(await sandbox.get("/workspace/new/deep/a/b.txt")) == {"b.txt": b"text"}

    in_each(scenario)


def test_links_inside_are_neither_followed_nor_carried_out(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        await sh(sandbox, "mkdir real; echo x > real/x; ln -s real link; ln -s /etc/passwd secret; mkfifo fifo")
        assert archive.unpack(await sandbox.get("/workspace")) == {"real/x": b"x\n"}
        with pytest.raises(SandboxPathError):
            await sandbox.get("/workspace/link/x")
        with pytest.raises(SandboxPathError):
            await sandbox.get("/workspace/secret")
        await sandbox.put(archive.pack({"link/y": b"y"}), "/workspace")
        assert (await sandbox.exec(["ls", "real"], timeout=10)).stdout == b"x\n"

    in_each(scenario)


@pytest.mark.parametrize("path", ["/workspace/absent", "relative", "/workspace/../etc", "/"])
def test_an_unusable_path_is_named(in_each: InEach, path: str) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        with pytest.raises(SandboxPathError, match=r"pack"):
            await sandbox.get(path)

    in_each(scenario)


def test_a_tree_larger_than_the_limit_is_refused(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        await sh(sandbox, "head -c 200000 /dev/zero > big")
        with pytest.raises(SandboxPathError, match="limit"):
            await sandbox.get("/workspace/big", limit=100_000)

    in_each(scenario)


def test_a_listener_inside_is_served_by_this_process(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"echo " + await reader.readline())
            writer.close()

        server = await asyncio.start_server(answer, sock=await sandbox.listen(18123))
        try:
            done = await sh(sandbox, "exec 3<>/dev/tcp/127.0.0.1/18123; echo hi >&3; cat <&3")
            assert done.stdout == b"echo hi\n"
            with pytest.raises(InfraError, match=r"in use|listen"):
                await sandbox.listen(18123)
        finally:
            server.close()

    in_each(scenario)


def test_kill_is_final_and_may_be_repeated(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        running = asyncio.create_task(sh(sandbox, "sleep 60"))
        await asyncio.sleep(0.2)
        await asyncio.gather(sandbox.kill(), sandbox.kill())
        await sandbox.kill()
        with pytest.raises(SandboxEnded):
            await running
        with pytest.raises(SandboxEnded):
            await sh(sandbox, "true")
        with pytest.raises(InfraError):
            await sandbox.start()

    in_each(scenario)


def test_mounts_are_there_and_a_missing_source_is_named(in_each: InEach, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mounted")

    async def scenario(sandbox: Sandbox) -> None:
        assert (await sandbox.exec(["cat", "/opt/thing/file"], timeout=10)).stdout == b"mounted"

    in_each(scenario, spec=SandboxSpec(mounts=(Mount(tmp_path, "/opt/thing"),)))
    with pytest.raises(InfraError, match="absent"):
        in_each(scenario, spec=SandboxSpec(mounts=(Mount(tmp_path / "absent", "/opt/thing"),)))


def test_every_limit_is_said_in_words(in_each: InEach) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        assert {"memory", "processes", "file"} <= set(sandbox.limits_enforced())

    in_each(scenario)
