"""One run's folder: what lies where, and that only one process writes it.

    config.resolved.toml   events.jsonl   blocked.jsonl
    tasks/{train,heldout,unseen}/<id>/    Harbor directories, when the run made its own
    oracle/<id>.json                      recorded oracle sessions (the warm start's data)
    rollouts/<id>.json                    every training rollout: calls with ids and log-probs, verdicts, reward
    adapters/v<N>/                        immutable PEFT folders; v<N>.canary.json beside them
    checkpoints/                          trainer state
    eval/<id>.json                        evaluation rollouts
    report.html   adapter/                what a person takes away

Invariants
- A run directory is held by an exclusive lock while it is written; a second writer is refused.
- A rollout file appears whole or not at all, so whatever is there after a kill is finished and is never done again.
"""

from __future__ import annotations

import fcntl
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from harness_adapters.config import RunConfig, load_config, to_toml
from harness_adapters.errors import RunError
from harness_adapters.events import EventLog
from harness_adapters.records import Rollout, rollout_from_json
from harness_adapters.storage import explained, write_atomic

CONFIG = "config.resolved.toml"
_EVENT_KEYS = ("kind", "time", "seq")


class RunDirectory:
    """The open, locked folder of one run. Use as a context manager."""

    def __init__(self, path: Path, config: RunConfig, lock: IO[str]) -> None:
        self.path = path
        self.config = config
        self._lock = lock
        self.events = EventLog(path / "events.jsonl")
        self._blocked = (path / "blocked.jsonl").open("a", encoding="utf-8")

    @classmethod
    def create(cls, parent: Path, config: RunConfig) -> RunDirectory:
        """A new folder `<name>-<time>` under `parent`. Raises RunError when the disk refuses."""
        with explained(f"cannot make a run directory under {parent}"):
            parent.mkdir(parents=True, exist_ok=True)
            for path in _fresh_names(parent, config.name):
                try:
                    path.mkdir()
                    break
                except FileExistsError:
                    continue
        lock = _acquire(path)
        write_atomic(path / CONFIG, to_toml(config).encode())
        run = cls(path, config, lock)
        run.events.append("run_created", config=config.model_dump())
        return run

    @classmethod
    def resume(cls, path: Path) -> RunDirectory:
        """Open an existing run for writing. Raises RunError when it is not a run or another process holds it."""
        if not (path / CONFIG).is_file():
            raise RunError(f"{path} is not a run directory", f"it has no {CONFIG}; look under runs/")
        lock = _acquire(path)
        run = cls(path, load_config(path / CONFIG), lock)
        run.events.append("run_resumed")
        return run

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.events.close()
        self._blocked.close()
        self._lock.close()

    @property
    def id(self) -> str:
        """Unique among runs of this machine; part of every adapter version's name."""
        return self.path.name

    def folder(self, name: str) -> Path:
        path = self.path / name
        with explained(f"cannot make {path}"):
            path.mkdir(parents=True, exist_ok=True)
        return path

    def save_rollout(self, kind: str, rollout: Rollout) -> None:
        """Write `<kind>/<id>.json` (kind: oracle, rollouts, eval) and one summary event."""
        data = json.dumps(rollout.to_json(), separators=(",", ":")).encode()
        write_atomic(self.folder(kind) / f"{rollout.id}.json", data)
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
        """A finished rollout, or None. Raises RunError for a damaged file, naming it."""
        path = self.path / kind / f"{rollout_id}.json"
        try:
            return rollout_from_json(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} is damaged: {error}", "delete it; that session is then done again") from error

    def log_verdict(self, entry: Mapping[str, Any]) -> None:
        """Append a verdict that was not a plain allow to `blocked.jsonl`; a session's counts go to the event log."""
        if entry.get("kind") != "verdict":
            self.events.append("guard", **{key: value for key, value in entry.items() if key not in _EVENT_KEYS})
            return
        with explained(f"cannot write {self.path / 'blocked.jsonl'}"):
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
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path} is damaged: {error}", "delete it; the stage is then gone through again") from error

    def mark_done(self, stage: str, **fields: Any) -> None:
        """Note that a stage is finished; everything it wrote must be on the disk by now."""
        self.events.append("stage_done", stage=stage, **fields)
        write_atomic(self.folder(".done") / stage, json.dumps(fields, default=str).encode())


def latest_run(parent: Path) -> Path | None:
    """The newest run directory under `parent`, by name of its time stamp."""
    runs = [path.parent for path in parent.glob(f"*/{CONFIG}")]
    return max(runs, key=lambda path: (path / CONFIG).stat().st_mtime, default=None)


def _fresh_names(parent: Path, name: str) -> Iterator[Path]:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    yield parent / f"{name}-{stamp}"
    for number in range(2, 1000):
        yield parent / f"{name}-{stamp}-{number}"


def _acquire(path: Path) -> IO[str]:
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
