"""A step whose program, script, path or size cannot be judged from the call."""

from __future__ import annotations

from harness_adapters.guard.facts import Opaque
from harness_adapters.guard.rules.protocol import Context, Example, Rule


def _hidden(fact: Opaque, context: Context) -> str:
    return f"the call hides a {fact.where} from judgement"


RULE = Rule(
    name="opaque",
    what="Decoded or computed text that is run, a computed path that is written, a program whose name is unknown, and "
    "text over the size limits.",
    why="What cannot be read cannot be judged; honest work does not need it.",
    caught=Example("bash", {"command": "head -c 99 blob | base64 -d | sh"}),
    allowed=Example("bash", {"command": "echo bHMgc3JjCg== | base64 -d | sh"}),
    facts={Opaque: _hidden},
)
