"""From a task directory to a prepared sandbox, and from what the agent left to a reward.

Invariants
- The verdict comes from a fresh sandbox: only declared artifacts cross into it, the hidden tests are put there last,
  and the reward file is read from there. Nothing the agent wrote outside its artifacts can be seen, run or read.
- Solution and tests never enter the agent's sandbox.
- A reward is a finite number in [0, 1], or there is none: everything else is an InfraError, never a 0.
- The verifier's sandbox is dead when `grade` returns or raises.

Asymmetries: what the agent failed to leave (an absent, oversized or odd artifact) is left out and the tests judge what
is there; what the verifier failed to leave is our failure. As in Harbor, the exit code of `test.sh` means nothing.
A `setup.sh` that fails is the task's fault (TaskError), one that does not end is ours (InfraError).
"""

from __future__ import annotations

import asyncio
import json
import logging
import posixpath
import re
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness_adapters.errors import InfraError, TaskError
from harness_adapters.sandbox.archive import pack, unpack
from harness_adapters.sandbox.protocol import ExecResult, Limits, Sandbox, SandboxPathError, SandboxSpec
from harness_adapters.tasks.format import Task, task_files
from harness_adapters.tasks.toml_rules import one_line, shown

log = logging.getLogger(__name__)

TESTS = "/tests"
VERIFIER_LOGS = "/logs/verifier"
MAX_REWARD_BYTES = 1 << 16
MAX_VERIFIER_LOGS = 16 << 20
"""Bytes of everything the verifier leaves beside the reward file."""

_NOT_PLACED = ("Dockerfile", "setup.sh")
_SETUP_FOLDER = "/tmp/setup"
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_OUTPUT_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict: the reward in [0, 1], the parts the verifier reported, and the end of what it printed."""

    reward: float
    parts: Mapping[str, float]
    output: str


async def prepare(sandbox: Sandbox, task: Task, *, timeout: float) -> None:
    """Place the task's environment files in its working directory and run its `setup.sh`, if it has one.

    `timeout` is in seconds, over all of it. Raises TaskError when the set-up fails, InfraError when it does not end.
    """
    files = _host_files(task.path / "environment")
    placed = {name: entry for name, entry in files.items() if name not in _NOT_PLACED}
    async with _within(timeout, f"preparing task {task.id}"):
        await sandbox.put(pack(placed), task.workdir)
        if "setup.sh" in files:
            await _run_setup(sandbox, task, files["setup.sh"], min(timeout, task.build_timeout))


async def collect(sandbox: Sandbox, task: Task) -> Mapping[str, bytes]:
    """The declared artifacts as tars, by path; one that is absent, too large or not plain is left out.

    A directory's tar starts with an entry for the directory itself, a file's does not: `grade` restores each as what
    it was. Raises InfraError when the sandbox fails.
    """
    artifacts: dict[str, bytes] = {}
    for path in task.artifacts:
        try:
            tar = await sandbox.get(path)
        except SandboxPathError as error:
            log.info("task %s: artifact %s is not handed in: %s", task.id, path, error.message)
            continue
        is_folder = (await sandbox.exec(["test", "-d", path], cwd="/", timeout=10.0)).returncode == 0
        artifacts[path] = _ROOT_ENTRY + tar if is_folder else tar
    return artifacts


async def grade(
    open_sandbox: Callable[[SandboxSpec], Sandbox], task: Task, artifacts: Mapping[str, bytes], *, timeout: float
) -> Grade:
    """Judge `artifacts` (from `collect`) in a fresh sandbox, which is dead afterwards.

    `timeout` in seconds covers everything but the killing; `test.sh` has the task's own limit within it. Raises
    InfraError when no valid reward comes out, TaskError for an artifact that the task does not declare.
    """
    for path in artifacts:
        if path not in task.artifacts:
            raise TaskError(
                f"task {task.id} does not declare the artifact {one_line(path)}", "collect declared ones only"
            )
    limits = Limits(memory_mb=task.memory_mb) if task.memory_mb else Limits()
    sandbox = open_sandbox(SandboxSpec(limits=limits))
    try:
        async with _within(timeout, f"verifying task {task.id}"):
            await sandbox.start()
            for path, tar in artifacts.items():
                await sandbox.put(tar, path if tar.startswith(_ROOT_ENTRY) else posixpath.dirname(path))
            await sandbox.put(pack({}), VERIFIER_LOGS)
            await sandbox.put(pack(_host_files(task.path / "tests")), TESTS)
            result = await sandbox.exec(["sh", f"{TESTS}/test.sh"], cwd=TESTS, timeout=task.verifier_timeout)
            return await _read_grade(sandbox, task, result)
    finally:
        await sandbox.kill()


async def _run_setup(sandbox: Sandbox, task: Task, script: tuple[bytes, int], timeout: float) -> None:
    await sandbox.put(pack({"setup.sh": script}), _SETUP_FOLDER)
    result = await sandbox.exec(["sh", f"{_SETUP_FOLDER}/setup.sh"], cwd=task.workdir, timeout=timeout)
    await sandbox.exec(["rm", "-rf", _SETUP_FOLDER], cwd="/", timeout=30.0)
    if result.timed_out:
        raise InfraError(
            f"setup.sh of task {task.id} did not end in {timeout:g} s", "raise environment.build_timeout_sec"
        )
    if result.limit:
        raise InfraError(f"setup.sh of task {task.id} hit the {result.limit} limit", "raise the sandbox's limits")
    if result.returncode != 0:
        raise TaskError(
            f"setup.sh of task {task.id} failed with {result.returncode}: {_last_words(result)}",
            "mend the task's setup.sh",
        )


async def _read_grade(sandbox: Sandbox, task: Task, result: ExecResult) -> Grade:
    """The verdict that `test.sh` left in its sandbox. Raises InfraError when there is no valid one."""
    if result.timed_out:
        raise InfraError(
            f"verifier of task {task.id} did not end in {task.verifier_timeout:g} s", "see verifier.timeout_sec"
        )
    try:
        left = unpack(await sandbox.get(VERIFIER_LOGS, limit=MAX_VERIFIER_LOGS))
    except SandboxPathError as error:
        _no_reward(task, error.message)
    name = "reward.json" if "reward.json" in left else "reward.txt"
    if name not in left:
        _no_reward(task, f"no reward file, exit code {result.returncode}: {_last_words(result)}")
    if len(left[name]) > MAX_REWARD_BYTES:
        _no_reward(task, f"{name} is larger than {MAX_REWARD_BYTES} bytes")
    parts = _parts(task, name, left[name])
    reward = parts.get("reward", next(iter(parts.values())))
    output = (result.stdout + result.stderr).decode(errors="replace")
    return Grade(reward=reward, parts=parts, output=output[-_OUTPUT_CHARACTERS:])


def _parts(task: Task, name: str, data: bytes) -> dict[str, float]:
    """Named rewards, each finite in [0, 1]; one of them is `reward` or there is only one."""
    text = data.decode(errors="replace").strip()
    if name == "reward.txt":
        values: Any = {"reward": float(text)} if _NUMBER.fullmatch(text) else None
    else:
        values = _json(text)
        if isinstance(values, int | float):
            values = {"reward": values}
    if not isinstance(values, dict) or not values:
        _no_reward(task, f"{name} holds {shown(text)}")
    for key, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            _no_reward(task, f"{name} gives {shown(key)} as {shown(value)}, not a number in [0, 1]")
    if "reward" not in values and len(values) > 1:
        _no_reward(task, f"{name} names {len(values)} rewards and none of them is 'reward'")
    return {key: float(value) for key, value in values.items()}


def _json(text: str) -> Any:
    """Parsed JSON; None for what is not JSON. NaN and infinities parse and are refused by value."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _no_reward(task: Task, problem: str) -> NoReturn:
    raise InfraError(f"verifier wrote no valid reward for task {task.id}: {problem}", "mend the task's tests/test.sh")


def _host_files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Relative name to bytes and mode of every file. Raises TaskError for what cannot be read or is not a file."""
    files: dict[str, tuple[bytes, int]] = {}
    for name, path in task_files(folder).items():
        try:
            files[name] = (path.read_bytes(), path.stat().st_mode & 0o777)
        except OSError as error:
            raise TaskError(f"cannot read {one_line(path)}: {error.strerror}", "check its permissions") from None
    return files


def _last_words(result: ExecResult) -> str:
    text = (result.stderr or result.stdout).decode(errors="replace").strip()
    return one_line(text[-200:]) or "it printed nothing"


@asynccontextmanager
async def _within(seconds: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise InfraError(f"{what} did not end in {seconds:g} s", "the machine may be overloaded") from None


def _root_entry() -> bytes:
    entry = tarfile.TarInfo(".")
    entry.type = tarfile.DIRTYPE
    entry.mode = 0o755
    return entry.tobuf(tarfile.PAX_FORMAT)


_ROOT_ENTRY = _root_entry()
