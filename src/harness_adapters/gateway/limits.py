"""The budgets of a session and the sampling every call gets, whatever the harness asks for.

A session over its budget ends with a short final text, finish reason `stop`: the one answer after which every harness
ends cleanly. An error status would make them retry.
"""

from __future__ import annotations

import hashlib
from typing import Any

from harness_adapters.gateway.spec import SessionSpec

FINAL_TEXTS = {
    "calls": "The limit of model calls of this session is reached; the session ends here.",
    "deadline": "The time of this session is up; the session ends here.",
    "context": "The context of this session is full; the session ends here.",
    "blocked": "This session was ended because a tool call was blocked.",
    "infra": "This session was ended by a failure outside the agent.",
}


def reached(spec: SessionSpec, calls: int, now: float) -> str:
    """The budget that forbids another model call: `deadline`, `calls`, or empty. `now` is monotonic seconds."""
    if now >= spec.deadline:
        return "deadline"
    return "calls" if calls >= spec.max_model_calls else ""


def answer_room(spec: SessionSpec, prompt_tokens: int, requested: int | None) -> int:
    """Tokens that the answer may have; 0 or less where the prompt leaves no room in the context."""
    wanted = spec.sampling.max_tokens if requested is None else min(spec.sampling.max_tokens, requested)
    return min(wanted, spec.context - prompt_tokens)


def sampling(spec: SessionSpec, index: int) -> dict[str, Any]:
    """Sampling fields of the `index`-th call; the seed differs from call to call and is stable across runs."""
    fields: dict[str, Any] = {"temperature": spec.sampling.temperature, "top_p": spec.sampling.top_p}
    if spec.seed is not None:
        digest = hashlib.blake2b(f"{spec.seed}:{index}".encode(), digest_size=4).digest()
        fields["seed"] = int.from_bytes(digest, "big") & 0x7FFF_FFFF
    return fields
