"""A client of any engine that speaks the token contract; nothing an engine answers is believed unchecked.

The contract is vLLM's: token-id prompts in, token ids and their log-probs out, adapters loaded and unloaded by name.

Invariants
- A `Completion` has as many log-probs as token ids, all finite.
- Whatever goes wrong (no connection, a status other than 200, an answer outside the contract) is an EngineError.

Asymmetry: `complete` has no time limit of its own, since only the caller knows its session's deadline: cancel it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import orjson

from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY

CONNECT_SECONDS = 10.0
PROBE_SECONDS = 60.0
PROBE_PROMPT = (1, 2, 3)
NO_SUCH_MODEL = "harness-adapters-probe-of-an-unknown-model"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What to sample. `stop_token_ids` end the answer and are part of it; `prompt_logprobs` asks for scores too."""

    model: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    prompt_logprobs: bool = False

    def to_json(self) -> dict[str, Any]:
        """The body of `POST /v1/completions`."""
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": self.prompt_ids,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop_token_ids": self.stop_token_ids,
            "logprobs": 0,
            "return_token_ids": True,
        }
        if self.seed is not None:
            body["seed"] = self.seed
        if self.prompt_logprobs:
            body["prompt_logprobs"] = 0
        return body


@dataclass(frozen=True, slots=True)
class Completion:
    """What was sampled, and natural-log probabilities under the distribution it was sampled from.

    `prompt_logprobs` (where asked for) is at temperature 1, one entry a prompt token, None where there is none.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    text: str = ""
    prompt_logprobs: tuple[float | None, ...] | None = None
    cached_tokens: int = 0


@dataclass(slots=True)
class EngineClient:
    """Async context manager; one connection pool to the engine at `url`."""

    url: str
    _session: aiohttp.ClientSession | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")

    async def __aenter__(self) -> EngineClient:
        # No limit on connections: the engine queues, and a session waiting here would not be seen by its batcher.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def complete(self, request: CompletionRequest) -> Completion:
        """Sample. Raises EngineError on anything outside the contract."""
        status, body = await self._call("POST", "/v1/completions", request.to_json())
        _expect_ok(status, body, f"the engine refused a completion of {request.model!r}")
        return _read_completion(request, _parse(body))

    async def score(self, model: str, token_ids: tuple[int, ...] | list[int]) -> list[float | None]:
        """Log-prob of each token given those before it, at temperature 1; the first has none."""
        request = CompletionRequest(model, tuple(token_ids), max_tokens=1, prompt_logprobs=True)
        scores = (await self.complete(request)).prompt_logprobs
        assert scores is not None
        return list(scores)

    async def models(self) -> list[str]:
        """Names served now, the base's among them."""
        status, body = await self._call("GET", "/v1/models")
        _expect_ok(status, body, "the engine does not list its models")
        data = _parse(body).get("data")
        if not isinstance(data, list) or not all(isinstance(c, Mapping) and isinstance(c.get("id"), str) for c in data):
            raise EngineError("the engine's list of models has no ids")
        return [card["id"] for card in data]

    async def health(self) -> bool:
        """Whether the engine says it is well; False also where it cannot be reached."""
        try:
            status, _ = await self._call("GET", "/health")
        except EngineError:
            return False
        return status == 200

    async def load_adapter(self, name: str, path: Path) -> None:
        """Serve the PEFT folder at `path` (on the engine's disk) as `name`. EngineError where the engine refuses."""
        status, body = await self._call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})
        _expect_ok(status, body, f"the engine did not load the adapter {name!r}")

    async def unload_adapter(self, name: str) -> None:
        """Stop serving `name`. EngineError where the engine refuses."""
        status, body = await self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        _expect_ok(status, body, f"the engine did not unload the adapter {name!r}")

    async def probe(self, model: str = BASE_POLICY) -> list[str]:
        """What the engine lacks, one sentence each; empty when it keeps the contract. EngineError if unreachable."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await self._probe(model)
        except TimeoutError:
            return [f"it does not answer a three-token prompt within {PROBE_SECONDS:g} seconds"]

    async def _probe(self, model: str) -> list[str]:
        lacks: list[str] = []
        if model not in await self.models():
            return [f"it does not serve a model named {model!r}"]
        ask = CompletionRequest(model, PROBE_PROMPT, max_tokens=2, seed=0)
        status, body = await self._call("POST", "/v1/completions", ask.to_json())
        if status != 200:
            return [f"it does not complete token-id prompts: status {status}, {_message(body)}"]
        lacks += _lacks_of_choice(_parse(body))
        if not lacks:
            lacks += await self._probe_temperature(ask)
        scored = CompletionRequest(model, PROBE_PROMPT, max_tokens=1, seed=0, prompt_logprobs=True)
        try:
            await self.complete(scored)
        except EngineError as error:
            lacks.append(f"it gives no prompt_logprobs: {error.message}")
        status, _ = await self._call("POST", "/v1/completions", {**ask.to_json(), "model": NO_SUCH_MODEL})
        if status != 404:
            lacks.append(f"it answers an unknown model name with status {status}, not 404")
        status, _ = await self._call("POST", "/v1/load_lora_adapter", {"lora_name": "", "lora_path": ""})
        if status in (404, 405, 501):
            lacks.append("it cannot load LoRA adapters while serving (vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True)")
        return lacks

    async def _probe_temperature(self, ask: CompletionRequest) -> list[str]:
        """A token drawn at temperature 4 has another log-prob there than at temperature 1, unless it is uniform."""
        hot = CompletionRequest(ask.model, ask.prompt_ids, max_tokens=1, temperature=4.0, seed=0)
        try:
            drawn = await self.complete(hot)
        except EngineError as error:
            return [f"it does not sample at temperature 4: {error.message}"]
        try:
            cold = (await self.score(ask.model, (*ask.prompt_ids, *drawn.token_ids)))[-1]
        except EngineError:
            return []
        if cold is not None and abs(cold - drawn.logprobs[0]) < 1e-6:
            return ["its log-probs ignore the temperature (vLLM: --logprobs-mode processed_logprobs)"]
        return []

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        if self._session is None:
            raise EngineError("the engine client is closed", "use it inside `async with`")
        data = orjson.dumps(body) if body is not None else None
        headers = {"content-type": "application/json"} if data is not None else {}
        try:
            async with self._session.request(method, self.url + path, data=data, headers=headers) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError(f"cannot talk to the engine at {self.url}: {error}", "check that it runs") from error


def _expect_ok(status: int, body: bytes, what: str) -> None:
    if status != 200:
        raise EngineError(f"{what}: status {status}, {_message(body)}")


def _message(body: bytes) -> str:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:200].decode("utf-8", "replace") or "no message"
    error = data.get("error", data) if isinstance(data, dict) else data
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]


def _parse(body: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise EngineError(f"the engine's answer is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise EngineError("the engine's answer is not a JSON object")
    return data


def _choice(data: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], Mapping):
        raise EngineError("the engine's answer does not hold exactly one choice")
    return choices[0]


def _read_completion(request: CompletionRequest, data: Mapping[str, Any]) -> Completion:
    choice = _choice(data)
    tokens, logprobs = _token_ids(choice), _logprobs(choice)
    if len(tokens) != len(logprobs):
        raise EngineError(f"the engine gave {len(tokens)} token ids but {len(logprobs)} log-probs")
    if not 1 <= len(tokens) <= request.max_tokens:
        raise EngineError(f"the engine gave {len(tokens)} tokens where 1 to {request.max_tokens} were asked for")
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise EngineError(f"the engine ended an answer with finish_reason {reason!r}")
    text = choice.get("text")
    return Completion(
        token_ids=tokens,
        logprobs=logprobs,
        finish_reason=reason,
        text=text if isinstance(text, str) else "",
        prompt_logprobs=_prompt_logprobs(request, choice) if request.prompt_logprobs else None,
        cached_tokens=_cached_tokens(data),
    )


def _token_ids(choice: Mapping[str, Any]) -> tuple[int, ...]:
    tokens = choice.get("token_ids")
    if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
        raise EngineError("the engine gives no token ids (return_token_ids)")
    return tuple(tokens)


def _logprobs(choice: Mapping[str, Any]) -> tuple[float, ...]:
    holder = choice.get("logprobs")
    values = holder.get("token_logprobs") if isinstance(holder, Mapping) else None
    if not isinstance(values, list):
        raise EngineError("the engine gives no log-probs of sampled tokens (logprobs)")
    return tuple(_finite(value) for value in values)


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value > 1e-3:
        raise EngineError(f"the engine gave {value!r} as a log-prob")
    return float(value)


def _prompt_logprobs(request: CompletionRequest, choice: Mapping[str, Any]) -> tuple[float | None, ...]:
    entries = choice.get("prompt_logprobs")
    if not isinstance(entries, list):
        raise EngineError("the engine gives no prompt_logprobs")
    if len(entries) != len(request.prompt_ids):
        raise EngineError(f"the engine gave {len(entries)} prompt_logprobs for {len(request.prompt_ids)} tokens")
    if entries[0] is not None:
        raise EngineError("the engine gave a log-prob for the first prompt token, which has no context")
    scores: list[float | None] = [None]
    for token, entry in zip(request.prompt_ids[1:], entries[1:], strict=True):
        found = entry.get(str(token)) if isinstance(entry, Mapping) else None
        if not isinstance(found, Mapping):
            raise EngineError(f"the engine's prompt_logprobs lack the prompt's own token {token}")
        scores.append(_finite(found.get("logprob")))
    return tuple(scores)


def _cached_tokens(data: Mapping[str, Any]) -> int:
    usage = data.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, Mapping) else None
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return cached if isinstance(cached, int) else 0


def _lacks_of_choice(data: Mapping[str, Any]) -> list[str]:
    lacks = []
    for check in (_token_ids, _logprobs):
        try:
            check(_choice(data))
        except EngineError as error:
            lacks.append(error.message.replace("the engine", "it", 1))
    return lacks
