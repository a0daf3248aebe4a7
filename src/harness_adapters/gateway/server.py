"""HTTP for gateway sessions: who asks is known from where the connection arrived, never from a key or header.

Routes: `POST …/v1/chat/completions`, `GET …/v1/models`; everything else is a quick 404, since harnesses probe.

Invariants
- Nothing of an answer is written before it is whole and judged; while a stream waits, SSE comments keep it open.
- A request that cannot be read is answered with JSON (400, 413), never with a dropped connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from harness_adapters.gateway.dialects import chat
from harness_adapters.gateway.session import Session, SessionFailed

log = logging.getLogger(__name__)

MAX_BODY = 64 << 20
"""Bytes of one request: long sessions resend a history of tens of megabytes."""

HEARTBEAT_SECONDS = 5.0

_JSON = "application/json"
_SSE_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

Find = Callable[[str], tuple[Session | None, str]]
"""From a request path to the session it belongs to and the path within that session."""


class ChatServer:
    """HTTP on any number of listening sockets; `find` tells sessions apart by path, or always names the same one."""

    def __init__(self, find: Find, *, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._find = find
        self._heartbeat = heartbeat
        self._servers: list[asyncio.Server] = []
        self._http: web.Server | None = None
        self._closing: asyncio.Task[None] | None = None

    async def listen(self, listener: socket.socket) -> None:
        """Serve on `listener`, which belongs to this server from now on."""
        if self._http is None:
            # A client that goes away cancels its handler and so the engine's work for it.
            self._http = web.Server(self._handle, handler_cancellation=True, access_log=None)
        try:
            listener.setblocking(False)
            loop = asyncio.get_running_loop()
            server = await loop.create_server(self._http, sock=listener, start_serving=False)
        except (OSError, ValueError):
            listener.close()
            raise
        # Known before it serves, so that `close` ends it when the caller is cancelled while it starts.
        self._servers.append(server)
        await server.start_serving()

    async def close(self) -> None:
        """Stop listening and cancel what is being answered; idempotent.

        Goes on to its end even when the caller is cancelled; another call waits for the same end.
        """
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        http, self._http = self._http, None
        if http is not None:
            await http.shutdown(timeout=0.1)
        for server in servers:
            await server.wait_closed()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        session, path = self._find(request.path)
        if session is not None and path == "/v1/chat/completions" and request.method == "POST":
            return await self._chat(session, request)
        if session is not None and path == "/v1/models" and request.method == "GET":
            return web.Response(body=chat.models_body(), content_type=_JSON)
        return _error(404, f"no {request.method} {request.path} here", "not_found_error")

    async def _chat(self, session: Session, request: web.BaseRequest) -> web.StreamResponse:
        try:
            chat_request = chat.parse_request(await _read_body(request))
        except chat.BadRequest as error:
            return _error(400, str(error), "invalid_request_error")
        except _TooLarge:
            return _error(413, f"the request body is over {MAX_BODY} bytes", "invalid_request_error")
        try:
            if chat_request.stream:
                return await self._stream(session, chat_request, request)
            answer = await session.answer(chat_request)
        except SessionFailed as error:
            return _error(502, str(error), "upstream_error")
        return web.Response(body=chat.plain_answer(answer), content_type=_JSON)

    async def _stream(
        self, session: Session, chat_request: chat.ChatRequest, request: web.BaseRequest
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_SSE_HEADERS)
        task = asyncio.create_task(session.answer(chat_request))
        try:
            while not (await asyncio.wait({task}, timeout=self._heartbeat))[0]:
                await _begin(response, request)
                await response.write(chat.HEARTBEAT)
            answer = task.result()
        except SessionFailed as error:
            if not response.prepared:
                raise
            await response.write(chat.error_event(str(error), "upstream_error"))
            return response
        finally:
            task.cancel()
        await _begin(response, request)
        events = chat.stream_answer(answer, include_usage=chat_request.include_usage)
        await response.write(b"".join(events))
        await response.write_eof()
        return response


class _TooLarge(Exception):
    pass


async def _begin(response: web.StreamResponse, request: web.BaseRequest) -> None:
    if not response.prepared:
        await response.prepare(request)


async def _read_body(request: web.BaseRequest) -> bytes:
    """The whole body, decompressed. Raises _TooLarge, or BadRequest where the transfer itself is broken."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if request.content_length is not None and request.content_length > MAX_BODY:
        raise _TooLarge
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > MAX_BODY:
                raise _TooLarge
            chunks.append(chunk)
    except (web.RequestPayloadError, HttpProcessingError) as error:
        raise chat.BadRequest(f"the body is broken: {error}") from None
    return b"".join(chunks)


def _error(status: int, message: str, kind: str) -> web.Response:
    return web.Response(status=status, body=chat.error_body(message, kind), content_type=_JSON)
