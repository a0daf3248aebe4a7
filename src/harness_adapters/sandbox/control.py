"""The host's end of a sandbox's executor: requests out, replies in, many at once on one socket.

Invariants
- Every request ends: by its reply, by the channel's end (SandboxEnded), or by the caller's own clock.
- The reader leaves the event loop before its descriptor is closed. The other way round, the number is reused by the
  next sandbox's socket, which then is never polled.
- Command output never crosses this socket; its datagrams stay small, whatever the size of a request.

Asymmetry: the executor is inside and may be lied about by what it runs, so a reply is only ever matched to a request
by its number; an unknown number is dropped.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import itertools
import json
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from harness_adapters.errors import InfraError
from harness_adapters.sandbox.protocol import SandboxEnded

FRAME_BYTES = 4096
MAX_DESCRIPTORS = 8
SEND_PATIENCE_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Reply:
    """A reply's fields and the descriptors that came with it."""

    def __init__(self, frame: Mapping[str, Any], descriptors: list[int]) -> None:
        self.frame = frame
        self.descriptors = descriptors


class ControlChannel:
    """Owns the host's end of the socket pair; bound to the running event loop."""

    def __init__(self, host_end: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = host_end
        self._socket.setblocking(False)
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.ended = ""
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    async def ask(self, op: str, descriptors: Sequence[int] = (), **fields: Any) -> tuple[int, asyncio.Future[Reply]]:
        """Send a request; its number, and a future of the reply. Raises SandboxEnded."""
        number = next(self._ids)
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting[number] = reply
        try:
            await self._send({"op": op, "id": number, **fields}, descriptors)
        except BaseException:
            self.forget(number)
            raise
        return number, reply

    def tell_kill(self, number: int) -> None:
        """Ask for a command's end without waiting; what cannot be sent now is left to the sandbox's own end."""
        if not self.ended:
            with contextlib.suppress(OSError):
                self._socket.send(json.dumps({"op": "kill", "id": number}).encode())

    def forget(self, number: int) -> None:
        """No longer wait for a reply; one that comes is dropped, its descriptors closed."""
        future = self._waiting.pop(number, None)
        if future is not None:
            future.cancel()

    def disown(self, number: int, reply: asyncio.Future[Reply]) -> None:
        """`forget`, and close the descriptors of a reply that came but that nobody will take."""
        self.forget(number)
        if reply.done() and not reply.cancelled() and reply.exception() is None:
            for descriptor in reply.result().descriptors:
                os.close(descriptor)

    def close(self, reason: str) -> None:
        """End the channel; everything still waited for raises SandboxEnded with the reason. Idempotent."""
        self.ended = self.ended or reason
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        _fail(self.ready, self.ended)
        for future in self._waiting.values():
            _fail(future, self.ended)
        self._waiting.clear()

    async def _send(self, frame: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        data = [json.dumps(frame).encode()]
        deadline = self._loop.time() + SEND_PATIENCE_SECONDS
        while True:
            if self.ended:
                raise SandboxEnded(f"the sandbox ended: {self.ended}")
            try:
                socket.send_fds(self._socket, data, list(descriptors))
                return
            except BlockingIOError:
                if self._loop.time() > deadline:
                    raise SandboxEnded("the sandbox's executor takes no requests") from None
                await asyncio.sleep(0.005)
            except OSError as error:
                self.close(f"its executor is gone ({error.strerror})")

    def _on_readable(self) -> None:
        while not self.ended:
            try:
                data, descriptors = _receive(self._socket)
            except BlockingIOError:
                return None
            except OSError as error:
                return self.close(f"its executor is gone ({error.strerror})")
            if not data:
                return self.close("its executor or init process died")
            self._take(data, descriptors)
        return None

    def _take(self, data: bytes, descriptors: list[int]) -> None:
        try:
            frame = json.loads(data)
            number = int(frame.get("id", 0))
        except (ValueError, AttributeError, TypeError):
            return self.close("its executor sent nonsense")
        future = self._waiting.pop(number, None)
        if future is not None and not future.done():
            future.set_result(Reply(frame, descriptors))
            return None
        for descriptor in descriptors:
            os.close(descriptor)
        if "ended" in frame:
            self.close(str(frame["ended"]))
        elif "ready" in frame and not self.ready.done():
            self.ready.set_result(None)
        return None


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """One datagram and its descriptors, which no child of this process inherits (`socket.recv_fds` ignores flags)."""
    numbers = array.array("i")
    space = socket.CMSG_LEN(MAX_DESCRIPTORS * numbers.itemsize)
    data, ancillary, _, _ = control.recvmsg(FRAME_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    return data, list(numbers)


def _fail(future: asyncio.Future[Any], reason: str) -> None:
    if not future.done():
        future.set_exception(SandboxEnded(f"the sandbox ended: {reason}"))
        future.exception()  # marks it as seen: nobody need be waiting for it


def sealed_memory(content: bytes) -> int:
    """A descriptor of a read-only memory file at its start; whoever receives it cannot grow or change it."""
    try:
        descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise InfraError(f"cannot make a memory file: {error.strerror}", "raise the open-files limit") from error
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor
