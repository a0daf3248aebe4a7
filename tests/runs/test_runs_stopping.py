"""A run that is told to end ends at once, cleanly, whatever it was doing."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from harness_adapters.cli.main import guarded
from harness_adapters.errors import Terminated
from harness_adapters.runs.demo import _until_told
from harness_adapters.runs.stack import _left_behind


def test_sigterm_stops_the_work_as_ctrl_c_does_and_lets_it_clean_up(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    def command() -> int:
        asyncio.run(_until_told(work()))
        return 0

    assert guarded(command) == 143
    assert seen == ["cleaned up"]
    assert "everything finished so far is kept" in capsys.readouterr().err


def test_work_that_ends_or_fails_by_itself_does_so_unchanged() -> None:
    async def fails() -> None:
        raise KeyError("x")

    asyncio.run(_until_told(asyncio.sleep(0)))
    with pytest.raises(KeyError):
        asyncio.run(_until_told(fails()))
    assert not issubclass(Terminated, KeyError)


def test_nobody_waits_for_a_model_that_is_still_being_read() -> None:
    reading = threading.Event()

    def slow() -> object:
        reading.wait(20)
        return object()

    async def run() -> None:
        task = asyncio.ensure_future(_left_behind(slow))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - started < 5
    reading.set()


def test_a_model_that_cannot_be_read_says_so_where_it_is_awaited() -> None:
    def fails() -> object:
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        asyncio.run(_left_behind(fails))  # type: ignore[arg-type]
