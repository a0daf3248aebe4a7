"""The guard in front of a turn: all its tool calls are judged before anything of the turn is written.

Invariants
- Verdicts are in the order of the calls; a later call of a turn is judged with the earlier ones in its history.
- Of a turn with a blocked call nothing is passed on, neither text nor reasoning nor the good calls beside it: what
  the harness gets is a notice of ours. It names the rule, and its reason unless that repeats the call.
- A call that the guard fails on is withheld and logged with its input; the session is worthless, not wrong.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness_adapters.errors import InfraError
from harness_adapters.gateway.dialects.chat import ChatRequest
from harness_adapters.gateway.spec import SessionSpec
from harness_adapters.records import Call, Decision, Message, Verdict

if TYPE_CHECKING:
    from harness_adapters.guard import Guard

VerdictLog = Callable[[Mapping[str, Any]], None]

_TELLING_LENGTH = 4
"""Shorter argument strings (`-v`, `no`) turn up in any sentence and tell nothing."""


class HoldBack:
    """Judges the calls of one session and logs the verdicts; without a policy everything passes, unlogged."""

    def __init__(self, spec: SessionSpec, log: VerdictLog | None) -> None:
        self._spec = spec
        self._log = log
        self._guard = _open_guard(spec)
        self._counts: Counter[str] = Counter()
        self._turn = 0

    def judge(self, request: ChatRequest, calls: Sequence[Call]) -> tuple[Verdict, ...]:
        """One verdict for each call; none where the session has no guard."""
        if self._guard is None:
            return ()
        verdicts: list[Verdict] = []
        history: list[Message] = list(request.sent)
        self._turn += 1
        for call in calls:
            started = time.perf_counter()
            verdict = self._guard.judge(call, declared=request.declared, messages=history)
            micros = round((time.perf_counter() - started) * 1e6)
            verdicts.append(verdict)
            self._counts[verdict.decision.value] += 1
            if verdict.decision is not Decision.ALLOW:
                self._write(self._entry(self._guard, verdict, call, request, history, micros))
            history.append(_as_message(call))
            if verdict.decision is Decision.ERROR:
                raise InfraError(f"the guard failed on a call of {call.name[:40]!r}", verdict.evidence[:200])
        return tuple(verdicts)

    def close(self) -> None:
        """Log how many calls were decided how, if any were."""
        if self._counts:
            self._write({**self._head("counts"), "counts": {d.value: self._counts[d.value] for d in Decision}})

    def _entry(
        self, guard: Guard, verdict: Verdict, call: Call, request: ChatRequest, history: list[Message], micros: int
    ) -> dict[str, Any]:
        """What the log says of a call that was not simply allowed; secrets are taken out before anything is written."""
        from harness_adapters.guard import case_of, log_entry
        from harness_adapters.scrub import secrets_redactor

        case = case_of(
            call,
            harness=self._spec.tool_map.harness,
            declared=request.declared,
            messages=history,
            policy=guard.policy,
        )
        head = {**self._head("verdict"), "turn": self._turn, "policy_hash": guard.policy.digest, "micros": micros}
        entry: dict[str, Any] = secrets_redactor().value({**log_entry(verdict, call, **head), "case": case})
        return entry

    def _head(self, kind: str) -> dict[str, Any]:
        return {"kind": kind, "time": time.time(), "session": self._spec.id, "policy": self._spec.policy}

    def _write(self, entry: Mapping[str, Any]) -> None:
        if self._log is not None:
            self._log(entry)


def notice(calls: Sequence[Call], verdicts: Sequence[Verdict]) -> str:
    """What a harness reads in place of a turn with a blocked call; empty where none is blocked."""
    blocked = [(call, verdict) for call, verdict in zip(calls, verdicts, strict=False) if verdict.blocked]
    if not blocked:
        return ""
    told = {call.name for call, _ in blocked}
    told |= {text for call, _ in blocked for text in _strings(call.arguments) if len(text) >= _TELLING_LENGTH}
    lines = []
    for _, verdict in blocked:
        reason = "" if any(text in verdict.reason for text in told) else verdict.reason
        lines.append(f"A tool call was blocked by rule {verdict.rule}" + (f": {reason}" if reason else "."))
    return "\n".join(lines)


def _open_guard(spec: SessionSpec) -> Guard | None:
    if spec.guard is None:
        return None
    from harness_adapters.guard import Guard

    return Guard(spec.guard, spec.tool_map)


def _as_message(call: Call) -> Message:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }


def _strings(value: Any) -> Iterator[str]:
    """All strings in an arguments value, keys left out: those are the tool's, not the call's."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
