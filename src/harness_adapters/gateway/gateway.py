"""The gateway as its users see it: open a session, attach it to a listener, close it, read what it captured.

Invariants
- A session has its own listener; which session a request belongs to is decided by where it arrived.
- `close` returns only when nothing of the session is being answered any more.

`Gateway.serve` is the other way in, for a person's own harness: one port, sessions told apart by a path, none of them
ended by a block, limits aside.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

from harness_adapters.errors import ConfigError
from harness_adapters.gateway.holdback import VerdictLog
from harness_adapters.gateway.renderers.protocol import Renderer
from harness_adapters.gateway.server import HEARTBEAT_SECONDS, ChatServer
from harness_adapters.gateway.session import Session
from harness_adapters.gateway.spec import SessionCapture, SessionSpec
from harness_adapters.gateway.upstream import Upstream

DEFAULT_SESSION = "default"
_SESSION_PATH = re.compile(r"/s/([A-Za-z0-9_.-]{1,64})(/.*)")
_MAX_PATH_SESSIONS = 256


class Gateway:
    """Async context manager. `engine_url` is the engine's root, without `/v1`."""

    def __init__(
        self,
        engine_url: str,
        renderer: Renderer,
        *,
        verdict_log: VerdictLog | None = None,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._upstream = Upstream(engine_url, vocab_size=renderer.vocab_size)
        self._renderer = renderer
        self._verdict_log = verdict_log
        self._heartbeat = heartbeat
        self._open: set[GatewaySession] = set()

    async def __aenter__(self) -> Gateway:
        await self._upstream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for session in list(self._open):
            await session.close()
        await self._upstream.__aexit__(*exc)

    async def owners(self) -> set[str]:
        """What the engine says its models are owned by: `{"scripted"}` where it plays scripts only.

        Raises EngineError where it does not list them.
        """
        return await self._upstream.owners()

    def open(self, spec: SessionSpec) -> GatewaySession:
        """Raises ConfigError for a spec that must not be served (`SessionSpec.check`)."""
        session = Session(spec, self._upstream, self._renderer, self._verdict_log)
        opened = GatewaySession(session, self._heartbeat, self._open.discard)
        self._open.add(opened)
        return opened

    @contextlib.asynccontextmanager
    async def serve(self, host: str, port: int, session_factory: Callable[[str], SessionSpec]) -> AsyncIterator[str]:
        """Serve a person's own harness; yields the base URL, to which `/v1` or `/s/<id>/v1` is added.

        `session_factory` makes the spec of a session id at its first request; `/v1` is the session `default`. Port 0
        takes a free one. Raises ConfigError where the address cannot be had, or the default session cannot be served.
        """
        sessions = _PathSessions(lambda name: self._persistent(session_factory(name)))
        sessions.get(DEFAULT_SESSION)
        listener = bind(host, port)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}"
        server = ChatServer(sessions.find, heartbeat=self._heartbeat)
        try:
            await server.listen(listener)
            yield url
        finally:
            await server.close()
            sessions.close()

    def _persistent(self, spec: SessionSpec) -> Session:
        return Session(spec, self._upstream, self._renderer, self._verdict_log, persistent=True)


class GatewaySession:
    """One session of a rollout, from `Gateway.open`."""

    def __init__(self, session: Session, heartbeat: float, forget: Callable[[GatewaySession], None]) -> None:
        self._session = session
        self._forget = forget
        self._server = ChatServer(lambda path: (session, path), heartbeat=heartbeat)

    async def attach(self, listener: socket.socket) -> None:
        """Serve this session's HTTP on a listening socket; takes ownership of it."""
        await self._server.listen(listener)

    async def close(self) -> SessionCapture:
        """Stop serving and return what was captured; idempotent."""
        await self._server.close()
        self._session.close()
        self._forget(self)
        return self._session.capture()


class _PathSessions:
    """Sessions by name, made at first use; the one unused for longest goes when there are too many."""

    def __init__(self, make: Callable[[str], Session]) -> None:
        self._make = make
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def find(self, path: str) -> tuple[Session | None, str]:
        match = _SESSION_PATH.fullmatch(path)
        name, rest = match.groups() if match else (DEFAULT_SESSION, path)
        if rest not in ("/v1/chat/completions", "/v1/models"):
            return None, rest
        return self.get(name), rest

    def get(self, name: str) -> Session:
        if name not in self._sessions:
            self._sessions[name] = self._make(name)
        self._sessions.move_to_end(name)
        if len(self._sessions) > _MAX_PATH_SESSIONS:
            self._sessions.popitem(last=False)[1].close()
        return self._sessions[name]

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError for a host or port that cannot be listened on."""
    if not 0 <= port <= 65535:
        raise ConfigError(
            f"cannot listen on {host}:{port}: no such port", "a port is within 0 to 65535; 0 takes any free"
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {host[:80]}:{port}: {error}", "choose another host or port") from None
