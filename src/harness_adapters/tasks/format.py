"""Harbor task directories: read strictly, written whole, hashed by content.

    task.toml  instruction.md  environment/[files, setup.sh, Dockerfile]  solution/solve.sh  tests/test.sh

Invariants
- `read_task` returns a task that can run here, or raises one TaskError in one line naming the file and what is wrong.
- A directory holds regular files only; links and devices are refused, so nothing outside it can be read through it.
- `write_task` shows a directory under its name whole or not at all, and never changes an existing one.

Asymmetries: a Dockerfile is not run. One that only places files (`FROM`, `WORKDIR`, `COPY … .`) is passed over, since
the files in `environment/` are placed anyway; one that does more needs a `setup.sh` that does the same, portably.
Artifacts default to the working directory: the verifier always sits in a fresh sandbox and sees nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness_adapters.errors import TaskError
from harness_adapters.storage import atomic_folder
from harness_adapters.tasks.toml_rules import one_line, parse_task_toml, refuse, shown

WORKDIR = "/workspace"
WRITABLE = ("/workspace", "/home/agent", "/tmp")
"""The folders of a sandbox that a task may work in and hand in from."""

HANDED_IN = (*WRITABLE, "/logs/artifacts")
"""Where artifacts may lie. `/tests` and `/logs/verifier` are not among them: nothing may cross into the verdict."""

MAX_INSTRUCTION = 100_000
"""Bytes. A harness gets the instruction as one command-line argument, which Linux limits to 128 KiB."""

MAX_TOML = 1 << 20

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REQUIRED = ("task.toml", "instruction.md", "solution/solve.sh", "tests/test.sh")


@dataclass(frozen=True, slots=True)
class Task:
    """One task that can run here. Timeouts are seconds; `agent_timeout` None means the session's own deadline.

    `id` is the directory's name. `artifacts` are absolute paths inside the sandbox. `guard` is `[metadata.guard]`.
    `memory_mb` is what the task asks for the verifier's sandbox, None for the default.
    """

    id: str
    family: str
    instruction: str
    path: Path
    workdir: str
    agent_timeout: float | None
    verifier_timeout: float
    artifacts: tuple[str, ...]
    guard: Mapping[str, Any]
    metadata: Mapping[str, Any]
    build_timeout: float = 600.0
    memory_mb: int | None = None


def read_task(path: Path) -> Task:
    """The task in the directory `path`. Raises TaskError naming the file and what is wrong, in one line."""
    if not _ID.fullmatch(path.name):
        raise TaskError(f"task name {shown(path.name)} is not usable", "use letters, digits, '.', '_' and '-'")
    return _load(path, path.name)


def read_tasks(folder: Path) -> list[Task]:
    """Every task directly under `folder`, by name; hidden folders and loose files are passed over.

    Raises TaskError for the first bad task, and when there is none.
    """
    try:
        paths = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as error:
        raise TaskError(
            f"cannot read {one_line(folder)}: {error.strerror}", "give a folder of task directories"
        ) from None
    if not paths:
        raise TaskError(f"no task directories in {one_line(folder)}", "each task is one folder with a task.toml")
    return [read_task(path) for path in paths]


def write_task(folder: Path, *, config: Mapping[str, Any], instruction: str, files: Mapping[str, bytes]) -> Task:
    """Write one task directory whole and return it as read back.

    `config` is the content of task.toml; `files` maps paths such as `tests/test.sh` to their bytes, and `*.sh` become
    executable. A directory that already holds exactly this is left as it is. Raises TaskError when another one is in
    the way or the content would not read back, InfraError when the disk refuses.
    """
    texts = {"task.toml": _to_toml(config), "instruction.md": instruction.rstrip("\n") + "\n"}
    content = {**files, **{name: text.encode() for name, text in texts.items()}}
    entries = {name: (0o755 if name.endswith(".sh") else 0o644, data) for name, data in content.items()}
    if folder.exists():
        if bundle_hash(folder) != _hash(entries):
            raise TaskError(f"{one_line(folder)} exists and differs", "remove it, or write to another folder")
        return read_task(folder)
    with atomic_folder(folder) as work:
        (work / "environment").mkdir()
        for name, (mode, data) in entries.items():
            target = work / _inside(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(mode)
        _load(work, folder.name)
    return read_task(folder)


def bundle_hash(path: Path) -> str:
    """Hex SHA-256 over the names, modes and bytes of every file in a task directory.

    A label bound to it is bound to exact bytes. Raises TaskError for links and unreadable files.
    """
    return _hash({name: (stat.S_IMODE(file.stat().st_mode), _read(file)) for name, file in task_files(path).items()})


def task_files(path: Path) -> dict[str, Path]:
    """All files of a directory by relative POSIX name, sorted. Raises TaskError for anything that is not a file."""
    found: dict[str, Path] = {}
    for parent, folders, names in os.walk(path, onerror=_unreadable):
        folders.sort()
        for name in [*folders, *names]:
            entry = Path(parent, name)
            mode = entry.lstat().st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise TaskError(f"{one_line(entry)} is a link or special file", "a task holds regular files only")
            if stat.S_ISREG(mode):
                found[entry.relative_to(path).as_posix()] = entry
    return dict(sorted(found.items()))


def _load(path: Path, task_id: str) -> Task:
    files = task_files(path)
    for name in _REQUIRED:
        if name not in files:
            raise TaskError(f"{one_line(path)} has no {name}", f"a task needs {', '.join(_REQUIRED)} and environment/")
    if not (path / "environment").is_dir():
        raise TaskError(f"{one_line(path)} has no environment/", "it may hold nothing but an empty setup.sh")
    where = one_line(path / "task.toml", 400)
    text = _decode(files["task.toml"], MAX_TOML)
    data = parse_task_toml(text, where)
    environment, agent, verifier = (data.get(key, {}) for key in ("environment", "agent", "verifier"))
    metadata = data.get("metadata", {})
    _check_image(path, files, text, where, environment)
    workdir = _workdir(text, where, environment.get("workdir", WORKDIR))
    return Task(
        id=task_id,
        family=_typed(text, where, metadata, "family", str, "unnamed"),
        instruction=_instruction(files["instruction.md"]),
        path=path,
        workdir=workdir,
        agent_timeout=float(agent["timeout_sec"]) if "timeout_sec" in agent else None,
        verifier_timeout=float(verifier.get("timeout_sec", 600.0)),
        artifacts=_artifacts(text, where, data["artifacts"]) if "artifacts" in data else (workdir,),
        guard=_typed(text, where, metadata, "guard", dict, {}),
        metadata=metadata,
        build_timeout=float(environment.get("build_timeout_sec", 600.0)),
        memory_mb=environment.get("memory_mb"),
    )


def _check_image(path: Path, files: Mapping[str, Path], text: str, where: str, environment: Mapping[str, Any]) -> None:
    """Refuse what only a container image could provide."""
    if "environment/setup.sh" in files:
        return
    if environment.get("docker_image"):
        refuse(
            text, where, "environment", "docker_image", "images are not run here and there is no environment/setup.sh"
        )
    dockerfile = files.get("environment/Dockerfile")
    if dockerfile is None:
        return
    for number, line in enumerate(_decode(dockerfile, MAX_TOML).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#") or words[0].upper() in ("FROM", "WORKDIR"):
            continue
        if words[0].upper() == "COPY" and words[-1] in (".", "./"):
            continue
        raise TaskError(
            f"{one_line(path)}/environment/Dockerfile line {number}: {one_line(words[0], 40)} is not run here",
            "add an environment/setup.sh that does the same without Docker",
        )


def _workdir(text: str, where: str, value: str) -> str:
    if problem := _bad_path(value, WRITABLE):
        refuse(text, where, "environment", "workdir", problem)
    return value.rstrip("/")


def _artifacts(text: str, where: str, value: Any) -> tuple[str, ...]:
    """The declared artifacts as absolute paths; Harbor's tables are read where they say no more than a path."""
    if not isinstance(value, list) or not value:
        refuse(text, where, "", "artifacts", "must be a list of paths; the verifier sees nothing else")
    paths: list[str] = []
    for item in value:
        if isinstance(item, dict):
            extra = {
                k: v
                for k, v in item.items()
                if k != "source" and v and not (k == "destination" and v == item.get("source"))
            }
            if extra:
                refuse(
                    text, where, "", "artifacts", f"{one_line(min(extra))} is not done here: artifacts keep their path"
                )
            item = item.get("source")
        if not isinstance(item, str):
            refuse(text, where, "", "artifacts", f"{shown(item)} is not a path")
        if problem := _bad_path(item, HANDED_IN):
            refuse(text, where, "", "artifacts", problem)
        paths.append(item.rstrip("/"))
    for path in paths:
        if any(path == other or path.startswith(other + "/") for other in paths if other is not path):
            refuse(text, where, "", "artifacts", f"{shown(path)} is named twice or lies inside another")
    return tuple(paths)


def _bad_path(value: str, roots: Sequence[str]) -> str:
    """What is wrong with an absolute path that has to lie under one of `roots`; empty when nothing is."""
    if not value.isprintable() or posixpath.normpath(value) != value.rstrip("/"):
        return f"{shown(value)} is not a plain absolute path"
    if not any(value == root or value.startswith(root + "/") for root in roots):
        return f"{shown(value)} does not lie under {', '.join(roots)}"
    return ""


def _typed(text: str, where: str, table: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = table.get(key, default)
    if not isinstance(value, kind):
        refuse(text, where, "metadata", key, "must be text" if kind is str else "must be a table")
    return value


def _instruction(path: Path) -> str:
    text = _decode(path, MAX_INSTRUCTION).strip()
    if not text:
        raise TaskError(f"{one_line(path)} is empty", "say what the agent has to do")
    if "\0" in text:
        raise TaskError(f"{one_line(path)} holds a NUL character", "write plain text")
    return text


def _decode(path: Path, limit: int) -> str:
    data = _read(path)
    if len(data) > limit:
        raise TaskError(f"{one_line(path)} is longer than {limit} bytes", "shorten it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{one_line(path)} is not UTF-8: {error.reason} at byte {error.start}", "save it as UTF-8"
        ) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        _unreadable(error)


def _unreadable(error: OSError) -> NoReturn:
    raise TaskError(f"cannot read {one_line(error.filename)}: {error.strerror}", "check the path and its permissions")


def _inside(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/") or posixpath.normpath(name) != name:
        raise TaskError(f"{shown(name)} is not a path inside a task", "use relative names")
    return name


def _hash(entries: Mapping[str, tuple[int, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, (mode, data) in sorted(entries.items()):
        raw = name.encode(errors="surrogateescape")
        digest.update(b"%d %s %o %d\n" % (len(raw), raw, mode, len(data)))
        digest.update(data)
    return digest.hexdigest()


def _to_toml(config: Mapping[str, Any], prefix: str = "") -> str:
    """TOML of nested mappings of texts, numbers, booleans and lists of these; plain values before tables."""
    plain = {k: v for k, v in config.items() if not isinstance(v, Mapping)}
    lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    if prefix and (plain or not config):
        lines.insert(0, f"[{prefix}]")
    blocks = ["\n".join(lines) + "\n"] if lines else []
    for key, value in config.items():
        if isinstance(value, Mapping):
            blocks.append(_to_toml(value, f"{prefix}.{key}" if prefix else key))
    return "\n".join(blocks)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
