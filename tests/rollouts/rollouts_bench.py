"""A bench for sessions: scripted engine, real gateway, real sandboxes, a small task; nothing is mocked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness_adapters.engines.scripted import ScriptedEngine, ScriptedTurn
from harness_adapters.gateway import Gateway
from harness_adapters.rollouts.session import SessionPlan, SessionRunner
from harness_adapters.sandbox import Sandbox
from harness_adapters.tasks.format import Task, write_task

CONTEXT = 65_536
"""Tokens. The bench's tokenizer has one token a byte."""

VERDICT = b"""#!/bin/sh
mkdir -p /logs/verifier
if [ "$(cat /workspace/out.txt 2>/dev/null)" = hello ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def tool_turn(tool: str, text: str = "", **arguments: Any) -> str:
    """An assistant turn that calls one tool."""
    call = json.dumps({"name": tool, "arguments": arguments})
    return f"{text}\n<tool_call>\n{call}\n</tool_call>".lstrip("\n")


def make_task(folder: Path, *, verdict: bytes = VERDICT, toml: Mapping[str, Any] | None = None) -> Task:
    """A task whose verifier wants `hello` in /workspace/out.txt."""
    files = {"tests/test.sh": verdict, "solution/solve.sh": b"#!/bin/sh\necho hello > /workspace/out.txt\n"}
    config = {"schema_version": "1.4", "verifier": {"timeout_sec": 20.0}, **(toml or {})}
    return write_task(folder / "hello", config=config, instruction="Write hello into out.txt.", files=files)


def children() -> set[int]:
    """Ids of living processes below this one, zombies aside."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {process for process, parent in parents.items() if parent in new}
        found |= new
    return found


@dataclass
class Bench:
    """What one test plays sessions with. `opened` holds every sandbox in the order in which they were opened."""

    engine: ScriptedEngine
    gateway: Gateway
    runner: SessionRunner
    task: Task
    opened: list[Sandbox] = field(default_factory=list)

    def plan(self, turns: Sequence[str | ScriptedTurn], name: str = "s1", **changes: Any) -> SessionPlan:
        """A plan of a session that plays `turns`."""
        self.engine.add(name, turns)
        values = {"id": name, "task": self.task, "group": "g", "policy": name, "seed": 1, **changes}
        return SessionPlan(**values)


OpenBench = Callable[..., AbstractAsyncContextManager[Bench]]
