"""The engine contract as checks that any server can be run through: vLLM, the embedded engine, your own.

    async def main() -> None:
        subject = EngineUnderTest(url, base="base", vocabulary=49_152, context=8_192, adapters=(folder_a, folder_b))
        for check in CHECKS:
            await check(subject)

Each check is an async function of the engine under test that raises AssertionError, or EngineError from the client,
saying what does not hold. Checks need no order and leave the engine as they found it: no adapter stays loaded.

Asymmetry: what only this project's server promises (its messages, its refusal of unknown fields) is not in here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from harness_adapters.engines.client import Completion, CompletionRequest, EngineClient
from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY

_SERIAL = itertools.count()


@dataclass(frozen=True, slots=True)
class EngineUnderTest:
    """`adapters` are two different PEFT folders on the engine's disk; `tolerance` bounds |Δ log-prob| in nats."""

    url: str
    vocabulary: int
    context: int
    adapters: tuple[Path, Path]
    base: str = BASE_POLICY
    tolerance: float = 1e-4

    def prompt(self, seed: int, length: int = 12) -> tuple[int, ...]:
        """A prompt of its own for each seed."""
        return tuple((seed * 7919 + i * i * 31 + i * 17) % (self.vocabulary - 4) + 4 for i in range(length))


Check = Callable[[EngineUnderTest], Awaitable[None]]


async def check_it_is_healthy_and_lists_the_base(subject: EngineUnderTest) -> None:
    async with EngineClient(subject.url) as client:
        assert await client.health(), "GET /health is not 200"
        assert subject.base in await client.models(), "GET /v1/models does not list the base model"


async def check_the_probe_finds_nothing_lacking(subject: EngineUnderTest) -> None:
    async with EngineClient(subject.url) as client:
        lacks = await client.probe(subject.base)
        assert not lacks, "; ".join(lacks)


async def check_one_seed_gives_one_answer(subject: EngineUnderTest) -> None:
    ask = CompletionRequest(subject.base, subject.prompt(1), max_tokens=8, temperature=0.9, seed=11)
    async with EngineClient(subject.url) as client:
        first, second = await client.complete(ask), await client.complete(ask)
        assert first.token_ids == second.token_ids, "the same seed gave different tokens"
        _assert_close(subject, first.logprobs, second.logprobs, "the same request twice")


async def check_a_length_limit_ends_an_answer(subject: EngineUnderTest) -> None:
    async with EngineClient(subject.url) as client:
        answer = await client.complete(CompletionRequest(subject.base, subject.prompt(2), max_tokens=3, seed=1))
        assert (len(answer.token_ids), answer.finish_reason) == (3, "length")


async def check_the_stop_token_is_part_of_the_answer(subject: EngineUnderTest) -> None:
    """The third token of a free answer, made a stop token, ends the same answer with itself and its log-prob."""
    ask = CompletionRequest(subject.base, subject.prompt(3), max_tokens=6, seed=5)
    async with EngineClient(subject.url) as client:
        free = await client.complete(ask)
        stop = free.token_ids[2]
        end = free.token_ids.index(stop) + 1
        stopped = await client.complete(
            CompletionRequest(subject.base, ask.prompt_ids, max_tokens=6, seed=5, stop_token_ids=(stop,))
        )
        assert stopped.finish_reason == "stop"
        assert stopped.token_ids == free.token_ids[:end], "the stop token is not the last token of the answer"
        _assert_close(subject, stopped.logprobs, free.logprobs[:end], "an answer that a stop token ended")


async def check_sampled_logprobs_equal_scores(subject: EngineUnderTest) -> None:
    """At temperature 1 the log-probs of an answer are those that scoring it as a prompt gives."""
    prompt = subject.prompt(4)
    async with EngineClient(subject.url) as client:
        answer = await client.complete(CompletionRequest(subject.base, prompt, max_tokens=8, seed=3))
        scores = await client.score(subject.base, prompt + answer.token_ids)
        assert scores[0] is None
        _assert_close(subject, answer.logprobs, scores[len(prompt) :], "sampled against scored")


async def check_a_reused_prefix_changes_nothing(subject: EngineUnderTest) -> None:
    """A session's second request (first prompt, answer, new tokens) scores as when nothing was cached."""
    prompt = subject.prompt(5, length=40)
    async with EngineClient(subject.url) as client:
        first = await client.complete(CompletionRequest(subject.base, prompt, max_tokens=4, seed=3))
        longer = prompt + first.token_ids + subject.prompt(6)
        second = await client.complete(CompletionRequest(subject.base, longer, max_tokens=4, seed=3))
        scores = await client.score(subject.base, longer + second.token_ids)
        _assert_close(subject, second.logprobs, scores[len(longer) :], "after a reused prefix")


async def check_an_unknown_model_is_404(subject: EngineUnderTest) -> None:
    ask = CompletionRequest("no-such-model", subject.prompt(7), max_tokens=1)
    status, body = await _post(subject, "/v1/completions", ask.to_json())
    assert status == 404, f"status {status} for an unknown model"
    assert isinstance(body.get("error"), Mapping), "an error has no `error` object"
    assert body["error"].get("message"), "an error has no message"


async def check_what_cannot_be_answered_is_refused(subject: EngineUnderTest) -> None:
    good = CompletionRequest(subject.base, subject.prompt(8), max_tokens=1).to_json()
    bad: dict[str, dict[str, Any]] = {
        "a prompt longer than the context": {"prompt": subject.prompt(8, subject.context + 1)},
        "a token outside the vocabulary": {"prompt": [subject.vocabulary + 7]},
        "an empty prompt": {"prompt": []},
        "a negative temperature": {"temperature": -1.0},
        "a top_p above one": {"top_p": 1.5},
    }
    for what, change in bad.items():
        status, _ = await _post(subject, "/v1/completions", {**good, **change})
        assert status in (400, 422), f"status {status} for {what}"


async def check_adapters_come_and_go(subject: EngineUnderTest) -> None:
    name = _new_name()
    ask = CompletionRequest(name, subject.prompt(9), max_tokens=2, seed=0)
    async with EngineClient(subject.url) as client:
        await client.load_adapter(name, subject.adapters[0])
        assert name in await client.models()
        await client.complete(ask)
        body = {"lora_name": name, "lora_path": str(subject.adapters[0])}
        assert (await _post(subject, "/v1/load_lora_adapter", body))[0] == 400, "a name was loaded twice"
        await client.unload_adapter(name)
        assert name not in await client.models()
    assert (await _post(subject, "/v1/completions", ask.to_json()))[0] == 404, "an unloaded adapter is still served"
    assert (await _post(subject, "/v1/unload_lora_adapter", {"lora_name": name}))[0] == 404


async def check_a_folder_without_adapter_is_refused(subject: EngineUnderTest) -> None:
    name = _new_name()
    body = {"lora_name": name, "lora_path": str(subject.adapters[0] / "nothing-here")}
    status, _ = await _post(subject, "/v1/load_lora_adapter", body)
    assert status in (400, 404), f"status {status} for an adapter folder that is not there"
    async with EngineClient(subject.url) as client:
        assert name not in await client.models()


async def check_adapters_differ_and_reload_equal(subject: EngineUnderTest) -> None:
    """Two adapters and the base score one text differently; the same folder under a new name scores it equally."""
    text = subject.prompt(10, length=24)
    async with EngineClient(subject.url) as client:
        base = await client.score(subject.base, text)
        async with _loaded(client, subject.adapters[0]) as one, _loaded(client, subject.adapters[1]) as other:
            first, second = await client.score(one, text), await client.score(other, text)
        async with _loaded(client, subject.adapters[0]) as again:
            _assert_close(subject, first, await client.score(again, text), "a reloaded adapter")
        for left, right in ((base, first), (base, second), (first, second)):
            assert _distance(left, right) > 10 * subject.tolerance, "an adapter has no effect, or another one's"


async def check_a_mixed_batch_equals_each_alone(subject: EngineUnderTest) -> None:
    """Requests for the base and two adapters, sent together, are answered as if each had been alone."""
    async with (
        EngineClient(subject.url) as client,
        _loaded(client, subject.adapters[0]) as one,
        _loaded(client, subject.adapters[1]) as other,
    ):
        asks = [
            CompletionRequest(name, subject.prompt(20 + i // 2, 10 + i), max_tokens=6, temperature=0.8, seed=i)
            for i, name in enumerate((subject.base, one, other, one, subject.base, other))
        ]
        alone = [await client.complete(ask) for ask in asks]
        together = await asyncio.gather(*(client.complete(ask) for ask in asks))
        for ask, left, right in zip(asks, alone, together, strict=True):
            _assert_same(subject, left, right, f"{ask.model} in a mixed batch")


async def check_a_client_that_leaves_harms_nobody(subject: EngineUnderTest) -> None:
    ask = CompletionRequest(subject.base, subject.prompt(30), max_tokens=5, seed=2)
    endless = CompletionRequest(subject.base, subject.prompt(31), max_tokens=subject.context // 2, seed=2)
    async with EngineClient(subject.url) as client:
        before = await client.complete(ask)
        leaving = asyncio.create_task(client.complete(endless))
        await asyncio.sleep(0.05)
        leaving.cancel()
        _assert_same(subject, before, await client.complete(ask), "a request beside one that left")


CHECKS: tuple[Check, ...] = (
    check_it_is_healthy_and_lists_the_base,
    check_the_probe_finds_nothing_lacking,
    check_one_seed_gives_one_answer,
    check_a_length_limit_ends_an_answer,
    check_the_stop_token_is_part_of_the_answer,
    check_sampled_logprobs_equal_scores,
    check_a_reused_prefix_changes_nothing,
    check_an_unknown_model_is_404,
    check_what_cannot_be_answered_is_refused,
    check_adapters_come_and_go,
    check_a_folder_without_adapter_is_refused,
    check_adapters_differ_and_reload_equal,
    check_a_mixed_batch_equals_each_alone,
    check_a_client_that_leaves_harms_nobody,
)


def _new_name() -> str:
    return f"contract-check-{next(_SERIAL)}"


@asynccontextmanager
async def _loaded(client: EngineClient, folder: Path) -> AsyncIterator[str]:
    name = _new_name()
    await client.load_adapter(name, folder)
    try:
        yield name
    finally:
        await client.unload_adapter(name)


async def _post(subject: EngineUnderTest, path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as session, session.post(subject.url + path, json=body) as response:
        try:
            data = await response.json(content_type=None)
        except ValueError as error:
            if response.status == 200:
                raise EngineError(f"{path} answers 200 with something that is not JSON") from error
            data = {}
        return response.status, data if isinstance(data, dict) else {}


def _distance(left: Any, right: Any) -> float:
    assert len(left) == len(right)
    return max((abs(a - b) for a, b in zip(left, right, strict=True) if a is not None and b is not None), default=0.0)


def _assert_close(subject: EngineUnderTest, left: Any, right: Any, what: str) -> None:
    distance = _distance(left, right)
    assert distance <= subject.tolerance, f"log-probs differ by {distance:.2g} nats: {what}"


def _assert_same(subject: EngineUnderTest, left: Completion, right: Completion, what: str) -> None:
    assert left.token_ids == right.token_ids, f"other tokens: {what}"
    _assert_close(subject, left.logprobs, right.logprobs, what)
