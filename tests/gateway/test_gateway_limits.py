"""Budgets, sampling and failures of a session, through real sockets."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gateway_support import BASH, POLICY, TOOLS, Client, call_text, playing, renderer, spec

from harness_adapters.config import SamplingConfig
from harness_adapters.engines.scripted import Fault, ScriptedTurn
from harness_adapters.errors import ConfigError
from harness_adapters.gateway import ALIAS, Gateway, SessionCapture
from harness_adapters.gateway.limits import FINAL_TEXTS
from harness_adapters.records import BASE_POLICY


def play(
    turns: list[str | ScriptedTurn], act: Callable[[Client], Awaitable[Any]], **changes: Any
) -> tuple[SessionCapture, list[dict[str, Any]]]:
    """The capture, and the requests that the engine saw."""

    async def run() -> tuple[SessionCapture, list[dict[str, Any]]]:
        async with playing(turns, **changes) as client:
            await act(client)
            return await client.session.close(), client.engine.requests

    return asyncio.run(run())


def is_end(choice: dict[str, Any], cause: str) -> bool:
    message = choice["message"]
    return (message["content"], choice["finish_reason"]) == (FINAL_TEXTS[cause], "stop") and "tool_calls" not in message


def test_a_session_ends_with_a_text_after_its_last_model_call() -> None:
    async def act(client: Client) -> None:
        await client.turn()
        await client.turn()
        assert is_end(await client.turn(), "calls")
        assert is_end(await client.turn(), "calls")

    capture, asked = play([call_text("ls")] * 5, act, max_model_calls=2)
    assert (len(asked), len(capture.calls), capture.tool_calls) == (2, 2, 2)
    assert capture.ended_by == "calls"


def test_the_deadline_cuts_a_call_that_is_under_way() -> None:
    async def act(client: Client) -> None:
        assert is_end(await client.turn(), "deadline")
        assert is_end(await client.turn(), "deadline")

    before = time.monotonic()
    capture, asked = play([ScriptedTurn("slow", delay=20)], act, deadline=time.monotonic() + 0.5)
    assert time.monotonic() - before < 10
    assert (len(asked), capture.calls, capture.ended_by) == (1, (), "deadline")


def test_a_prompt_over_the_context_ends_the_session_and_room_is_what_is_left() -> None:
    prompt = renderer().render([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}], [BASH])

    async def act(client: Client) -> None:
        await client.turn()
        assert is_end(await client.turn(), "context")

    capture, asked = play([call_text("l" * 500), "done"], act, context=len(prompt) + 40)
    assert asked[0]["max_tokens"] == 40
    assert capture.ended_by == "context"
    assert capture.calls[0].finish_reason == "length"


def test_streams_end_the_same_way() -> None:
    async def act(client: Client) -> None:
        await client.turn()
        assert FINAL_TEXTS["calls"].encode() in await client.raw_stream()

    play([call_text("ls")] * 2, act, max_model_calls=1)


def test_sampling_is_the_run_s_whatever_the_harness_asks() -> None:
    async def act(client: Client) -> None:
        await client.post(temperature=0, top_p=0.1, seed=5, max_tokens=7, stop=["x"], model="gpt-base")
        await client.post(max_completion_tokens=10**6)

    sampling = SamplingConfig(temperature=0.7, top_p=0.9, max_tokens=50)
    _, asked = play(["done"], act, sampling=sampling)
    for request in asked:
        assert (request["model"], request["temperature"], request["top_p"]) == (POLICY, 0.7, 0.9)
        assert set(request["stop_token_ids"]) == set(renderer().stop_ids)
        assert "seed" not in request
        assert "stop" not in request
    assert [request["max_tokens"] for request in asked] == [7, 50]


def test_seeds_differ_by_call_and_repeat_by_run() -> None:
    async def act(client: Client) -> None:
        await client.turn()
        await client.turn()

    seeds = [[request["seed"] for request in play([call_text("ls"), "done"], act, seed=s)[1]] for s in (3, 3, 4)]
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 4


def test_the_harness_sees_one_stable_model_name() -> None:
    async def act(client: Client) -> None:
        _, data = await client.post(model="whatever")
        assert data["model"] == ALIAS
        stream = await client.raw_stream()
        assert ALIAS.encode() in stream
        assert POLICY.encode() not in stream

    play(["done"], act)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault.ERROR, "the engine answered 500"),
        (Fault.DROP, "failed"),
        (Fault.BAD_IDS, "outside the vocabulary"),
        (Fault.WRONG_MODEL, "answered as 'base'"),
    ],
)
def test_a_failing_engine_makes_the_session_infra_and_ends_it_cleanly(fault: Fault, cause: str) -> None:
    async def act(client: Client) -> None:
        await client.turn()
        assert is_end(await client.turn(), "infra")
        assert is_end(await client.turn(), "infra")

    capture, _ = play([call_text("ls"), ScriptedTurn("x", fault=fault)], act)
    assert cause in capture.infra
    assert (capture.ended_by, len(capture.calls)) == ("", 1)


def test_an_unknown_adapter_or_an_absent_engine_is_infra() -> None:
    async def act(client: Client) -> None:
        assert is_end(await client.turn(), "infra")

    capture, _ = play(["done"], act, policy="run-pi-v9")
    assert "404" in capture.infra


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"policy": BASE_POLICY}, "base model"),
        ({"policy": ""}, "no policy"),
        ({"on_block": "retry"}, "not there yet"),
        ({"on_block": "ask"}, "unknown on_block"),
        ({"max_model_calls": 0}, "no model call fits"),
    ],
)
def test_what_must_not_be_served_is_refused_at_open(changes: dict[str, Any], reason: str) -> None:
    gateway = Gateway("http://127.0.0.1:1", renderer())
    with pytest.raises(ConfigError, match=reason):
        gateway.open(spec(**changes))


def test_the_base_is_served_where_it_is_meant() -> None:
    assert spec(policy=BASE_POLICY, allow_base=True, tool_map=TOOLS, deadline=math.inf).check() is None


def test_a_session_without_a_request_leaves_an_empty_capture_and_closes_twice() -> None:
    async def act(client: Client) -> None:
        assert await client.session.close() == SessionCapture((), 0, "", "")

    play(["done"], act)
