"""A program that makes one run undisturbed and others that are killed and resumed, over and over, and tells how.

    killed_runs.py FOLDER SEED KILLS

writes FOLDER/told.json; a run NAME lies in FOLDER/NAME/, and what it said in FOLDER/NAME.log.

Every life of a run is a child forked off this one process, which holds all modules a run imports and no thread: an
import of everything would take longer than a life. The runs have every stage (oracle sessions, warm start, GRPO,
publishing, evaluation, report) and real parts: bubblewrap, gateway, engine, trainer. The model is tiny and random, so
the task is one that it can meet by chance: the bytes of what it says at last add up to an even number.

Kills are of two kinds. *timed*: from outside, a random while after the run's log came to a random length. *aimed*: the
child kills itself at a random one of the moments at which files are moved, flushed or written, before it, after it or
in the middle of it.

Orphans of a killed child become children of this process (it is their sub-reaper), so that none can hide.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness_adapters.config import RunConfig
from harness_adapters.events import EventLog, read_events, standing
from harness_adapters.harnesses.protocol import Launch
from harness_adapters.harnesses.scripted import Scripted

PR_SET_CHILD_SUBREAPER = 36
DRAIN_SECONDS = 120.0
LIFE_SECONDS = 600.0

JUDGE = b"""import json
try:
    said = json.loads(open("/workspace/said.jsonl").read().splitlines()[-1])["content"] or ""
except (OSError, ValueError, IndexError):
    said = "\\1"
print(1 - sum(map(ord, said)) % 2)
"""
TEST = b"#!/bin/sh\nmkdir -p /logs/verifier\npython3 -I /tests/judge.py > /logs/verifier/reward.txt\n"


class Telling(Scripted):
    """The scripted harness with its transcript in the workspace, where the verifier finds what the model said."""

    def launch(self, instruction: str, *, session_id: str, alias: str) -> Launch:
        launch = super().launch(instruction, session_id=session_id, alias=alias)
        return replace(launch, argv=("sh", "-c", 'exec "$@" > /workspace/said.jsonl', "sh", *launch.argv))


def build(folder: Path) -> None:
    """The model and the tasks of all runs."""
    from harness_adapters.tasks.format import write_task
    from harness_adapters.testing import byte_tokenizer
    from harness_adapters.testing.tiny_models import save_tiny_llama

    model = save_tiny_llama(folder / "model", vocab_size=259, max_position_embeddings=2048, initializer_range=0.08)
    byte_tokenizer().save(str(model / "tokenizer.json"))
    final = {"text": "Done.", "tool": None, "arguments": {}}
    look = {"text": "", "tool": "shell", "arguments": {"command": "ls"}}
    for split, count in (("train", 5), ("heldout", 2)):
        for number in range(count):
            files = {
                "tests/test.sh": TEST,
                "tests/judge.py": JUDGE,
                "solution/solve.sh": b"#!/bin/sh\ntrue\n",
                "solution/direct.json": json.dumps([final]).encode(),
                "solution/careful.json": json.dumps([look, final]).encode(),
            }
            write_task(
                folder / "tasks" / split / f"say-{split}-{number}",
                config={"schema_version": "1.4", "metadata": {"family": f"say{number % 2}"}},
                instruction=f"Say something even. {number}",
                files=files,
            )


def configuration(folder: Path, *, busy: bool) -> RunConfig:
    """One session at a time and no cached prefixes, so that equal plans give equal weights, bit for bit; unless `busy`:
    then sessions share the engine's batches and cache, and end in any order."""
    values: dict[str, Any] = {
        "name": "killed",
        "harness": "scripted",
        "seed": 11,
        "model": {"path": str(folder / "model")},
        "lora": {"rank": 4, "alpha": 8},
        "sampling": {"temperature": 1.0, "max_tokens": 16},
        "session": {"context": 2048, "model_calls": 4, "seconds": 900},
        "producer": {"group_size": 2, "groups_per_step": 2, "in_flight": 3 if busy else 1, "max_refills": 3},
        "trainer": {"steps": 4, "learning_rate": 1e-3, "max_unique_tokens": 4096},
        "publish": {"every": 2, "canary_tokens": 8},
        "warm_start": {"steps": 6, "sessions_per_step": 1, "learning_rate": 1e-2},
        "tasks": {"source": str(folder / "tasks")},
        "engine": {"max_batch": 3 if busy else 1, "prefix_cache_mb": 16 if busy else 0, "threads": 1},
    }
    return RunConfig.model_validate(values)


class Moments:
    """The moments of a child at which something is moved, flushed, written or removed; it dies at the `fatal` one."""

    def __init__(self, fatal: int, when: str) -> None:
        self.count = 0
        self._fatal = fatal
        self._when = when
        self._lock = threading.Lock()

    def watch(self) -> None:
        from harness_adapters import storage

        for module, names in ((os, ("replace", "rename", "fsync", "unlink")), (shutil, ("rmtree",))):
            for name in names:
                setattr(module, name, self._wrapped(getattr(module, name)))
        storage._exchange = self._wrapped(storage._exchange)
        storage.write_tensors = self._wrapped(storage.write_tensors, half=lambda path, _: path.write_bytes(b"\x40\0"))
        EventLog.append = self._wrapped(  # type: ignore[method-assign]
            EventLog.append, half=lambda log, *_, **__: os.write(log._file.fileno(), b'{"seq":1,"ti')
        )
        # Modules that took the function by its name before it was wrapped.
        for module in list(sys.modules.values()):
            if getattr(module, "write_tensors", None) is not None and module is not storage:
                module.write_tensors = storage.write_tensors  # type: ignore[attr-defined]

    def _wrapped(self, function: Callable[..., Any], half: Callable[..., Any] | None = None) -> Callable[..., Any]:
        def at_this_moment(*args: Any, **named: Any) -> Any:
            with self._lock:
                self.count += 1
                fatal = self.count == self._fatal
            if fatal and self._when == "half" and half is not None:
                half(*args, **named)
            if fatal and self._when != "after":
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **named)
            if fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return at_this_moment


@dataclass
class Life:
    """One process of a run: how it was to die, how it ended, what the kernel left of it."""

    run: str
    kind: str
    aim: float
    when: str = ""
    status: int = 0
    seconds: float = 0.0
    orphans: int = 0
    moments: int = 0


class Runs:
    """Forks, kills and resumes. Holds no thread and no torch object of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lives: list[Life] = []

    def live(self, parent: Path, life: Life, watch: Callable[[int], None] | None = None) -> None:
        """Fork a child that goes on with the run in `parent`; `watch(pid)` may kill it."""
        started = time.monotonic()
        resume = run_in(parent)
        pid = os.fork()
        if pid == 0:
            self._child(parent, resume, life)
        if watch is not None:
            watch(pid)
        life.status = wait(pid, started + LIFE_SECONDS)
        life.seconds = time.monotonic() - started
        life.orphans = drain()
        self.lives.append(life)
        print(json.dumps(asdict(life)), flush=True)

    def _child(self, parent: Path, resume: Path | None, life: Life) -> None:
        """Never returns."""
        code = 70
        try:
            log = os.open(self.folder / f"{life.run}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            moments = Moments(int(life.aim) if life.kind == "aimed" else 0, life.when)
            moments.watch()
            from harness_adapters.cli.main import guarded
            from harness_adapters.runs.demo import run_to_the_end

            config = configuration(self.folder, busy=life.run.startswith("busy"))
            code = guarded(lambda: run_to_the_end(config, parent, resume, stand_in=Telling()))
            note = {"moments": moments.count, "modules": list(sys.modules)}
            (self.folder / "child.json").write_text(json.dumps(note))
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)


def run_in(parent: Path) -> Path | None:
    """The run directory in `parent`, once it can be resumed."""
    return next((path.parent for path in parent.glob("[!.]*/config.resolved.toml")), None)


def progress(parent: Path) -> int:
    """How much of the run stands, in events that a repeated life does not repeat."""
    run = run_in(parent)
    return len(standing_work(run)) if run is not None else 0


def standing_work(run: Path) -> list[Any]:
    kinds = ("rollout", "warm_step", "policy_step", "published", "stage_done")
    return [event for event in standing(read_events(run / "events.jsonl")) if event["kind"] in kinds]


def wait(pid: int, deadline: float) -> int:
    """A child's exit status, negative for a signal. It is killed at the deadline."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"a life took over {LIFE_SECONDS:.0f} s")
        time.sleep(0.005)


def children() -> set[int]:
    return {int(pid) for task in os.listdir("/proc/self/task") for pid in _children_of(task)}


def _children_of(task: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/self/task/{task}/children").read_text().split()
    return []


def drain() -> int:
    """Reap what the killed child left until only what nobody but a resume can end is there; how many those are."""
    from harness_adapters.sandbox.leftovers import _is_orphan

    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = children()
        if all(_is_orphan(pid) for pid in left):
            return len(left)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes of a killed run live on: {left}")
        time.sleep(0.005)


def kill_later(parent: Path, rng: random.Random, aim: float, gap: float) -> Callable[[int], None]:
    """Kill the child a random part of `gap` seconds after the run came to `aim` events."""

    def watch(pid: int) -> None:
        size = -1
        deadline = time.monotonic() + LIFE_SECONDS
        while time.monotonic() < deadline and _alive(pid):
            run = run_in(parent)
            now = (run / "events.jsonl").stat().st_size if run and (run / "events.jsonl").exists() else 0
            if now != size and progress(parent) >= aim:
                break
            size = now
            time.sleep(0.01)
        moment = time.monotonic() + rng.uniform(0, gap)
        while time.monotonic() < moment and _alive(pid):
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still this child's

    return watch


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def preload(modules: list[str]) -> None:
    for name in modules:
        if name != "__main__":
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def harm_newest_checkpoint(run: Path) -> None:
    newest = max((run / "checkpoints").glob("step-*"))
    (newest / "optimizer.safetensors").write_bytes(b"")


def harm_every_checkpoint(run: Path) -> None:
    for checkpoint in (run / "checkpoints").glob("step-*"):
        (checkpoint / "adapter_model.safetensors").write_bytes(b"")


def change_version_0(run: Path) -> None:
    """As if the warm start had come to other weights on the machine that the run was begun on."""
    harm_every_checkpoint(run)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        shutil.copy(run / "adapters" / "v4" / name, run / "adapters" / "v0" / name)


HARMS = (harm_newest_checkpoint, harm_every_checkpoint, change_version_0)


def kill_and_resume(
    runs: Runs, name: str, rng: random.Random, kills: int, undisturbed: Path, moments: int
) -> list[str]:
    """As many kills as asked for, over as many runs as they take; the runs, all finished in the end."""
    events = list(read_events(undisturbed / "events.jsonl"))
    length, seconds = len(standing_work(undisturbed)), events[-1]["time"] - events[0]["time"]
    kinds = [("timed", "aimed")[number % 2] for number in range(kills)]
    rng.shuffle(kinds)
    finished: list[str] = []
    while kinds:
        parent = runs.folder / f"{name}-{len(finished)}"
        aims = sorted(rng.uniform(0, length) for _ in range(kinds.count("timed")))
        while kinds and not (runs.lives[-1].run == parent.name and runs.lives[-1].status == 0):
            if kinds.pop() == "timed":
                aim = aims.pop(0)
                runs.live(parent, Life(parent.name, "timed", aim), kill_later(parent, rng, aim, 2 * seconds / length))
            else:
                fatal = rng.randint(1, max(2, 2 * moments // kills))
                runs.live(parent, Life(parent.name, "aimed", fatal, rng.choice(["before", "half", "after"])))
        runs.live(parent, Life(parent.name, "whole", 0))
        finished.append(str(run_in(parent)))
    return finished


def main(folder: Path, seed: int, kills: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pid = os.fork()
    if pid == 0:
        build(folder)
        os._exit(0)
    if wait(pid, time.monotonic() + LIFE_SECONDS) != 0:
        raise SystemExit("no model and tasks")
    runs = Runs(folder)
    runs.live(folder / "undisturbed", Life("undisturbed", "whole", 0))
    undisturbed = run_in(folder / "undisturbed")
    assert undisturbed is not None
    child = json.loads((folder / "child.json").read_text())
    preload(child["modules"])
    told: dict[str, Any] = {"threads": len(os.listdir("/proc/self/task")), "undisturbed": str(undisturbed)}
    for name, count in (("killed", kills), ("busy", kills // 4)):
        rng = random.Random(f"{seed} {name}")
        told[name] = kill_and_resume(runs, name, rng, count, undisturbed, child["moments"])
    told["harmed"] = {}
    for harm in HARMS:
        copy = folder / harm.__name__ / undisturbed.name
        shutil.copytree(undisturbed, copy)
        harm(copy)
        runs.live(copy.parent, Life(harm.__name__, "whole", 0))
        told["harmed"][harm.__name__] = str(copy)
    told |= {"lives": [asdict(life) for life in runs.lives], "left": len(children())}
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
