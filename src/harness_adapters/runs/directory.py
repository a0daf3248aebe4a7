"""One run's folder: what lies where, and that only one process writes it.

    config.resolved.toml   events.jsonl   blocked.jsonl
    tasks/{train,heldout,unseen,dev}/<id>/    Harbor directories, when the run made its own
    oracle/<id>.json                      recorded oracle sessions (the warm start's data)
    rollouts/<id>.json                    every training rollout: calls with ids and log-probs, verdicts, reward
    adapters/v<N>/                        immutable PEFT folders; v<N>.canary.json beside them
    checkpoints/                          trainer state
    plans/<step>.json                     which task each group of a step plays, written before its sessions start
    eval/<id>.json                        evaluation rollouts
    report.html   adapter/                what a person takes away
    set-aside/                            what a resume found but could not go on with; nobody reads it

Invariants
- A run directory is held by an exclusive lock while it is written; a second writer is refused.
- A rollout file appears whole or not at all and is never written over, so whatever is there after a kill is finished
  and is never done again. Its event follows it; where a kill fell between the two, the resume writes the event.
- A run keeps the id it was created with (it stands in its first event), however its folder is named, moved or reached.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from harness_adapters import __version__
from harness_adapters.config import RunConfig, load_config, to_toml
from harness_adapters.errors import ConfigError, RunError
from harness_adapters.events import EventLog, read_events
from harness_adapters.records import Rollout, rollout_from_json
from harness_adapters.runs.mending import drop_cut_short, sweep_run, unlogged_rollouts
from harness_adapters.storage import clear_abandoned, explained, work_folder, write_atomic

CONFIG = "config.resolved.toml"
EVENTS = "events.jsonl"
BLOCKED = "blocked.jsonl"
_EVENT_KEYS = ("kind", "time", "seq")


class RunDirectory:
    """The open, locked folder of one run. Use as a context manager."""

    def __init__(self, path: Path, config: RunConfig, lock: IO[str], identity: str) -> None:
        self.path = path
        self.config = config
        self.id = identity
        """Unique among the runs created on this machine; part of every adapter version's name."""
        self.swept: Sequence[str] = ()
        """What killed processes left half written and `resume` cleared away; paths in the run, sorted."""
        self._lock = lock
        with contextlib.ExitStack() as undo, _usable(path):
            self.events = EventLog(path / EVENTS)
            undo.callback(self.events.close)
            self._blocked = (path / BLOCKED).open("a", encoding="utf-8")
            undo.pop_all()

    @classmethod
    def create(cls, parent: Path, config: RunConfig) -> RunDirectory:
        """A new folder `<name>-<time>` under `parent`, or none.

        Raises InfraError or RunError when the disk refuses, RunError for a name that is too long.
        """
        with contextlib.ExitStack() as undo:
            with new_folder(parent, config.name) as work:
                undo.callback(shutil.rmtree, work, ignore_errors=True)
                lock = undo.enter_context(acquire(work))
                write_atomic(work / CONFIG, to_toml(config).encode())
                path = rename_to_free(work, parent, config.name)
            undo.callback(shutil.rmtree, path, ignore_errors=True)
            run = undo.enter_context(cls(path, config, lock, path.name))
            run._note_creation()
            undo.pop_all()
        return run

    @classmethod
    def resume(cls, path: Path) -> RunDirectory:
        """Open an existing run for writing and put right what a killed process left unfinished in it.

        Raises RunError when it is not a run, is damaged, is held by another process, or has a configuration that this
        version of the program does not read.
        """
        path = resolved_config(path).parent
        with contextlib.ExitStack() as undo:
            lock = undo.enter_context(acquire(path))
            created = _creation(path)
            config = _config_of(path, str(created.get("version", "")))
            with _usable(path):
                swept = sweep_run(path)
                drop_cut_short(path, path / BLOCKED)
            run = undo.enter_context(cls(path, config, lock, str(created.get("id") or path.name)))
            run.swept = swept
            if not created:
                run._note_creation()
            run.events.append("run_resumed", version=__version__, swept=swept)
            for kind, rollout_id in unlogged_rollouts(path, path / EVENTS):
                run._note_rollout(kind, run.read_rollout(kind, rollout_id))
            undo.pop_all()
        return run

    def _note_creation(self) -> None:
        self.events.append("run_created", id=self.id, version=__version__, config=self.config.model_dump())

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.events.close()
        self._blocked.close()
        self._lock.close()

    def folder(self, name: str) -> Path:
        path = self.path / name
        with explained(f"cannot make {path}"):
            path.mkdir(parents=True, exist_ok=True)
        return path

    def save_rollout(self, kind: str, rollout: Rollout) -> None:
        """Write `<kind>/<id>.json` (kind: oracle, rollouts, eval) and one summary event."""
        data = json.dumps(rollout.to_json(), separators=(",", ":")).encode()
        write_atomic(self.folder(kind) / f"{rollout.id}.json", data)
        self._note_rollout(kind, rollout)

    def _note_rollout(self, kind: str, rollout: Rollout) -> None:
        reward = rollout.reward.total if rollout.reward else None
        self.events.append(
            "rollout",
            set=kind,
            id=rollout.id,
            task=rollout.task,
            policy=rollout.policy,
            outcome=rollout.outcome,
            reward=reward,
            tool_calls=rollout.tool_calls,
            detail=rollout.detail,
            tags=dict(rollout.tags),
        )

    def load_rollout(self, kind: str, rollout_id: str) -> Rollout | None:
        """A rollout that was saved, or None. Raises RunError for a damaged file, naming it."""
        exists = (self.path / kind / f"{rollout_id}.json").exists()
        return self.read_rollout(kind, rollout_id) if exists else None

    def read_rollout(self, kind: str, rollout_id: str) -> Rollout:
        """A rollout that was saved. Raises RunError where there is none, and for a damaged file, naming it."""
        path = self.path / kind / f"{rollout_id}.json"
        try:
            return rollout_from_json(json.loads(path.read_bytes()))
        except FileNotFoundError:
            raise RunError(f"{path} is gone", "the run cannot go on without it; start a new one") from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"{path} is damaged: {error}", "delete it; that session is then done again") from error

    def set_aside(self, paths: Sequence[Path], why: str) -> None:
        """Move files or folders of one folder of the run out of everybody's way, to `set-aside/`."""
        if not paths:
            return
        folder = paths[0].parent.name
        self.events.append("set_aside", set=folder, ids=[path.stem for path in paths], why=why)
        with explained(f"cannot move files of {self.path} aside"):
            for path in paths:
                path.rename(_free_name(self.folder(f"set-aside/{folder}") / path.name))

    def log_verdict(self, entry: Mapping[str, Any]) -> None:
        """Append a verdict that was not a plain allow to `blocked.jsonl`; a session's counts go to the event log."""
        if entry.get("kind") != "verdict":
            self.events.append("guard", **{key: value for key, value in entry.items() if key not in _EVENT_KEYS})
            return
        with explained(f"cannot write {self.path / BLOCKED}"):
            self._blocked.write(json.dumps(dict(entry), separators=(",", ":"), default=str) + "\n")
            self._blocked.flush()

    def done(self, stage: str) -> bool:
        return (self.path / ".done" / stage).exists()

    def read_done(self, stage: str) -> dict[str, Any] | None:
        """What `mark_done` noted of a stage; None when it is not finished. Raises RunError for a damaged note."""
        path = self.path / ".done" / stage
        try:
            return dict(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise RunError(f"{path} is damaged: {error}", "delete it; the stage is then gone through again") from error

    def mark_done(self, stage: str, **fields: Any) -> None:
        """Note that a stage is finished; everything it wrote must be on the disk by now."""
        self.events.append("stage_done", stage=stage, **fields)
        write_atomic(self.folder(".done") / stage, json.dumps(fields, default=str).encode())


def latest_run(parent: Path) -> Path | None:
    """The newest run directory under `parent`, by name of its time stamp."""
    runs = [path.parent for path in parent.glob(f"*/{CONFIG}") if not path.parent.name.startswith(".")]
    return max(runs, key=lambda path: (path / CONFIG).stat().st_mtime, default=None)


def resolved_config(path: Path) -> Path:
    """The absolute path of a run's configuration. Raises RunError where `path` is not a run directory."""
    with _usable(path):
        path = path.resolve()
        is_run = (path / CONFIG).is_file()
    if not is_run:
        raise RunError(f"{path} is not a run directory", f"it has no {CONFIG}; look under runs/")
    return path / CONFIG


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    """A RunError for what the disk answers while an existing run is opened."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # pathlib reports a loop of links as a RuntimeError
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        place = (error.filename if isinstance(error, OSError) else None) or path
        raise RunError(f"cannot open {place}: {reason}", "check the path and what lies there") from None


def _creation(path: Path) -> dict[str, Any]:
    """The event a run was created with; empty when the log does not begin with one."""
    with _usable(path):
        first = next(read_events(path / EVENTS), None)
    return first if isinstance(first, dict) and first.get("kind") == "run_created" else {}


def _config_of(path: Path, version: str) -> RunConfig:
    """The configuration of the run in `path`, which program `version` created (empty: not known)."""
    try:
        return load_config(path / CONFIG)
    except ConfigError as error:
        maker = version if version not in ("", __version__) else f"another than this {__version__}"
        raise RunError(
            f"the run in {path} was made by another version of the program ({maker}), or its {CONFIG} was edited: "
            f"{error.message}",
            "resume it with the version that made it, or start a new run",
        ) from None


@contextlib.contextmanager
def new_folder(parent: Path, name: str) -> Iterator[Path]:
    """A hidden folder under `parent` to make a run or study in; what killed makers left there is cleared away.

    Raises InfraError when the disk refuses, RunError for a name that is too long.
    """
    with explained(f"cannot make a run directory under {parent}"):
        try:
            parent.mkdir(parents=True, exist_ok=True)
            clear_abandoned(parent)
            with work_folder(parent / name) as work:
                yield work
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise RunError(f"the run's name is too long for a folder under {parent}", "give a shorter name") from None


def rename_to_free(work: Path, parent: Path, name: str) -> Path:
    """Give a folder that is whole its final name `<name>-<time>`, which no other has. Raises RunError."""
    for path in _fresh_names(parent, name):
        try:
            if not path.exists():
                return work.rename(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):  # made by another meanwhile
                raise
    raise RunError(f"no free name for a run under {parent}", "try again in a second")


def _fresh_names(parent: Path, name: str) -> Iterator[Path]:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    yield parent / f"{name}-{stamp}"
    for number in range(2, 1000):
        yield parent / f"{name}-{stamp}-{number}"


def _free_name(path: Path) -> Path:
    """`path`, or with a number before its suffix where that is taken."""
    names = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in itertools.count(2))
    return path if not path.exists() else next(name for name in names if not name.exists())


def acquire(path: Path) -> IO[str]:
    """The exclusive lock of a folder, until it is closed. Raises RunError where another process holds it."""
    with explained(f"cannot lock {path}"):
        lock = (path / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise RunError(f"{path} is in use by another process", "wait for it, or resume a different run") from None
    return lock


_SAFE = re.compile(r"[^a-z0-9_.-]+")


def policy_run_name(run_id: str) -> str:
    """A run id as it may stand inside an adapter's served name."""
    return _SAFE.sub("-", run_id.lower())
