"""One session's conversation: limits, then the engine, then the record, then the guard, then the answer.

Invariants
- Every completion that came back is recorded, whether its answer reaches the harness or not.
- The first thing that ends a session stays; later requests get the same final text and no model call.
- A failure of the engine or of our own code ends the session as `infra`; it never looks like the agent's doing.

Asymmetry: a *persistent* session (a person's own harness) is not ended by a block, a full context or a failure: the
request fails or is refused, the next one is served.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass
from typing import Any

from harness_adapters.errors import EngineError, HarnessAdaptersError
from harness_adapters.gateway import limits
from harness_adapters.gateway.capture import Prompt, RecordedCall, TokenRecord, new_call
from harness_adapters.gateway.dialects.chat import ChatAnswer, ChatRequest
from harness_adapters.gateway.holdback import HoldBack, VerdictLog, notice
from harness_adapters.gateway.renderers.protocol import ParsedTurn, Renderer
from harness_adapters.gateway.spec import SessionCapture, SessionSpec
from harness_adapters.gateway.upstream import Generation, Upstream
from harness_adapters.records import Call, CallLabel

log = logging.getLogger(__name__)

_REMEMBERED_CALLS = 256
"""Calls a persistent session can be continued from."""

_LONG_HISTORY = 200_000
"""Characters above which a history is tokenised beside the event loop."""


class SessionFailed(Exception):
    """A request of a persistent session that could not be answered; the text is for its person."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A completion taken apart, its calls under the ids that the harness will see."""

    parsed: ParsedTurn
    calls: tuple[Call, ...]


class Session:
    """The conversation behind one listener or path. Not thread-safe: one event loop."""

    def __init__(
        self,
        spec: SessionSpec,
        upstream: Upstream,
        renderer: Renderer,
        verdict_log: VerdictLog | None = None,
        *,
        persistent: bool = False,
    ) -> None:
        spec.check()
        self.spec = spec
        self._upstream = upstream
        self._renderer = renderer
        self._holdback = HoldBack(spec, verdict_log)
        self._persistent = persistent
        self._record = TokenRecord(renderer, keep=_REMEMBERED_CALLS if persistent else 0)
        self._started = 0
        self._final_texts = 0
        self._tool_calls = 0
        self._ended = ""
        self._infra = ""
        self._last_turn_final = False
        self._closed = False

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """The turn that may leave for this request; raises only SessionFailed (persistent sessions) or cancellation."""
        over = self._ended or limits.reached(self.spec, self._started, time.monotonic())
        if over:
            return self._end(over)
        index = self._started
        self._started += 1
        try:
            return await self._answer(index, request)
        except TimeoutError:
            return self._end("deadline")
        except EngineError as error:
            return self._fail(f"engine: {error}")
        except Exception as error:  # our bug, a rule that raises included: withhold the turn, void the session
            log.exception("session %s: the gateway failed", self.spec.id)
            return self._fail(f"gateway: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Write the guard's counts, once; a log that refuses them voids the session."""
        if self._closed:
            return
        self._closed = True
        try:
            self._holdback.close()
        except HarnessAdaptersError as error:
            log.warning("session %s: the verdict log failed: %s", self.spec.id, error)
            self._infra = self._infra or f"verdict log: {error}"

    def capture(self) -> SessionCapture:
        ended = "" if self._infra else self._ended or ("model" if self._last_turn_final else "")
        return SessionCapture(self._record.calls(), self._tool_calls, ended, self._infra)

    async def _answer(self, index: int, request: ChatRequest) -> ChatAnswer:
        prompt = await self._prompt(request)
        room = limits.answer_room(self.spec, len(prompt.ids), request.max_tokens)
        if room < 1:
            if index == 0:
                log.warning(
                    "session %s: its first prompt of %d tokens does not fit a context of %d: raise session.context or "
                    "shorten the task",
                    self.spec.id,
                    len(prompt.ids),
                    self.spec.context,
                )
            return self._end("context")
        started, clock = time.time(), time.monotonic()
        generation = await self._generate(index, prompt, room)
        parsed = self._renderer.parse(generation.token_ids)
        turn = _Turn(parsed, self._calls(index, parsed))
        seconds = time.monotonic() - clock
        recorded = self._remember(index, prompt, generation, turn, started=started, seconds=seconds)
        verdicts = self._holdback.judge(request, turn.calls)
        recorded.judged(verdicts)
        refusal = notice(turn.calls, verdicts)
        if refusal:
            self._ended = "" if self._persistent else "blocked"
            turn = _Turn(ParsedTurn(refusal), ())
        return self._written(index, prompt, generation, turn)

    async def _prompt(self, request: ChatRequest) -> Prompt:
        # Tokenising megabytes takes seconds; in a thread it lets other sessions go on meanwhile.
        if sum(len(message["content"]) for message in request.messages) > _LONG_HISTORY:
            return await asyncio.to_thread(self._record.prompt, request)
        return self._record.prompt(request)

    async def _generate(self, index: int, prompt: Prompt, room: int) -> Generation:
        """Raises EngineError, or TimeoutError at the session's deadline."""
        payload: dict[str, Any] = {
            "model": self.spec.policy,
            "prompt": prompt.ids,
            "max_tokens": room,
            "stop_token_ids": list(self._renderer.stop_ids),
            "logprobs": 0,
            "return_token_ids": True,
            **limits.sampling(self.spec, index),
        }
        left = None if math.isinf(self.spec.deadline) else self.spec.deadline - time.monotonic()
        async with asyncio.timeout(left):
            return await self._upstream.generate(payload)

    def _calls(self, index: int, parsed: ParsedTurn) -> tuple[Call, ...]:
        return tuple(
            Call(self._record.call_id(index, position), call.name, call.arguments)
            for position, call in enumerate(parsed.tool_calls)
        )

    def _remember(
        self, index: int, prompt: Prompt, generation: Generation, turn: _Turn, *, started: float, seconds: float
    ) -> RecordedCall:
        call = new_call(
            index,
            self.spec.policy,
            prompt,
            generation.token_ids,
            generation.logprobs,
            generation.finish_reason,
            text=self._renderer.decode(generation.token_ids),
            tool_calls=turn.calls,
            started=started,
            seconds=seconds,
        )
        recorded = self._record.add(prompt, call, content=turn.parsed.content, fault=generation.fault)
        self._tool_calls += len(turn.calls)
        if recorded.call.label is not CallLabel.AUXILIARY:
            self._last_turn_final = not turn.calls
        return recorded

    def _written(self, index: int, prompt: Prompt, generation: Generation, turn: _Turn) -> ChatAnswer:
        finish = "tool_calls" if turn.calls else "stop"
        if generation.finish_reason == "length" and not self._ended:
            finish = "length"
        return ChatAnswer(
            id=self._answer_id(str(index)),
            content=turn.parsed.content,
            finish_reason=finish,
            reasoning=turn.parsed.reasoning,
            tool_calls=turn.calls,
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(generation.token_ids),
        )

    def _end(self, cause: str) -> ChatAnswer:
        if not self._persistent and not self._ended:
            self._ended = cause
        self._final_texts += 1
        return ChatAnswer(id=self._answer_id(f"end{self._final_texts}"), content=limits.FINAL_TEXTS[cause])

    def _fail(self, cause: str) -> ChatAnswer:
        log.warning("session %s: %s", self.spec.id, cause)
        if self._persistent:
            raise SessionFailed(cause)
        self._infra = self._infra or cause
        return self._end("infra")

    def _answer_id(self, suffix: str) -> str:
        return f"chatcmpl-{self.spec.id}-{suffix}"
