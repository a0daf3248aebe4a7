"""The gateway's client of an engine: token ids in, token ids and log-probs out.

Invariants
- What comes back has ids inside the vocabulary, was answered under the name that was asked for, and finished by
  `stop` or `length`; anything else is an EngineError.
- Log-probs that are missing, misaligned, not finite or above 0 do not fail the call, because its ids are still what
  the agent goes on with: `logprobs` is empty and `fault` says why.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from harness_adapters.errors import EngineError


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled completion. `len(logprobs) == len(token_ids)`, or `logprobs` is empty and `fault` is not."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    fault: str = ""


class Upstream:
    """Async context manager over one connection pool. `url` is the engine's root, without `/v1`."""

    def __init__(self, url: str, *, vocab_size: int) -> None:
        self._url = url.rstrip("/")
        self._vocab_size = vocab_size
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Upstream:
        # No time limit here: a session's deadline bounds every call, and long answers are legitimate.
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30), connector=aiohttp.TCPConnector(limit=0)
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def owners(self) -> set[str]:
        """What the engine says its models are owned by. Raises EngineError where it does not list them."""
        status, body = await self._request("GET", "/v1/models")
        cards = _read_object(body, status).get("data")
        if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
            raise EngineError("the engine does not list its models")
        return {str(card.get("owned_by", "")) for card in cards}

    async def generate(self, payload: Mapping[str, Any]) -> Generation:
        """One `/v1/completions` call. Raises EngineError for whatever is outside the engine contract."""
        status, body = await self._request("POST", "/v1/completions", orjson.dumps(payload))
        data = _read_object(body, status)
        if status != 200:
            error = data.get("error")
            message = error.get("message") if isinstance(error, dict) else data.get("message")
            raise EngineError(f"the engine answered {status}: {message or 'no message'}", "see the engine's log")
        if data.get("model", payload["model"]) != payload["model"]:
            raise EngineError(
                f"the engine answered as {data['model']!r}, asked was {payload['model']!r}",
                "it may serve the base under an adapter's name",
            )
        return _read_generation(data, self._vocab_size)

    async def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        if self._http is None:
            raise EngineError("the gateway is not open", "use it as an async context manager")
        try:
            async with self._http.request(
                method, self._url + path, data=body, headers={"Content-Type": "application/json"}
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError(
                f"the engine at {self._url} failed: {error or type(error).__name__}", "is it running?"
            ) from error


def _read_object(body: bytes, status: int) -> dict[str, Any]:
    # json, not orjson: an engine with a NaN in its log-probs writes it, and that must reach the check below.
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise EngineError(f"the engine answered {status} with something that is not a JSON object", "see its log")
    return data


def _read_generation(data: Mapping[str, Any], vocab_size: int) -> Generation:
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    if not isinstance(choice, dict):
        raise EngineError("the engine did not answer with exactly one choice", "see the engine contract")
    ids = choice.get("token_ids")
    if not isinstance(ids, list) or not ids:
        raise EngineError("the engine returned no token_ids", "it must support return_token_ids")
    if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab_size for i in ids):
        raise EngineError(
            f"the engine returned token ids outside the vocabulary of {vocab_size}", "engine and tokenizer differ"
        )
    finish_reason = choice.get("finish_reason")
    if finish_reason not in ("stop", "length"):
        raise EngineError(f"the engine ended a completion with {finish_reason!r}", "expected stop or length")
    logprobs, fault = _read_logprobs(choice, len(ids))
    return Generation(tuple(ids), logprobs, finish_reason, fault)


def _read_logprobs(choice: Mapping[str, Any], length: int) -> tuple[tuple[float, ...], str]:
    holder = choice.get("logprobs")
    values = holder.get("token_logprobs") if isinstance(holder, dict) else None
    if not isinstance(values, list):
        return (), "log-probs are missing"
    if len(values) != length:
        return (), f"{len(values)} log-probs for {length} tokens"
    fault = _fault_of(values)
    return ((), fault) if fault else (tuple(float(value) for value in values), "")


def _fault_of(values: Sequence[Any]) -> str:
    for position, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"log-prob {position} is {value!r}"
        if not math.isfinite(value) or value > 0:
            return f"log-prob {position} is {value}"
    return ""
