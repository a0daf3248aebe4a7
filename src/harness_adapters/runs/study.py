"""A study from its file to its report: one run a seed, made by the very code of `train`, one after the other.

    <study>/study.resolved.toml      the study's file with every key
    <study>/<name>-s<seed>-<time>/   the run directory of a seed
    <study>/report.md                the whole report, once every seed is done

A run has a process of its own (`train --resume`), as it has outside a study: what one leaves in memory, and the state
of the libraries that it used, are nothing to the next.

Invariants
- A study directory is held by an exclusive lock while it is written.
- A seed that is done is not run again; one that was stopped goes on where it was. One command does both.
- The report is a function of the recorded rollouts alone.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

from harness_adapters.config import load_config
from harness_adapters.errors import ConfigError, RunError
from harness_adapters.evaluation.from_study import STUDY, read_study, run_folders
from harness_adapters.evaluation.study import compare_study
from harness_adapters.evaluation.study_tables import render_study
from harness_adapters.runs.apart import run_apart
from harness_adapters.runs.demo import anywhere, resumable
from harness_adapters.runs.directory import CONFIG, RunDirectory, acquire, new_folder, rename_to_free
from harness_adapters.runs.invocation import command
from harness_adapters.runs.stack import check_disk
from harness_adapters.runs.study_config import StudyConfig, load_study, resolve
from harness_adapters.storage import write_atomic

Play = Callable[[Path], int]
"""Does whatever is left of the run in a directory; its exit code, 0 when nothing is left."""


def play(run: Path) -> int:
    """`train --resume` in a process of its own."""
    return run_apart([sys.executable, "-m", "harness_adapters", "train", "--resume", str(run)])


class StudyDirectory:
    """The open, locked folder of one study. Use as a context manager."""

    def __init__(self, path: Path, config: StudyConfig, lock: IO[str]) -> None:
        self.path = path
        self.config = config
        self._lock = lock

    @classmethod
    def create(cls, parent: Path, config: StudyConfig) -> StudyDirectory:
        """A new folder `<name>-<time>` under `parent`, or none. Raises InfraError or RunError."""
        with contextlib.ExitStack() as undo:
            with new_folder(parent, config.run.name) as work:
                undo.callback(shutil.rmtree, work, ignore_errors=True)
                lock = undo.enter_context(acquire(work))
                write_atomic(work / STUDY, config.to_toml().encode())
                path = rename_to_free(work, parent, config.run.name)
            undo.pop_all()
        return cls(path, config, lock)

    @classmethod
    def resume(cls, path: Path) -> StudyDirectory:
        """Open an existing study for writing.

        Raises RunError when it is none, is held by another process, or has a configuration that this version of the
        program does not read.
        """
        path = path.resolve()
        if not (path / STUDY).is_file():
            raise RunError(f"{path} is no study", f"it has no {STUDY}; one run goes on by `demo --resume`")
        with contextlib.ExitStack() as undo:
            lock = undo.enter_context(acquire(path))
            try:
                config = load_study(path / STUDY)
            except ConfigError as error:
                raise RunError(
                    f"the study in {path} was made by another version of the program, or its {STUDY} was edited: "
                    f"{error.message}",
                    "resume it with the version that made it, or start a new study",
                ) from None
            undo.pop_all()
        return cls(path, config, lock)

    def __enter__(self) -> StudyDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()


def start_study(config: StudyConfig, parent: Path, play: Play = play) -> int:
    """Make a study directory under `parent`, run every seed and report. Returns the exit code.

    Raises what a run does; what was finished stays, and `study --resume` goes on from it.
    """
    config = resolve(config)
    check_disk(parent, len(config.seeds))
    with StudyDirectory.create(parent, replace(config, run=anywhere(config.run))) as study:
        return _go_on(study, play)


def resume_study(path: Path, play: Play = play) -> int:
    """Go on with a study that was stopped, or report again one that is done. Returns the exit code."""
    with StudyDirectory.resume(path) as study:
        return _go_on(study, play)


def _go_on(study: StudyDirectory, play: Play) -> int:
    how = command("study", "--resume", study.path)
    with resumable(how):
        print(f"study directory: {study.path}", file=sys.stderr)
        for number, seed in enumerate(study.config.seeds, 1):
            if code := _run_seed(study, seed, f"seed {seed}, {number} of {len(study.config.seeds)}", play):
                print(f"stopped; go on with the whole study: {how}", file=sys.stderr)
                return code
        _report(study.path)
    return 0


def _run_seed(study: StudyDirectory, seed: int, name: str, play: Play) -> int:
    """Do whatever is left of one seed; the exit code of its run. Raises RunError for a run that is not the study's."""
    expected = study.config.run_of(seed)
    folder = run_folders(study.path, study.config.seeds).get(seed)
    if folder is None:
        with RunDirectory.create(study.path, expected) as run:
            folder = run.path
        print(f"{name}: begins", file=sys.stderr)
    elif load_config(folder / CONFIG) != expected:
        raise RunError(f"{folder} has another configuration than its study", "restore it from a copy, or move it away")
    elif _done(folder):
        print(f"{name}: done already, in {folder.name}", file=sys.stderr)
        return 0
    else:
        print(f"{name}: goes on", file=sys.stderr)
    code = play(folder)
    if code == 0 and not _done(folder):
        raise RunError(f"the run {folder} came to an end without its report", "resume the study")
    return code


def _done(run: Path) -> bool:
    """Whether a run has been evaluated and has its report, the last that a run writes."""
    return (run / ".done" / "evaluate").exists() and (run / "report.html").exists()


def _report(path: Path) -> None:
    compared = compare_study(read_study(path))
    write_atomic(path / "report.md", render_study(compared, "markdown").encode())
    print(render_study(compared), end="")
    print(f"\nreport: {path / 'report.md'}")
    print(f"its sessions in one small file: {command('study', '--from', path, '--export', 'sessions.jsonl')}")
