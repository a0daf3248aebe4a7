"""What the guard's tests share: judging one call under a policy, and the command lists beside this file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness_adapters.guard import Guard, GuardPolicy
from harness_adapters.records import Call, Effect, Message, ToolMap, Verdict

HERE = Path(__file__).parent
PI = ToolMap(
    "pi",
    {
        "bash": (Effect("shell", {"command": "command"}),),
        "read": (Effect("read", {"path": "path"}),),
        "write": (Effect("write", {"path": "path", "content": "content"}),),
        "edit": (Effect("write", {"path": "path", "content": "edits"}),),
    },
)
TOOLS = ("bash", "read", "write", "edit")

Judge = Callable[..., Verdict]


def judge_call(
    tool: str,
    arguments: Mapping[str, Any] | str,
    policy: Mapping[str, Any] | None = None,
    *,
    user: str = "do the task",
    earlier: Sequence[tuple[str, Mapping[str, Any], str]] = (),
    declared: Sequence[str] = TOOLS,
    tools: ToolMap = PI,
) -> Verdict:
    """The verdict on one call; `earlier` are calls that went before, each with what its tool printed."""
    messages: list[Message] = [{"role": "user", "content": user}]
    for number, (name, its_arguments, printed) in enumerate(earlier):
        function = {"name": name, "arguments": json.dumps(its_arguments)}
        messages.append(
            {"role": "assistant", "tool_calls": [{"id": f"e{number}", "type": "function", "function": function}]}
        )
        messages.append({"role": "tool", "tool_call_id": f"e{number}", "content": printed})
    guard = Guard(GuardPolicy.from_mapping(policy or {}), tools)
    return guard.judge(Call("c", tool, arguments), declared=declared, messages=messages)


def commands(name: str) -> list[str]:
    """The commands in a list, which `---` lines separate."""
    return (HERE / name).read_text(encoding="utf-8").strip("\n").split("\n---\n")
