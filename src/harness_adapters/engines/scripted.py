"""An engine that plays scripts through the engine HTTP contract: oracle sessions, tests, and users' own tests.

Invariants
- Which turn of a script answers is decided by the prompt alone (assistant turns in it, the open one aside), so any
  number of sessions can play one script at once and a repeated request gets a repeated answer.
- A text turn is tokenised canonically and closed with `<|im_end|>`; a turn given as ids is played as it is.
- Log-probs are `LOGPROB` for every token: a constant, there to be valid, not to be learned from.

Asymmetry: it serves scripts, not weights, so it refuses adapters and scoring instead of pretending.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aiohttp import web
from tokenizers import Tokenizer

from harness_adapters.errors import ConfigError

OWNER = "scripted"
"""What `owned_by` of a scripted model says in the engine's list."""

LOGPROB = -0.01
"""Natural-log probability reported for every scripted token."""

_START, _END = "<|im_start|>", "<|im_end|>"
_ROLE_WINDOW = 10
"""Tokens after `<|im_start|>` that surely hold the word `assistant`, at one byte a token."""


class Fault(StrEnum):
    """What may be wrong with a scripted turn, for tests of whoever asks."""

    NONE = ""
    ERROR = "error"
    DROP = "drop"
    NAN = "nan"
    MISALIGNED = "misaligned"
    NO_LOGPROBS = "no_logprobs"
    BAD_IDS = "bad_ids"
    WRONG_MODEL = "wrong_model"


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One completion: `text`, or exactly `ids` (the stop token included) where given.

    `logprobs` replaces the constant ones, `delay` waits that many seconds first. `ERROR` answers 500, `DROP` closes
    the connection without an answer; the other faults spoil the answer in the way they say.
    """

    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    delay: float = 0.0
    fault: Fault = Fault.NONE


class ScriptedEngine:
    """Scripts by model name. `requests` keeps the bodies of the latest `keep_requests` completion requests.

    Raises ConfigError for a tokenizer without ChatML's special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, *, keep_requests: int = 100) -> None:
        start, end = tokenizer.token_to_id(_START), tokenizer.token_to_id(_END)
        if start is None or end is None:
            raise ConfigError(f"the tokenizer lacks {_START} or {_END}", "scripts are played in ChatML")
        self._start, self._end = start, end
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._tokenizer.encode_special_tokens = True
        self._scripts: dict[str, tuple[ScriptedTurn, ...]] = {}
        self.requests: deque[dict[str, Any]] = deque(maxlen=keep_requests)
        self._answers = itertools.count(1)

    def add(self, name: str, turns: Sequence[str | ScriptedTurn]) -> None:
        """Play `turns` under the model name `name`, replacing an earlier script of that name."""
        self._scripts[name] = tuple(ScriptedTurn(text=turn) if isinstance(turn, str) else turn for turn in turns)

    def remove(self, name: str) -> None:
        """Forget a script; unknown names are fine."""
        self._scripts.pop(name, None)

    @contextlib.asynccontextmanager
    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve while the context is open; yields the root URL. Port 0 takes a free one."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", _health)
        app.router.add_post("/v1/load_lora_adapter", _no_adapters)
        app.router.add_post("/v1/unload_lora_adapter", _no_adapters)
        # A client that goes away cancels its turn: a slow one would else stay, after the engine itself is closed.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            yield f"http://{host}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"object": "list", "data": [{"id": name, "object": "model", "owned_by": OWNER} for name in self._scripts]}
        )

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        prompt, limit = body.get("prompt"), body.get("max_tokens")
        if not isinstance(prompt, list) or not isinstance(limit, int) or limit < 1:
            return _error(400, "prompt must be a list of token ids and max_tokens at least 1")
        if body.get("prompt_logprobs") is not None:
            return _error(400, "scripts have no weights to score a prompt with")
        script = self._scripts.get(body.get("model"))
        if script is None:
            return _error(404, f"no model {body.get('model')!r}")
        index = self._turn_index(prompt)
        if not 0 <= index < len(script):
            return _error(400, f"the script of {body['model']!r} has {len(script)} turns, asked was turn {index}")
        return await self._play(request, script[index], body)

    async def _play(self, request: web.Request, turn: ScriptedTurn, body: Mapping[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(turn.delay)
        if turn.fault is Fault.ERROR:
            return _error(500, "scripted failure")
        if turn.fault is Fault.DROP and request.transport is not None:
            request.transport.abort()
        whole = list(turn.ids) or [*self._encode(turn.text), self._end]
        ids = whole[: body["max_tokens"]]
        logprobs = list(turn.logprobs or [LOGPROB] * len(whole))[: len(ids)]
        choice = {
            "index": 0,
            "text": self._tokenizer.decode(ids, skip_special_tokens=True),
            "token_ids": ids,
            "logprobs": {"token_logprobs": logprobs, "tokens": [self._tokenizer.id_to_token(i) for i in ids]},
            "finish_reason": "stop" if len(ids) == len(whole) else "length",
        }
        answer = {
            "id": f"scripted-{next(self._answers)}",
            "object": "text_completion",
            "model": body["model"],
            "choices": [choice],
            "usage": {
                "prompt_tokens": len(body["prompt"]),
                "completion_tokens": len(ids),
                "total_tokens": len(body["prompt"]) + len(ids),
            },
        }
        _spoil(answer, choice, turn.fault)
        return web.json_response(answer)

    def _turn_index(self, prompt: Sequence[int]) -> int:
        """Finished assistant turns in a prompt, counted by ids: text that spells a special token is not one."""
        turns = 0
        for position, token in enumerate(prompt):
            if token == self._start:
                window = list(prompt[position + 1 : position + 1 + _ROLE_WINDOW])
                turns += self._tokenizer.decode(window, skip_special_tokens=False).startswith("assistant\n")
        return turns - 1

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _spoil(answer: dict[str, Any], choice: dict[str, Any], fault: Fault) -> None:
    """Make an answer wrong in the way `fault` says."""
    if fault is Fault.NAN:
        choice["logprobs"]["token_logprobs"][0] = float("nan")
    elif fault is Fault.MISALIGNED:
        choice["logprobs"]["token_logprobs"].pop()
    elif fault is Fault.NO_LOGPROBS:
        choice["logprobs"] = None
    elif fault is Fault.BAD_IDS:
        choice["token_ids"][0] = -1
    elif fault is Fault.WRONG_MODEL:
        answer["model"] = "base"


async def _health(request: web.Request) -> web.Response:
    return web.Response()


async def _no_adapters(request: web.Request) -> web.Response:
    return _error(400, "scripts take no adapters")


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "scripted"}}, status=status)
