"""HTTP as it really arrives: probes, odd transfers, slow engines, clients that go away, sessions by path."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from typing import Any

import aiohttp
import pytest
from gateway_support import POLICY, Client, call_text, playing, renderer, spec, tokenizer

from harness_adapters.engines.scripted import Fault, ScriptedEngine, ScriptedTurn
from harness_adapters.errors import ConfigError
from harness_adapters.gateway import ALIAS, Gateway, SessionSpec, server

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "go"}]}).encode()


async def raw(client: Client, *parts: bytes, wait: bytes = b"", limit: float = 10) -> bytes:
    """Send bytes as they are and read until the answer's JSON is complete or the connection ends."""
    host, port = client.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(parts[0])
        for part in parts[1:]:
            if wait:
                assert await asyncio.wait_for(reader.readuntil(wait), limit)
            writer.write(part)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), limit)
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        return head + await asyncio.wait_for(reader.readexactly(length), limit)
    finally:
        writer.close()


def head(*fields: bytes) -> bytes:
    return b"\r\n".join([b"POST /v1/chat/completions HTTP/1.1", b"host: p", *fields, b"", b""])


def test_probes_get_a_quick_404_and_models_the_alias() -> None:
    async def run() -> None:
        async with playing(["done"]) as client:
            for method, path in [
                ("GET", "/api/v1/models"),
                ("GET", "/"),
                ("POST", "/v1/responses"),
                ("GET", "/v1/chat/completions"),
                ("GET", "/s/other/v1/models"),
            ]:
                async with client.http.request(method, client.url + path) as response:
                    assert response.status == 404
                    assert "error" in await response.json()
            async with client.http.get(f"{client.url}/v1/models") as response:
                assert [model["id"] for model in (await response.json())["data"]] == [ALIAS]
            capture = await client.session.close()
            assert (capture.calls, capture.infra) == ((), "")

    asyncio.run(run())


def test_expect_100_continue_is_answered_before_the_body() -> None:
    """Wire case w-020."""

    async def run() -> None:
        async with playing(["done"]) as client:
            first = head(b"content-length: %d" % len(BODY), b"expect: 100-continue")
            answer = await raw(client, first, BODY, wait=b"HTTP/1.1 100 Continue\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200")
            assert b'"done"' in answer

    asyncio.run(run())


def test_a_chunked_body_is_read_whole() -> None:
    """Wire case w-076: read and found wanting (no messages), not treated as empty."""

    async def run() -> None:
        async with playing(["done"]) as client:
            start = head(b"content-type: application/json", b"transfer-encoding: chunked")
            answer = await raw(client, start, b'a\r\n{"model":"\r\n', b'11\r\nm","messages":[]}\r\n0\r\n\r\n')
            assert answer.startswith(b"HTTP/1.1 400")
            assert b"messages must be" in answer
            cut = BODY[:9], BODY[9:]
            parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in cut]
            assert b'"done"' in await raw(client, start, *parts, b"0\r\n\r\n")

    asyncio.run(run())


def test_two_lengths_for_one_body_are_refused() -> None:
    """Wire case w-034: request smuggling."""

    async def run() -> None:
        async with playing(["done"]) as client:
            start = head(b"content-length: 4", b"transfer-encoding: chunked")
            answer = await raw(client, start, b'1b\r\n{"model":"m","messages":[]}\r\n0\r\n\r\n')
            assert answer.split()[1] == b"400"

    asyncio.run(run())


def test_a_body_of_twelve_megabytes_is_read_and_one_over_the_limit_is_a_413(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wire case w-022."""

    async def run() -> None:
        async with playing(["done"]) as client:
            status, data = await client.post(metadata="A" * 12_000_000)
            assert (status, data["choices"][0]["message"]["content"]) == (200, "done")
            monkeypatch.setattr(server, "MAX_BODY", 1000)
            status, data = await client.post(metadata="A" * 1000)
            assert (status, data["error"]["type"]) == (413, "invalid_request_error")
            chunk = b"7d0\r\n" + b"x" * 2000 + b"\r\n"
            assert (await raw(client, head(b"transfer-encoding: chunked"), chunk)).startswith(b"HTTP/1.1 413")

    asyncio.run(run())


def test_unreadable_requests_are_a_json_400_and_do_not_end_the_session() -> None:
    async def run() -> None:
        async with playing(["done"]) as client:
            status, data = await client.post(n=2)
            assert (status, data["error"]["message"]) == (400, "n must be 1: one answer a request")
            assert (await client.turn())["message"]["content"] == "done"
            capture = await client.session.close()
            assert (len(capture.calls), capture.ended_by) == (1, "model")

    asyncio.run(run())


def test_a_waiting_stream_is_kept_alive_and_nothing_of_the_answer_comes_early() -> None:
    async def run() -> None:
        async with playing([ScriptedTurn(call_text("ls"), delay=0.5)], heartbeat=0.05) as client:
            stream = await client.raw_stream(stream_options={"include_usage": True})
            beats, answer = stream.rsplit(b": keep-alive\n\n", 1)
            assert set(beats.split(b"\n\n")) <= {b": keep-alive", b""}
            assert beats.count(b": keep-alive") >= 3
            assert answer.endswith(b"data: [DONE]\n\n")
            assert b'"usage"' in answer

    asyncio.run(run())


def test_a_client_that_goes_away_leaves_no_call_and_the_session_goes_on() -> None:
    async def run() -> None:
        async with playing([ScriptedTurn("late", delay=1.0)], heartbeat=0.05) as client:
            for stream in (True, False):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.post(stream=stream), 0.3)
            assert (await client.turn())["message"]["content"] == "late"
            capture = await client.session.close()
            assert [call.label.value for call in capture.calls] == ["agent"]
            assert len(client.engine.requests) == 3

    asyncio.run(run())


def test_closing_cuts_what_is_being_answered() -> None:
    async def run() -> None:
        async with playing([ScriptedTurn("never", delay=30)]) as client:
            asking = asyncio.create_task(client.post())
            await asyncio.sleep(0.3)
            assert len(client.engine.requests) == 1
            before = time.monotonic()
            capture = await client.session.close()
            assert time.monotonic() - before < 5
            assert (capture.calls, capture.infra) == ((), "")
            with pytest.raises(aiohttp.ClientError):
                await asking
            with pytest.raises(aiohttp.ClientError):
                await client.post()

    asyncio.run(run())


def test_a_close_that_is_cut_short_is_finished_all_the_same() -> None:
    async def run() -> None:
        async with playing([ScriptedTurn("never", delay=30)]) as client:
            asking = asyncio.create_task(client.post())
            while not client.engine.requests:  # noqa: ASYNC110 - the engine keeps a list, not an event
                await asyncio.sleep(0.01)
            closing = asyncio.create_task(client.session.close())
            await asyncio.sleep(0.01)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            await client.session.close()
            async with asyncio.timeout(5):
                with pytest.raises(aiohttp.ClientError):
                    await asking

    asyncio.run(run())


def test_a_listener_whose_attaching_is_cut_short_is_closed_with_its_session() -> None:
    async def run() -> None:
        async with playing([]) as client:
            for rounds in range(4):
                session = client.gateway.open(spec(id=f"cut {rounds}"))
                listener = socket.create_server(("127.0.0.1", 0))
                attaching = asyncio.create_task(session.attach(listener))
                for _ in range(rounds):
                    await asyncio.sleep(0)
                attaching.cancel()
                await asyncio.gather(attaching, return_exceptions=True)
                await session.close()
                # One that was cancelled before its first step never took the listener over.
                assert listener.fileno() == -1 or rounds == 0
                listener.close()

    asyncio.run(run())


def test_a_huge_message_does_not_hold_up_other_sessions() -> None:
    async def run() -> None:
        async with playing(["done"], context=100) as large, playing(["done"], id="s2") as small:
            large.messages.append({"role": "user", "content": "A" * 1_500_000})
            asking = asyncio.create_task(large.turn())
            await asyncio.sleep(0.2)
            assert (await small.turn())["message"]["content"] == "done"
            assert not asking.done()
            assert "context" in (await asking)["message"]["content"]

    asyncio.run(run())


def test_parallel_sessions_share_a_script_and_keep_their_records_apart() -> None:
    async def one(index: int) -> None:
        async with playing([call_text("ls"), "done"], id=f"s{index}") as client:
            for _ in range(2):
                await client.turn(f"result {index}")
            capture = await client.session.close()
            assert [call.label.value for call in capture.calls] == ["agent", "agent"]
            assert f"result {index}" in renderer().decode(capture.calls[1].prompt_ids)

    async def run() -> None:
        await asyncio.gather(*(one(index) for index in range(8)))

    asyncio.run(run())


async def ask(http: aiohttp.ClientSession, url: str, messages: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    async with http.post(f"{url}/chat/completions", json={"model": "m", "messages": messages}) as response:
        return response.status, await response.json()


def test_a_person_s_harness_is_served_by_path_and_survives_a_failure() -> None:
    async def run() -> None:
        engine = ScriptedEngine(tokenizer())
        engine.add(POLICY, ["hello", ScriptedTurn("x", fault=Fault.ERROR), "again"])
        made: list[str] = []

        def factory(name: str) -> SessionSpec:
            made.append(name)
            return spec(id=name, deadline=math.inf, max_model_calls=10**9)

        async with (
            engine.serve() as engine_url,
            Gateway(engine_url, renderer()) as gateway,
            gateway.serve("127.0.0.1", 0, factory) as url,
            aiohttp.ClientSession() as http,
        ):
            messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
            for base in (f"{url}/v1", f"{url}/s/mine/v1"):
                status, data = await ask(http, base, messages)
                assert (status, data["choices"][0]["message"]["content"]) == (200, "hello")
            messages += [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "more"}]
            status, data = await ask(http, f"{url}/v1", messages)
            assert (status, data["error"]["type"]) == (502, "upstream_error")
            messages += [{"role": "assistant", "content": "(failed)"}, {"role": "user", "content": "try"}]
            status, data = await ask(http, f"{url}/v1", messages)
            assert data["choices"][0]["message"]["content"] == "again"
            async with http.get(f"{url}/s/../v1x") as response:
                assert response.status == 404
            assert made == ["default", "mine"]

    asyncio.run(run())


def test_serving_where_it_cannot_be_is_refused() -> None:
    async def run(factory: Any, host: str = "127.0.0.1", port: int = 0) -> None:
        async with Gateway("http://127.0.0.1:1", renderer()) as gateway, gateway.serve(host, port, factory):
            pass

    with pytest.raises(ConfigError, match="base model"):
        asyncio.run(run(lambda name: spec(policy="base")))
    for host in ("203.0.113.1", "a..b", "a" * 70):
        with pytest.raises(ConfigError, match="cannot listen"):
            asyncio.run(run(lambda name: spec(), host=host))
    for port in (-1, 65_536, 99_999):
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            asyncio.run(run(lambda name: spec(), port=port))
