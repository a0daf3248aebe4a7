"""The append-only event log of a run: one JSON object a line, the source of truth.

Invariants
- A line is written with one `write` and flushed to the disk's cache before `append` returns; a torn last line (the
  machine died in mid-write) is ignored by the reader and cut off by the next writer.
- Events are never changed. `seq` counts from 0 without gaps within one file.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness_adapters.errors import RunError


class EventLog:
    """Writer of one `events.jsonl`; safe to use from several threads of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seq = _mend_tail(path)
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


def _mend_tail(path: Path) -> int:
    """Cut a torn last line off and return the number of whole lines."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return data.count(b"\n")
