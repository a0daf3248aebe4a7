"""The append-only event log of a run: one JSON object a line, the source of truth.

Invariants
- A line is written with one `write` and flushed to the disk's cache before `append` returns; a torn last line (the
  machine died in mid-write) is ignored by the reader and cut off by the next writer.
- Events are never changed. `seq` counts from 0 without gaps within one file.

Asymmetry: the log tells everything that happened, also what a killed process did in vain and the next one did again.
Whoever counts or sums reads the events that stand (`standing`).
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness_adapters.errors import RunError


class EventLog:
    """Writer of one `events.jsonl`; safe to use from several threads of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seq = mend_tail(path)
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise RunError(
                f"cannot write the event log {path}: {error.strerror}", "check the disk and the folder's permissions"
            ) from error

    def append(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Write one event and return it. Raises RunError when the disk refuses (full, read-only)."""
        with self._lock:
            event = {"seq": self._seq, "time": time.time(), "kind": kind, **fields}
            line = json.dumps(event, separators=(",", ":"), default=str).encode() + b"\n"
            try:
                written = self._file.write(line)
                if written != len(line):  # a nearly full disk takes what fits and reports no error
                    self._file.truncate(self._file.tell() - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                message = f"cannot append to {self.path}: {error.strerror}"
                raise RunError(message, "free some disk space and resume the run") from error
            self._seq += 1
            return event

    def close(self) -> None:
        self._file.close()


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """All whole events of a log in order; a torn last line is passed over.

    Raises RunError for a damaged line anywhere else.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RunError(
                    f"{path} line {number} is not JSON", "restore the file from a copy; the log is append-only"
                ) from error


_COUNTED_BY = {
    "warm_step": "warm_steps",
    "policy_step": "grpo_steps",
    "sampled": "grpo_steps",
    "published": "grpo_steps",
}
"""Kinds of events that tell of one step of learning -> the field of `learner_restored` that counts those steps."""

_SAME = {
    **dict.fromkeys(_COUNTED_BY, ("step",)),
    "rollout": ("set", "id"),
    "guard": ("session",),
    "stage_done": ("stage",),
}
"""Kind -> the fields that name what it is about; of two events about the same the later one stands."""


def standing(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events that still hold, in order: each step, rollout, session and stage once, as it was done last.

    A process that goes on from a checkpoint undoes the steps after it (`learner_restored`), and what does not belong
    to the run any more is moved away (`set_aside`): events about either are left out.
    """
    kept: dict[Any, Mapping[str, Any]] = {}
    for number, event in enumerate(events):
        kind = event["kind"]
        if kind == "learner_restored":
            kept = {key: old for key, old in kept.items() if not _undone(old, event)}
        elif kind == "set_aside":
            for name in event["ids"]:
                kept.pop(("rollout", event["set"], name), None)
        key = (kind, *(event.get(field) for field in _SAME[kind])) if kind in _SAME else number
        kept.pop(key, None)
        kept[key] = event
    return list(kept.values())


def _undone(event: Mapping[str, Any], restored: Mapping[str, Any]) -> bool:
    counter = _COUNTED_BY.get(event["kind"])
    return counter is not None and event.get("step", 0) > restored[counter]


def mend_tail(path: Path) -> int:
    """Cut a torn last line off a file of lines; the number of whole ones. Not while another process writes it."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return data.count(b"\n")
