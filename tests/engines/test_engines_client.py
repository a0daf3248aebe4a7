"""The engine client believes nothing unchecked: whatever leaves the contract is an EngineError that says what."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from harness_adapters.engines.client import Completion, CompletionRequest, EngineClient
from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY

ASK = CompletionRequest(BASE_POLICY, (5, 6, 7), max_tokens=3, seed=1)
SCORED = CompletionRequest(BASE_POLICY, (5, 6, 7), max_tokens=3, prompt_logprobs=True)
ANSWER: dict[str, Any] = {
    "choices": [
        {
            "index": 0,
            "text": "hi",
            "token_ids": [8, 9],
            "logprobs": {"token_logprobs": [-0.5, -1.5], "tokens": ["a", "b"]},
            "prompt_logprobs": [None, {"6": {"logprob": -2.0}, "1": {"logprob": -0.1}}, {"7": {"logprob": -3.0}}],
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens_details": {"cached_tokens": 2}},
}


class Canned:
    """A server that answers completions with `answer` whatever is asked, and lists the base only."""

    def __init__(self, answer: object, status: int = 200, knows: bool = False, adapters: bool = True) -> None:
        self.answer, self.status, self.knows, self.adapters = answer, status, knows, adapters
        self.seen: list[Any] = []

    async def complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.seen.append(body)
        if self.knows and body["model"] != BASE_POLICY:
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        if isinstance(self.answer, bytes):
            return web.Response(body=self.answer, status=self.status)
        return web.json_response(self.answer, status=self.status)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": BASE_POLICY}]})

    async def load(self, _: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "bad name"}}, status=400)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[EngineClient]:
        app = web.Application()
        app.router.add_post("/v1/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        if self.adapters:
            app.router.add_post("/v1/load_lora_adapter", self.load)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with EngineClient(f"http://127.0.0.1:{runner.addresses[0][1]}/") as client:
                yield client
        finally:
            await runner.cleanup()


def ask(canned: Canned, work: Callable[[EngineClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with canned.client() as client:
            return await work(client)

    return asyncio.run(run())


def changed(**choice: Any) -> dict[str, Any]:
    answer = copy.deepcopy(ANSWER)
    answer["choices"][0].update(choice)
    return answer


ONE = changed(token_ids=[8], logprobs={"token_logprobs": [-0.5]})


def test_a_good_answer_is_read_whole() -> None:
    canned = Canned(ANSWER)
    assert ask(canned, lambda client: client.complete(SCORED)) == Completion(
        (8, 9), (-0.5, -1.5), "stop", "hi", (None, -2.0, -3.0), 2
    )
    assert ask(Canned(ONE), lambda client: client.score(BASE_POLICY, [5, 6, 7])) == [None, -2.0, -3.0]
    assert canned.seen[0]["prompt"] == [5, 6, 7]
    assert "seed" not in canned.seen[0]


BROKEN: dict[str, tuple[object, str]] = {
    "not JSON": (b"<html>", "not JSON"),
    "a list": ([], "not a JSON object"),
    "no choice": ({"choices": []}, "one choice"),
    "two choices": ({"choices": ANSWER["choices"] * 2}, "one choice"),
    "no token ids": (changed(token_ids=None), "token ids"),
    "token ids as text": (changed(token_ids=["8", "9"]), "token ids"),
    "a boolean token": (changed(token_ids=[8, True]), "token ids"),
    "no log-probs": (changed(logprobs=None), "log-probs"),
    "one log-prob fewer": (changed(logprobs={"token_logprobs": [-0.5]}), "2 token ids but 1"),
    "a log-prob that is null": (changed(logprobs={"token_logprobs": [-0.5, None]}), "None"),
    "a log-prob that is text": (changed(logprobs={"token_logprobs": [-0.5, "x"]}), "'x'"),
    "a log-prob above zero": (changed(logprobs={"token_logprobs": [-0.5, 0.7]}), "0.7"),
    "a log-prob of minus infinity": (
        b'{"choices":[{"token_ids":[8],"logprobs":{"token_logprobs":[-1e999]},"finish_reason":"stop"}]}',
        "log-prob|JSON",
    ),
    "more tokens than asked for": (
        changed(token_ids=[1, 2, 3, 4], logprobs={"token_logprobs": [-1.0] * 4}),
        "4 tokens",
    ),
    "no tokens": (changed(token_ids=[], logprobs={"token_logprobs": []}), "0 tokens"),
    "another end": (changed(finish_reason="abort"), "abort"),
    "no prompt log-probs": (changed(prompt_logprobs=None), "prompt_logprobs"),
    "a prompt log-prob fewer": (changed(prompt_logprobs=[None, {"6": {"logprob": -2.0}}]), "2 prompt_logprobs"),
    "a log-prob without context": (changed(prompt_logprobs=[{"5": {"logprob": -1.0}}, None, None]), "first"),
    "another token's log-prob": (
        changed(prompt_logprobs=[None, {"6": {"logprob": -1.0}}, {"8": {"logprob": -1.0}}]),
        "token 7",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_answer_outside_the_contract_is_an_error(what: str) -> None:
    answer, message = BROKEN[what]
    with pytest.raises(EngineError, match=message):
        ask(Canned(answer), lambda client: client.complete(SCORED))


def test_a_refusal_carries_the_engines_own_words() -> None:
    for body in ({"error": {"message": "too long"}}, {"message": "too long"}, b"too long"):
        with pytest.raises(EngineError, match=r"400.*too long"):
            ask(Canned(body, status=400), lambda client: client.complete(ASK))


def test_an_engine_that_is_not_there_is_an_engine_error() -> None:
    async def run() -> None:
        async with EngineClient("http://127.0.0.1:1") as client:
            assert not await client.health()
            with pytest.raises(EngineError, match="cannot talk"):
                await client.complete(ASK)
            with pytest.raises(EngineError, match="cannot talk"):
                await client.probe()

    asyncio.run(run())


def test_a_connection_that_breaks_in_an_answer_is_an_engine_error() -> None:
    async def run() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, EngineClient(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(EngineError, match="cannot talk"):
                await client.complete(ASK)

    asyncio.run(run())


def test_a_closed_client_says_so() -> None:
    with pytest.raises(EngineError, match="closed"):
        asyncio.run(EngineClient("http://127.0.0.1:1").complete(ASK))


LACKING: dict[str, tuple[Canned, tuple[str, ...]]] = {
    "token ids": (Canned(changed(token_ids=None), knows=True), ("no token ids", "prompt_logprobs")),
    "log-probs": (Canned(changed(logprobs=None), knows=True), ("no log-probs", "prompt_logprobs")),
    "a 404": (Canned(ONE), ("status 200, not 404",)),
    "adapters": (Canned(ONE, knows=True, adapters=False), ("LoRA",)),
    "token-id prompts": (Canned({"error": {"message": "text only"}}, status=400), ("text only",)),
}


@pytest.mark.parametrize("what", LACKING)
def test_a_probe_says_in_words_what_is_lacking(what: str) -> None:
    canned, words = LACKING[what]
    lacks = "; ".join(ask(canned, lambda client: client.probe()))
    for word in words:
        assert word in lacks


def test_a_probe_finds_logprobs_that_ignore_the_temperature() -> None:
    """The drawn token has the same log-prob at temperature 4 as when it is scored at temperature 1."""

    class Raw(Canned):
        async def complete(self, request: web.Request) -> web.Response:
            body = await request.json()
            scores = [None, *({str(token): {"logprob": -1.0}} for token in body["prompt"][1:])]
            self.answer = changed(token_ids=[9], logprobs={"token_logprobs": [-1.0]}, prompt_logprobs=scores)
            return await super().complete(request)

    (lack,) = ask(Raw(ANSWER, knows=True), lambda client: client.probe())
    assert "ignore the temperature" in lack


def test_a_probe_of_a_model_that_is_not_served_says_so() -> None:
    (lack,) = ask(Canned(ONE), lambda client: client.probe("other"))
    assert "other" in lack
