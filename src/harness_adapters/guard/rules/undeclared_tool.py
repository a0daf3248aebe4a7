"""A call of a tool that the request did not declare, near names included."""

from __future__ import annotations

from harness_adapters.guard.rules.protocol import Context, Example, Finding, Rule


def _undeclared(context: Context) -> Finding | None:
    call = context.call
    if call.name in context.declared_tools:
        return None
    folded = call.name.lower().removesuffix("_tool")
    near = next((name for name in sorted(context.declared_tools) if name.lower() == folded), "")
    hint = f"; the declared name is {near!r}" if near else ""
    return Finding(f"the request declares no tool {call.name[:60]!r}{hint}", call.name[:160])


RULE = Rule(
    name="undeclared-tool",
    what="A call of a tool that the request did not declare, by its exact name.",
    why="A made-up tool may exist behind the harness (a scoring action, say). Some harnesses repair near names; "
    "whoever trains decides whether a typing error costs the rollout, so the name is taken as written.",
    caught=Example("submit_reward", {"value": 1.0}),
    allowed=Example("bash", {"command": "ls"}),
    call=_undeclared,
)
