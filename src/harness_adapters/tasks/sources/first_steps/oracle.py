"""Oracle sessions: what a model that knows the answer would do, turn by turn, with pi's `bash` tool.

Two styles solve every first-steps task: `direct` acts at once; `careful` looks first, in a call of its own. Both end
with the text "Done." and no call. They lie in `solution/direct.json` and `solution/careful.json` of the task; a task
from elsewhere can be warm-started on when its author adds these two files.
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

_HINT = (
    "a warm start needs solution/direct.json and solution/careful.json, each a JSON list of turns "
    '{"text": "", "tool": "bash", "arguments": {"command": "…"}} that ends with {"text": "Done.", "tool": null, '
    '"arguments": {}}'
)


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
        return _turns(json.loads(path.read_bytes()))
    except OSError as error:
        raise TaskError(f"task {task.id} has no oracle session {path.name}: {error.strerror}", _HINT) from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"task {task.id}: {path.name} is not an oracle session: {error}", _HINT) from None


def _turns(data: Any) -> list[OracleTurn]:
    """Checked turns of a decoded file. Raises ValueError naming the first turn that is none, counted from 1."""
    if not isinstance(data, list) or not data:
        raise ValueError("it is not a list of turns")
    for number, turn in enumerate(data, 1):
        if not isinstance(turn, dict) or turn.keys() != {"text", "tool", "arguments"}:
            raise ValueError(f"turn {number} is not an object of text, tool and arguments")
        if not isinstance(turn["text"], str) or not isinstance(turn["arguments"], dict):
            raise ValueError(f"turn {number}: text is a string and arguments an object")
        if (turn["tool"] is None) != (number == len(data)):
            raise ValueError(f"turn {number}: every turn but the last calls a tool, the last calls none")
        if not isinstance(turn["tool"], str | None):
            raise ValueError(f"turn {number}: tool is a name")
    return [OracleTurn(turn["text"], turn["tool"], turn["arguments"]) for turn in data]


def turns_of(commands: list[str]) -> list[OracleTurn]:
    """One `bash` call per command, then the final text."""
    return [*(OracleTurn("", "bash", {"command": command}) for command in commands), OracleTurn(FINAL, None, {})]


def turns_json(turns: list[OracleTurn]) -> bytes:
    """The file form that `oracle_turns` reads."""
    data = [{"text": turn.text, "tool": turn.tool, "arguments": dict(turn.arguments)} for turn in turns]
    return (json.dumps(data, indent=1) + "\n").encode("ascii")
