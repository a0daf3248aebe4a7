"""A command's output on the host's side: a pipe whose reader is bounded in memory and in its share of the event loop.

Invariants
- At most `limit` bytes are kept. What is beyond is read and dropped, slowly, so that a flood neither blocks its writer
  for ever nor occupies the loop.
- The end of the stream is never waited for: a background process may hold the other end for as long as it likes.

Asymmetry: after `settle` (the command has exited) the pipe is drained for up to `AFTERLIFE_BYTES` more, so that a
server left in the background does not die of SIGPIPE at once; beyond that its writes block.
"""

from __future__ import annotations

import asyncio
import os

from harness_adapters.errors import InfraError

CHUNK = 1 << 16
PAUSE_SECONDS = 0.002
AFTERLIFE_BYTES = 16 << 20


class OutputPipe:
    """`write_fd` is for the command (blocking, close it with `sent`); the read end belongs to the running loop.

    Raises InfraError when there are no descriptors left.
    """

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._kept = bytearray()
        self._left_to_drain: int | None = None
        self._resume: asyncio.TimerHandle | None = None
        self.truncated = False
        try:
            self._read_fd, self.write_fd = os.pipe()
        except OSError as error:
            raise InfraError(
                f"cannot make a pipe: {error.strerror}", "raise the open-files limit (ulimit -n)"
            ) from error
        os.set_blocking(self._read_fd, False)
        self._loop.add_reader(self._read_fd, self._on_readable)

    @property
    def open(self) -> bool:
        return self._read_fd >= 0

    def sent(self) -> None:
        """Close this process's copy of the write end."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def settle(self) -> bytes:
        """What the command wrote, up to the limit; call it once, after the command's exit."""
        while self.open and not self.truncated and self._read_once():
            pass
        self._left_to_drain = AFTERLIFE_BYTES
        return bytes(self._kept)

    def close(self) -> None:
        self.sent()
        if self._resume is not None:
            self._resume.cancel()
        if self._read_fd >= 0:
            self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1

    def _read_once(self) -> bool:
        """Read one chunk; False when there was nothing to read or the stream ended (it is closed then)."""
        try:
            data = os.read(self._read_fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        if self._left_to_drain is not None:
            self._left_to_drain -= len(data)
            return True
        room = self._limit - len(self._kept)
        self._kept += data[:room]
        self.truncated = self.truncated or len(data) > room
        return True

    def _on_readable(self) -> None:
        self._read_once()
        if self.open and (self.truncated or self._left_to_drain is not None):
            self._loop.remove_reader(self._read_fd)
            if self._left_to_drain is None or self._left_to_drain > 0:
                self._resume = self._loop.call_later(PAUSE_SECONDS, self._resume_reading)

    def _resume_reading(self) -> None:
        if self.open:
            self._loop.add_reader(self._read_fd, self._on_readable)
