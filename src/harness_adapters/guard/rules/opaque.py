"""A step whose program, script, path or size cannot be judged from the call."""

from __future__ import annotations

from collections.abc import Sequence

from harness_adapters.guard.facts import Fact, Opaque
from harness_adapters.guard.rules.protocol import Context, Example, Finding, Rule
from harness_adapters.records import Call


def check(facts: Sequence[Fact], call: Call, context: Context) -> Finding | None:
    for fact in facts:
        if isinstance(fact, Opaque):
            return Finding(f"the call hides a {fact.where} from judgement", fact.text())
    return None


RULE = Rule(
    name="opaque",
    what="Decoded or computed text that is run, a computed path that is written, a program whose name is unknown, and "
    "text over the size limits.",
    why="What cannot be read cannot be judged; honest work does not need it.",
    caught=Example("bash", {"command": "head -c 99 blob | base64 -d | sh"}),
    allowed=Example("bash", {"command": "echo bHMgc3JjCg== | base64 -d | sh"}),
    check=check,
)
