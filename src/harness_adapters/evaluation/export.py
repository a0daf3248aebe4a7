"""A study's sessions as one small file of JSON lines, to be committed beside its report.

The first line is an object with what stands beside the numbers and with the names of the columns; every further line is
an array, one session. Without the names in every line the file has some 80 bytes a session.

Invariant: what is read is what was written; a line that is not a session is refused by its number, never passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness_adapters.config import EvalConfig
from harness_adapters.errors import RunError
from harness_adapters.evaluation.evaluated import Evaluated
from harness_adapters.evaluation.from_run import RunEvaluation
from harness_adapters.evaluation.study import Study, StudyFacts
from harness_adapters.records import Outcome
from harness_adapters.storage import write_atomic

FORM = 1
"""Of the file; another one is refused."""

_COLUMNS: Mapping[str, Callable[[Any], bool]] = {
    "seed": lambda value: type(value) is int,
    "split": lambda value: isinstance(value, str) and value != "",
    "policy": lambda value: isinstance(value, str) and value != "",
    "task": lambda value: isinstance(value, str),
    "family": lambda value: isinstance(value, str),
    "attempt": lambda value: isinstance(value, str),
    "outcome": lambda value: value in [outcome.value for outcome in Outcome],
    "solved": lambda value: value in (0, 1),
    "tool_calls": lambda value: type(value) is int and value >= 0,
    "blocked": lambda value: value in (0, 1),
    "tokens": lambda value: type(value) is int and value >= 0,
    "ended_by": lambda value: isinstance(value, str),
}
"""The columns in order, and what may stand in each."""

_RESTORE = "restore the file from a copy, or write it again by `study --from DIR --export`"


def write_export(path: Path, study: Study) -> int:
    """Write the file, whole or not at all; the number of its sessions. Raises InfraError when the disk refuses."""
    facts = study.facts
    head = {
        "study": FORM,
        "name": facts.name,
        "harness": study.harness,
        "confidence": facts.confidence,
        "test_set": facts.test_set,
        "configuration": facts.configuration,
        "seeds": list(facts.seeds),
        "runs": {str(seed): {"planned": run.planned, "tasks": run.tasks} for seed, run in study.runs.items()},
        "columns": list(_COLUMNS),
    }
    rows = [_row(seed, session) for seed, run in study.runs.items() for session in run.sessions]
    lines = [json.dumps(line, separators=(",", ":")) for line in (head, *rows)]
    write_atomic(path, ("\n".join(lines) + "\n").encode())
    return len(rows)


def read_export(path: Path) -> Study:
    """The study in an exported file. Raises RunError, naming the line, for one that is not."""
    first, *others = _text(path).removesuffix("\n").split("\n")
    head = _decoded(first)
    if not isinstance(head, dict) or head.get("study") != FORM or head.get("columns") != list(_COLUMNS):
        raise RunError(f"{path} is not an exported study of this form", "name the file that --export wrote")
    try:
        facts = StudyFacts(
            name=str(head["name"]),
            seeds=tuple(map(int, head["seeds"])),
            confidence=EvalConfig(confidence=head["confidence"]).confidence,
            test_set=str(head["test_set"]),
            configuration=str(head["configuration"]),
        )
        harness = str(head["harness"])
        about = {int(seed): (_count(run["planned"]), _count(run["tasks"])) for seed, run in head["runs"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{path} line 1 is damaged: {' '.join(str(error).split())}", _RESTORE) from error
    sessions = _sessions(path, others, about)
    runs = {
        seed: RunEvaluation(tuple(sessions[seed]), harness, about[seed][0], about[seed][1] or 0)
        for seed in facts.seeds
        if sessions.get(seed)
    }
    return Study(facts, harness, runs)


def _row(seed: int, session: Evaluated) -> list[Any]:
    return [
        seed,
        session.split,
        session.label,
        session.task,
        session.family,
        session.attempt,
        session.outcome.value,
        int(session.solved),
        session.tool_calls,
        int(session.blocked),
        session.tokens,
        session.ended_by,
    ]


def _sessions(path: Path, lines: Sequence[str], seeds: Mapping[int, Any]) -> dict[int, list[Evaluated]]:
    found: dict[int, list[Evaluated]] = {seed: [] for seed in seeds}
    counted: set[tuple[int, tuple[str, str, str]]] = set()
    for number, line in enumerate(lines, 2):
        seed, session = _session(path, number, _decoded(line))
        if seed not in found:
            raise RunError(f"{path} line {number} is of seed {seed}, which the first line does not name", _RESTORE)
        if session.counted and (seed, session.plan) in counted:
            raise RunError(f"{path} line {number} is a second result of one session", _RESTORE)
        if session.counted:
            counted.add((seed, session.plan))
        found[seed].append(session)
    return found


def _session(path: Path, number: int, line: Any) -> tuple[int, Evaluated]:
    if not isinstance(line, list) or len(line) != len(_COLUMNS):
        raise RunError(f"{path} line {number} is not an array of {len(_COLUMNS)} values", _RESTORE)
    for (column, fits), value in zip(_COLUMNS.items(), line, strict=True):
        if not fits(value):
            raise RunError(f"{path} line {number}: {column} cannot be {json.dumps(value)[:60]}", _RESTORE)
    seed, split, label, task, family, attempt, outcome, solved, tool_calls, blocked, tokens, ended_by = line
    session = Evaluated(
        split=split,
        label=label,
        task=task,
        family=family,
        attempt=attempt,
        outcome=Outcome(outcome),
        solved=bool(solved),
        tool_calls=tool_calls,
        blocked=bool(blocked),
        tokens=tokens,
        ended_by=ended_by,
    )
    return seed, session


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}", "check the path and its permissions") from error


def _decoded(line: str) -> Any:
    """The JSON value of a line, None for what is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _count(value: Any) -> int | None:
    if value is None or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"{value!r} is not a count")
