"""What a killed process left in a run directory, put right before the next one goes on.

Invariant: only what is unfinished goes: half-written files and folders, and the verdicts of sessions that were cut
short, which are played and judged again. Only the holder of the run's lock may call these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from harness_adapters.events import mend_tail, read_events, standing
from harness_adapters.storage import explained, sweep, write_atomic

SETS = ("oracle", "rollouts", "eval")
"""The folders of a run that hold rollouts, one file each."""


def sweep_run(path: Path) -> list[str]:
    """Remove what killed writers left half made anywhere in a run; paths relative to it, sorted.

    Raises InfraError when the disk refuses.
    """
    with explained(f"cannot clear away unfinished files in {path}"):
        folders = [path, *(entry for entry in path.iterdir() if entry.is_dir()), *path.glob("tasks/*/")]
        return sorted(str((folder / name).relative_to(path)) for folder in folders for name in sweep(folder))


def unlogged_rollouts(path: Path, events: Path) -> Iterator[tuple[str, str]]:
    """(set, id) of each rollout whose process was killed between writing its file and its event."""
    logged = {(event["set"], event["id"]) for event in standing(read_events(events)) if event["kind"] == "rollout"}
    for kind in SETS:
        for file in sorted((path / kind).glob("*.json")):
            if (kind, file.stem) not in logged:
                yield kind, file.stem


def drop_cut_short(path: Path, log: Path) -> None:
    """Rewrite a verdict log without the entries of sessions that left no rollout: they are played again."""
    if not log.is_file():
        return
    mend_tail(log)
    lines = log.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if _finished(path, line)]
    if len(kept) < len(lines):
        write_atomic(log, b"".join(kept))


def _finished(path: Path, line: bytes) -> bool:
    """Whether the session that a log's line tells of has its rollout; true of a line that names none."""
    try:
        session = str(json.loads(line)["session"])
    except (ValueError, KeyError, TypeError):
        return True
    return any((path / kind / f"{session}.json").exists() for kind in SETS)
