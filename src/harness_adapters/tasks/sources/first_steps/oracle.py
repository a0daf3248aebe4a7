"""Oracle sessions: what a model that knows the answer would do, turn by turn, with pi's `bash` tool.

Two styles solve every first-steps task: `direct` acts at once; `careful` looks first, in a call of its own. Both end
with the text "Done." and no call. They lie in `solution/direct.json` and `solution/careful.json` of the task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness_adapters.errors import TaskError
from harness_adapters.tasks.format import Task

STYLES = ("direct", "careful")

FINAL = "Done."


@dataclass(frozen=True, slots=True)
class OracleTurn:
    """One turn of the assistant: a call of `tool` with `arguments`, or, where `tool` is None, a final `text`."""

    text: str
    tool: str | None
    arguments: Mapping[str, Any]


def oracle_turns(task: Task, style: str) -> list[OracleTurn]:
    """The recorded oracle session of `task` in `style`. Raises TaskError when the task has none or it is damaged."""
    if style not in STYLES:
        raise TaskError(f"no oracle style {style!r}", f"styles: {', '.join(STYLES)}")
    path = task.path / "solution" / f"{style}.json"
    try:
        turns = [OracleTurn(**turn) for turn in json.loads(path.read_bytes())]
    except OSError as error:
        raise TaskError(
            f"task {task.id} has no oracle session {path.name}: {error.strerror}", "generate the task again"
        ) from None
    except (ValueError, TypeError) as error:
        raise TaskError(
            f"task {task.id}: {path.name} is not an oracle session: {error}", "generate the task again"
        ) from None
    return turns


def turns_of(commands: list[str]) -> list[OracleTurn]:
    """One `bash` call per command, then the final text."""
    return [*(OracleTurn("", "bash", {"command": command}) for command in commands), OracleTurn(FINAL, None, {})]


def turns_json(turns: list[OracleTurn]) -> bytes:
    """The file form that `oracle_turns` reads."""
    data = [{"text": turn.text, "tool": turn.tool, "arguments": dict(turn.arguments)} for turn in turns]
    return (json.dumps(data, indent=1) + "\n").encode("ascii")
