"""The embedded engine's HTTP face: what is malformed is refused in words, what is asked for is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from engines_embedded_samples import tokens

from harness_adapters.engines.client import CompletionRequest, EngineClient
from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY
from harness_adapters.testing.tiny_models import save_tiny_llama

Work = Callable[[aiohttp.ClientSession, str], Awaitable[None]]
GOOD: dict[str, Any] = {"model": BASE_POLICY, "prompt": [1, 2, 3], "max_tokens": 2, "seed": 0}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("server") / "base")


@pytest.fixture
def engine(base: Path) -> EmbeddedEngine:
    return EmbeddedEngine(base, max_batch=2, prefix_cache_mb=1)


def serve(engine: EmbeddedEngine, work: Work) -> None:
    async def run() -> None:
        async with engine.serve() as url, aiohttp.ClientSession() as session:
            await work(session, url)

    asyncio.run(run())


def test_malformed_bodies_are_refused_in_words(engine: EmbeddedEngine) -> None:
    bad: dict[str, tuple[Any, str]] = {
        "text prompt": ({**GOOD, "prompt": "hello"}, "prompt"),
        "no prompt": ({k: v for k, v in GOOD.items() if k != "prompt"}, "prompt"),
        "a float token": ({**GOOD, "prompt": [1.5]}, "prompt.0"),
        "a boolean token": ({**GOOD, "prompt": [True]}, "prompt.0"),
        "a negative token": ({**GOOD, "prompt": [-1]}, "prompt.0"),
        "a token beyond the vocabulary": ({**GOOD, "prompt": [97]}, "97"),
        "a stop token beyond the vocabulary": ({**GOOD, "stop_token_ids": [4000]}, "4000"),
        "no tokens wanted": ({**GOOD, "max_tokens": 0}, "max_tokens"),
        "a temperature that overflows": ({**GOOD, "temperature": 1e-9}, "temperature"),
        "a top_p of zero": ({**GOOD, "top_p": 0}, "top_p"),
        "a seed too large": ({**GOOD, "seed": 1 << 64}, "seed"),
        "more log-probs than one": ({**GOOD, "logprobs": 5}, "logprobs"),
        "an unknown field": ({**GOOD, "top_k": 40}, "top_k"),
        "a stream": ({**GOOD, "stream": True}, "stream"),
        "a list": ([1], "body"),
        "a prompt as long as the context": ({**GOOD, "prompt": [1] * 1024}, "1024"),
    }

    async def work(session: aiohttp.ClientSession, url: str) -> None:
        for what, (body, message) in bad.items():
            async with session.post(url + "/v1/completions", json=body) as response:
                assert response.status == 400, what
                assert message in (await response.json())["error"]["message"], what
        for broken in (b"", b"{", b"\xff"):
            async with session.post(url + "/v1/completions", data=broken) as response:
                assert response.status == 400
        async with session.get(url + "/v1/nothing") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (404, 404)
        async with session.post(url + "/v1/load_lora_adapter", json={"lora_name": "x"}) as response:
            assert response.status == 400
        async with session.post(url + "/v1/completions", json=GOOD) as response:
            assert response.status == 200

    serve(engine, work)


def test_only_what_is_asked_for_is_answered(engine: EmbeddedEngine) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with session.post(url + "/v1/completions", json=GOOD) as response:
            data = await response.json()
        assert set(data["choices"][0]) == {"index", "text", "finish_reason"}
        assert data["usage"]["prompt_tokens"] == 3
        asked = {**GOOD, "logprobs": 0, "prompt_logprobs": 0, "return_token_ids": True}
        async with session.post(url + "/v1/completions", json=asked) as response:
            choice = (await response.json())["choices"][0]
        assert len(choice["token_ids"]) == len(choice["logprobs"]["token_logprobs"]) == 2
        assert choice["prompt_logprobs"][0] is None
        assert list(choice["prompt_logprobs"][1]) == ["2"]

    serve(engine, work)


def test_a_client_that_hangs_up_ends_its_request(engine: EmbeddedEngine) -> None:
    """With one long request given up, the engine is idle again long before it could have finished it."""

    async def work(session: aiohttp.ClientSession, url: str) -> None:
        endless = {**GOOD, "max_tokens": 1000}
        with pytest.raises(asyncio.TimeoutError):
            async with session.post(url + "/v1/completions", json=endless, timeout=aiohttp.ClientTimeout(0.1)):
                pass
        for _ in range(200):
            await asyncio.sleep(0.01)
            if not engine._batcher._running:
                return
        raise AssertionError("the engine still works for a client that is gone")

    serve(engine, work)


def test_a_dead_thread_makes_health_fail_and_requests_500(engine: EmbeddedEngine) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(url + "/health") as response:
            assert response.status == 200
        await asyncio.to_thread(engine.stop)
        async with session.get(url + "/health") as response:
            assert response.status == 500
        async with session.post(url + "/v1/completions", json=GOOD) as response:
            assert response.status == 500

    serve(engine, work)


def test_the_models_list_says_how_long_a_context_may_be(engine: EmbeddedEngine) -> None:
    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(url + "/v1/models") as response:
            (card,) = (await response.json())["data"]
        assert (card["id"], card["max_model_len"]) == (BASE_POLICY, 1024)

    serve(engine, work)


def test_clients_at_once_are_all_answered(engine: EmbeddedEngine) -> None:
    async def work(_: aiohttp.ClientSession, url: str) -> None:
        async with EngineClient(url) as client:
            asks = [CompletionRequest(BASE_POLICY, tokens(i, 1 + i), max_tokens=3, seed=i) for i in range(40)]
            answers = await asyncio.gather(*(client.complete(ask) for ask in asks))
            assert all(len(answer.token_ids) == 3 for answer in answers)
            with pytest.raises(EngineError, match="does not exist"):
                await client.complete(CompletionRequest("nobody", (1,), max_tokens=1))

    serve(engine, work)


def test_text_is_decoded_where_the_folder_has_a_tokenizer(base: Path, tmp_path: Path) -> None:
    from shutil import copytree

    from tokenizers import Tokenizer, models

    folder = Path(copytree(base, tmp_path / "base"))
    vocabulary = {f"<{i}>": i for i in range(97)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="<0>")).save(str(folder / "tokenizer.json"))
    engine = EmbeddedEngine(folder, max_batch=1, prefix_cache_mb=0)

    async def work(session: aiohttp.ClientSession, url: str) -> None:
        async with session.post(url + "/v1/completions", json={**GOOD, "return_token_ids": True}) as response:
            choice = (await response.json())["choices"][0]
        assert choice["text"].split() == [f"<{token}>" for token in choice["token_ids"]]

    serve(engine, work)
