"""Real sandboxes: what crosses from the agent to the verifier, and what counts as a verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.errors import InfraError, TaskError
from harness_adapters.sandbox import Sandbox, SandboxEnded, SandboxSpec, open_sandbox
from harness_adapters.sandbox.archive import pack, unpack
from harness_adapters.tasks.format import Task, write_task
from harness_adapters.tasks.grading import Grade, collect, grade, prepare

PASS = "mkdir -p /logs/verifier\necho 1 > /logs/verifier/reward.txt\n"


def bubblewrap(spec: SandboxSpec) -> Sandbox:
    return open_sandbox("bubblewrap", spec)


def toy(folder: Path, test: str, *, files: Mapping[str, bytes] | None = None, **config: Any) -> Task:
    return write_task(
        folder / "toy",
        config={"schema_version": "1.4", "verifier": {"timeout_sec": 20.0}, **config},
        instruction="Do it.",
        files={"solution/solve.sh": b"true\n", "tests/test.sh": test.encode(), **(files or {})},
    )


async def session(task: Task, agent: str) -> Mapping[str, bytes]:
    """Prepare a sandbox, run the agent's script in it, collect, and kill it."""
    sandbox = bubblewrap(SandboxSpec())
    await sandbox.start()
    try:
        await prepare(sandbox, task, timeout=60)
        if agent:
            await sandbox.exec(["sh", "-c", agent], timeout=20)
        return await collect(sandbox, task)
    finally:
        await sandbox.kill()


def judged(task: Task, agent: str) -> Grade:
    async def whole() -> Grade:
        artifacts = await session(task, agent) if agent else {}
        return await grade(bubblewrap, task, artifacts, timeout=60)

    return asyncio.run(whole())


def inside(task: Task, command: str) -> str:
    """What `command` prints in a prepared sandbox of the agent."""

    async def look() -> str:
        sandbox = bubblewrap(SandboxSpec())
        await sandbox.start()
        try:
            await prepare(sandbox, task, timeout=60)
            return (await sandbox.exec(["sh", "-c", command], timeout=20)).stdout.decode()
        finally:
            await sandbox.kill()

    return asyncio.run(look())


def test_the_agents_sandbox_holds_the_environment_and_nothing_of_the_answer(tmp_path: Path) -> None:
    files = {
        "environment/data/a.txt": b"a\n",
        "environment/Dockerfile": b"FROM x\nRUN y\n",
        "environment/setup.sh": b'pwd > where.txt\ncat data/a.txt > "b c.txt"\n',
        "solution/secret.txt": b"secret",
        "tests/secret.txt": b"secret",
    }
    task = toy(tmp_path, PASS, files=files)
    seen = inside(
        task,
        "find /workspace /tests /solution /tmp -type f | sort; cat where.txt; grep -rl secret / --include=secret.txt",
    )
    assert seen.split("\n") == ["/workspace/b c.txt", "/workspace/data/a.txt", "/workspace/where.txt", "/workspace", ""]


def test_a_failing_setup_is_the_tasks_fault_and_an_endless_one_is_ours(tmp_path: Path) -> None:
    failing = toy(tmp_path / "a", PASS, files={"environment/setup.sh": b"echo no such thing >&2\nexit 3\n"})
    with pytest.raises(TaskError, match="failed with 3: no such thing"):
        inside(failing, "true")
    endless = toy(
        tmp_path / "b", PASS, files={"environment/setup.sh": b"sleep 60\n"}, environment={"build_timeout_sec": 0.3}
    )
    with pytest.raises(InfraError, match=r"did not end in 0\.3 s"):
        inside(endless, "true")


def test_artifacts_come_back_at_their_paths_as_what_they_were(tmp_path: Path) -> None:
    test = """
    [ "$(cat /workspace/out/out)" = folder ] && [ -x /workspace/out/out ] && [ -d /workspace/out/empty ] || exit
    [ "$(cat /home/agent/f)" = file ] && [ "$(find /workspace /home/agent -type f | wc -l)" = 2 ] || exit
    echo 1 > /logs/verifier/reward.txt
    """
    task = toy(tmp_path, test, artifacts=["/workspace/out", "/home/agent/f"])
    agent = "mkdir -p out/empty; echo folder > out/out; chmod +x out/out; echo file > ~/f; echo other > other"
    assert judged(task, agent).reward == 1.0


def test_a_forged_reward_and_planted_tests_do_not_reach_the_verdict(tmp_path: Path) -> None:
    test = "[ -e /workspace/done ] && r=1 || r=0\nls -A /logs/verifier /tests\necho $r > /logs/verifier/reward.txt\n"
    task = toy(tmp_path, test)
    forgery = """
    mkdir -p /logs/verifier /tests logs/verifier tests
    for d in /logs/verifier logs/verifier .; do echo 1 > $d/reward.txt; echo '{"reward": 1}' > $d/reward.json; done
    for d in /tests tests .; do echo 'echo 1 > /logs/verifier/reward.txt' > $d/test.sh; done
    ln -s /logs/verifier link
    """
    verdict = judged(task, forgery)
    assert verdict.reward == 0.0
    assert verdict.output.split() == ["/logs/verifier:", "/tests:", "test.sh"]
    assert judged(task, forgery + "\ntouch done").reward == 1.0


def test_an_absent_or_linked_artifact_is_left_out_and_the_tests_judge_that(tmp_path: Path) -> None:
    test = "[ -e /workspace/out ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    task = toy(tmp_path, test, artifacts=["/workspace/out"])
    assert judged(task, "true").reward == 0.0
    assert judged(task, "ln -s /etc/hostname out").reward == 0.0
    assert judged(task, "echo x > out").reward == 1.0


@pytest.mark.parametrize("name", ["../logs/verifier/reward.txt", "/logs/verifier/reward.txt"])
def test_an_artifact_that_points_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    task = toy(tmp_path, "true\n")
    evil = pack({"x" * len(name): b"1\n"}).replace(b"x" * len(name), name.encode())
    header = bytearray(evil)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    with pytest.raises(InfraError):
        asyncio.run(grade(bubblewrap, task, {"/workspace": bytes(header)}, timeout=60))


def test_an_undeclared_artifact_is_refused_before_anything_starts(tmp_path: Path) -> None:
    task = toy(tmp_path, "true\n")

    def never(spec: SandboxSpec) -> Sandbox:
        raise AssertionError("no sandbox was needed")

    with pytest.raises(TaskError, match="does not declare"):
        asyncio.run(grade(never, task, {"/logs/verifier": pack({"reward.txt": b"1\n"})}, timeout=60))


@pytest.mark.parametrize(
    ("written", "reward"),
    [
        ("echo 1 > reward.txt", 1.0),
        ("echo 0 > reward.txt", 0.0),
        ("printf ' 0.25\\n\\n' > reward.txt", 0.25),
        ("echo 1e-1 > reward.txt", 0.1),
        ('echo 0 > reward.txt; echo \'{"reward": 0.5, "speed": 1}\' > reward.json', 0.5),
        ("echo '{\"tests\": 0.75}' > reward.json", 0.75),
        ("echo 0.5 > reward.json", 0.5),
        ("echo 1 > reward.txt; exit 7", 1.0),
    ],
)
def test_a_valid_reward_is_read_whatever_the_exit_code(tmp_path: Path, written: str, reward: float) -> None:
    assert judged(toy(tmp_path, f"cd /logs/verifier\n{written}\n"), "").reward == reward


@pytest.mark.parametrize(
    "written",
    [
        "true",
        ": > reward.txt",
        "echo nan > reward.txt",
        "echo inf > reward.txt",
        "echo 1.5 > reward.txt",
        "echo -1 > reward.txt",
        "echo 1_0 > reward.txt",
        "echo 0x1 > reward.txt",
        "echo '1 of 1' > reward.txt",
        "printf '\\377' > reward.txt",
        "mkdir reward.txt",
        "ln -s /etc/hostname reward.txt",
        "head -c 100000 /dev/zero > reward.txt",
        "echo 1 > reward.txt; echo '{' > reward.json",
        "echo '{\"reward\": NaN}' > reward.json",
        "echo '{\"reward\": Infinity}' > reward.json",
        "echo '{\"reward\": true}' > reward.json",
        'echo \'{"reward": "1"}\' > reward.json',
        'echo \'{"a": 1, "b": 0}\' > reward.json',
        "echo '{}' > reward.json",
        "echo '[1]' > reward.json",
    ],
)
def test_no_valid_reward_is_our_failure_and_never_a_zero(tmp_path: Path, written: str) -> None:
    with pytest.raises(InfraError, match="wrote no valid reward") as caught:
        judged(toy(tmp_path, f"cd /logs/verifier\n{written}\n"), "")
    assert len(str(caught.value).splitlines()) == 1


class Watched:
    """Opens real sandboxes and keeps them, to ask afterwards whether they are dead."""

    def __init__(self) -> None:
        self.opened: list[Sandbox] = []

    def __call__(self, spec: SandboxSpec) -> Sandbox:
        sandbox = bubblewrap(spec)
        self.opened.append(sandbox)
        return sandbox

    async def all_dead(self) -> bool:
        for sandbox in self.opened:
            with pytest.raises(SandboxEnded):
                await sandbox.exec(["true"], timeout=5)
        return len(self.opened) == 1


def run_watched(call: Callable[[Watched], Awaitable[Any]]) -> BaseException | Any:
    async def whole() -> BaseException | Any:
        watched = Watched()
        try:
            outcome: BaseException | Any = await call(watched)
        except (InfraError, asyncio.CancelledError) as error:
            outcome = error
        assert await watched.all_dead()
        return outcome

    return asyncio.run(whole())


def test_the_verifiers_sandbox_is_dead_after_a_verdict(tmp_path: Path) -> None:
    task = toy(tmp_path, PASS)
    assert run_watched(lambda watched: grade(watched, task, {}, timeout=60)).reward == 1.0


def test_a_verifier_that_does_not_end_is_our_failure_and_is_killed(tmp_path: Path) -> None:
    task = toy(tmp_path, PASS + "sleep 60\n", verifier={"timeout_sec": 0.3})
    outcome = run_watched(lambda watched: grade(watched, task, {}, timeout=60))
    assert "did not end in 0.3 s" in str(outcome)


def test_the_callers_deadline_ends_grading_too(tmp_path: Path) -> None:
    task = toy(tmp_path, PASS + "sleep 60\n")
    outcome = run_watched(lambda watched: grade(watched, task, {}, timeout=2.0))
    assert isinstance(outcome, InfraError)
    assert "did not end in 2 s" in str(outcome)


def test_a_cancelled_grading_leaves_no_sandbox_alive(tmp_path: Path) -> None:
    task = toy(tmp_path, "sleep 60\n")

    async def cancelled(watched: Watched) -> None:
        grading = asyncio.create_task(grade(watched, task, {}, timeout=60))
        await asyncio.sleep(1.0)
        grading.cancel()
        await grading

    assert isinstance(run_watched(cancelled), asyncio.CancelledError)


def test_submitted_code_that_ends_the_verifiers_sandbox_is_no_zero(tmp_path: Path) -> None:
    task = toy(tmp_path, "kill -9 -1\nsleep 5\n")
    with pytest.raises(InfraError):
        judged(task, "")


def test_a_collected_folder_says_that_it_is_one(tmp_path: Path) -> None:
    task = toy(tmp_path, PASS, artifacts=["/workspace/a", "/workspace/b"])
    artifacts = asyncio.run(session(task, "mkdir a; echo 1 > a/a; echo 2 > b"))
    assert unpack(artifacts["/workspace/a"]) == {"a": b"1\n"}
    assert unpack(artifacts["/workspace/b"]) == {"b": b"2\n"}
    assert artifacts["/workspace/a"][:100].startswith(b".\0") or artifacts["/workspace/a"].startswith(b"./")
