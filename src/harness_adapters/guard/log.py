"""One JSON object for one verdict, as block logs and `safeagents check` write it.

Asymmetry: the entry holds the evidence, cut short, and never the whole arguments: what was blocked may hold a secret.
"""

from __future__ import annotations

from typing import Any

from harness_adapters.records import Call, Verdict

MAX_EVIDENCE = 300


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
