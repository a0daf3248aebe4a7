"""A scrub run over files: read, scrub, stage, publish.

Invariants
- Outputs are staged beside their place and appear there only when every input is done; what is interrupted or meets a
  full disk leaves nothing.
- No input is ever written over, not by another name of it either, and no existing file without `force`. What exists
  and is no regular file (a device, a FIFO, a folder) is never replaced: a rename would put a file in its place.
- A file of a folder that is no text is left out and reported; one that was named itself is an error.
- A value learnt in a late file is replaced in the earlier ones before anything is published.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness_adapters.errors import ConfigError
from harness_adapters.scrub.inputs import Input, inputs_of, read, scrubbed_name
from harness_adapters.scrub.report import FileReport, Report
from harness_adapters.scrub.scrubber import Scrubber
from harness_adapters.storage import explained

_ROUNDS = 4
Progress = Callable[[int, int], None]
"""(files done, files in all)."""


def check_files(paths: Sequence[Path], scrubber: Scrubber, progress: Progress | None = None) -> Report:
    """What would be replaced in `paths`; nothing is written. Raises SessionError for what cannot be read."""
    inputs, left_out = inputs_of(paths)
    files = [report for report, _ in _scrubbed(inputs, scrubber, progress)]
    return Report(tuple(files), tuple(left_out))


def scrub_files(
    paths: Sequence[Path],
    out: Path,
    scrubber: Scrubber,
    *,
    force: bool = False,
    folder: bool = False,
    report: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Scrub `paths` into the folder `out`; a single file goes to the file `out`, unless that is a folder or `folder`
    says that it shall be one. No file may go where the caller is going to write its `report`.

    Raises SessionError for what cannot be read, ConfigError for an output that would write over something, InfraError
    when the disk refuses.
    """
    inputs, left_out = inputs_of(paths)
    single = len(inputs) == 1 and paths[0].is_file() and not out.is_dir() and not folder
    _refuse_early(inputs, out, single, force=force)
    parent = out.absolute().parent
    with explained(f"cannot write {out}"):
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".tmp", dir=parent) as name:
            stage = Path(name)
            files = []
            for file, data in _scrubbed(inputs, scrubber, progress):
                files.append(file)
                _write(stage / file.name, data)
            files = _again(stage, files, scrubber)
            targets = {file.name: out if single else out / file.name for file in files}
            _refuse(inputs, targets.values(), force=force, report=report)
            _publish(stage, targets)
    return Report(tuple(files), tuple(left_out))


def _scrubbed(inputs: list[Input], scrubber: Scrubber, progress: Progress | None) -> Iterator[tuple[FileReport, bytes]]:
    """Each input's report and new content, in order. All are read once before, for the stand-ins that they hold."""
    for given in inputs:
        scrubber.reserve(read(given.path))
    names: set[str] = set()
    for number, given in enumerate(inputs, 1):
        data = read(given.path)
        scrubbed = scrubber.scrub(data)
        name = scrubbed_name(scrubber, given.name)
        if name in names:
            raise ConfigError(f"two inputs would be written as {name}", "scrub them in two runs")
        names.add(name)
        yield FileReport(name, len(data), scrubbed.findings, scrubbed.text_lines), scrubbed.data
        if progress is not None:
            progress(number, len(inputs))


def _again(stage: Path, files: list[FileReport], scrubber: Scrubber) -> list[FileReport]:
    """Scrub staged files again that hold a value which only a later file gave away."""
    for _ in range(_ROUNDS):
        learnt = len(scrubber.learnt)
        for index, file in enumerate(files):
            data = (stage / file.name).read_bytes()
            if scrubber.holds_learnt(data):
                scrubbed = scrubber.scrub(data)
                _write(stage / file.name, scrubbed.data)
                files[index] = replace(file, findings=file.findings + scrubbed.findings)
        if len(scrubber.learnt) == learnt:
            break
    return files


def _refuse_early(inputs: list[Input], out: Path, single: bool, *, force: bool) -> None:
    """Before any work: an output that cannot be right."""
    if single:
        _refuse(inputs, (out,), force=force)
    elif os.path.lexists(out) and not out.is_dir():
        what = "a file" if out.is_file() else "no folder"
        raise ConfigError(f"{out} is {what}, and {len(inputs)} are to be written into it", "name a folder with -o")
    if out.is_dir() and any(given.path.resolve().is_relative_to(out.resolve()) for given in inputs):
        raise ConfigError(f"{out} holds the inputs", "name another folder with -o")


def _refuse(inputs: list[Input], targets: Iterable[Path], *, force: bool, report: Path | None = None) -> None:
    """Raise ConfigError for a target that may not be written, before any is."""
    read_from = {identity_on_disk(given.path) for given in inputs}
    for target in targets:
        if identity_on_disk(target) in read_from:
            raise ConfigError(f"{target} is one of the inputs", "name another place with -o")
        if report is not None and identity_on_disk(target) == identity_on_disk(report):
            raise ConfigError(f"{target} is where the report goes", "name another file with --report")
        above = next(parent for parent in target.absolute().parents if os.path.lexists(parent))
        if not above.is_dir():
            raise ConfigError(f"{above} exists and is no folder", "name another place with -o")
        refuse_target(target, force=force)


def identity_on_disk(path: Path) -> tuple[int, int] | Path:
    """What two names of one file have in common, hard links too; a path where there is no file yet."""
    try:
        found = path.stat()
    except OSError:
        return path.resolve()
    return found.st_dev, found.st_ino


def refuse_target(target: Path, *, force: bool, option: str = "-o") -> None:
    """Raise ConfigError where `target` exists and is no regular file, or is one and there is no `force`."""
    if not os.path.lexists(target):
        return
    if not stat.S_ISREG(target.lstat().st_mode):
        kind = "a link" if target.is_symlink() else "a folder" if target.is_dir() else "no regular file"
        raise ConfigError(f"{target} exists and is {kind}", f"name another place with {option}")
    if not force:
        raise ConfigError(f"{target} exists", f"name another place with {option}, or write over it with --force")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _publish(stage: Path, targets: Mapping[str, Path]) -> None:
    """Move staged files to their places; each appears whole, and nothing is copied since the disk is the same.

    Ctrl-C waits for these few renames: it could only leave some of the files.
    """
    with _uninterrupted():
        for name, target in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):  # it came after the check
                raise ConfigError(f"{target} exists and is no regular file", "name another place with -o")
            (stage / name).replace(target)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C. Only the main thread gets it, and only there can it be ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
