"""One JSON object for one verdict, as block logs and `safeagents check` write it, and the case that it was about.

Asymmetry: the entry itself holds the evidence, cut short, and never the whole arguments; `case` holds what the verdict
followed from, cut to bounds, so that another policy can be tried on it. Whoever writes a case redacts it first: what
was blocked may hold a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from harness_adapters.guard.policy import GuardPolicy
from harness_adapters.records import Call, Message, Messages, Verdict

MAX_EVIDENCE = 300
MAX_TEXT = 8_192
"""Characters kept of what a person wrote or a tool printed."""
MAX_ARGUMENTS = 65_536
MAX_MESSAGES = 400


def log_entry(verdict: Verdict, call: Call, **fields: Any) -> dict[str, Any]:
    """A JSON-ready record of one verdict; `fields` (session, turn, time …) come first."""
    return {
        **fields,
        "call_id": verdict.call_id,
        "tool": call.name[:160],
        "decision": verdict.decision.value,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "evidence": verdict.evidence[:MAX_EVIDENCE],
    }


def case_of(
    call: Call, *, harness: str, declared: Collection[str], messages: Messages, policy: GuardPolicy
) -> dict[str, Any]:
    """The judged call with all it was judged by, as `safeagents check` and `replay` read it."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else call.arguments[:MAX_ARGUMENTS]
    return {
        "harness": harness,
        "tools": sorted(declared),
        "messages": list(_shortened(messages)),
        "task": policy.model_dump(mode="json", exclude_defaults=True),
        "call": {"name": call.name, "arguments": arguments},
    }


def _shortened(messages: Messages) -> Iterator[Message]:
    """What counts for a verdict: who declared what, which calls were made, what the tools printed first."""
    for message in [*messages][-MAX_MESSAGES:]:
        kept = {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id") if key in message}
        if isinstance(kept.get("content"), str):
            kept["content"] = kept["content"][:MAX_TEXT]
        yield kept
