"""The soak, short; and the proof that it finds what it is there to find."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.records import PolicyVersion
from harness_adapters.testing.leaks import holdings
from soak import CONNECTIONS_PER_SESSION, Look, Report, broken_bounds, soak
from soak_world import CACHE_MB, KINDS, open_world, save_model

SESSIONS = 150
PARTS = {"models served": 2, "gateway sessions": 0}


@pytest.fixture(autouse=True)
def _what_was_there_before_is_not_looked_through_again_and_again() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
def test_sessions_of_every_kind_leave_nothing_and_memory_stays_flat(tmp_path: Path) -> None:
    lines: list[str] = []
    report = asyncio.run(soak(SESSIONS, 8, tmp_path, lines.append))
    assert broken_bounds(report) == [], "\n".join(lines)
    assert report.looks[-1].sessions >= SESSIONS
    assert report.tool_calls > SESSIONS
    assert (sum(report.canaries.values()), report.canaries.get("failed")) == (len(report.looks) + 1, None)


def test_what_the_parts_of_a_soak_hold_is_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_world(tmp_path / "world", save_model(tmp_path / "model"), 2) as world:
            before = await world.holds()
            publisher, plan = world.publisher, world._plan("left")
            assert publisher.current is not None
            folder = publisher.folder(PolicyVersion("soak", "scripted", 0))
            await world.client.load_adapter("another", folder)
            (world.run_dir.path / ".half.tmp").touch()
            with publisher.lease(publisher.current):
                playing = asyncio.create_task(world.run(plan))
                while not world.gateways[1]._open:  # noqa: ASYNC110 - the gateway tells nobody
                    await asyncio.sleep(0.01)
                grown = await world.holds()
            assert world.runners["left"].cancel(plan.id)
            await playing
            assert {name: grown[name] - before[name] for name in grown if grown[name] != before[name]} == {
                "models served": 1,
                "prefix trees": 1,
                "gateway sessions": 1,
                "sessions running": 2,
                "leases": 1,
                "half-made files": 1,
            }
            await world.client.unload_adapter("another")
            (world.run_dir.path / ".half.tmp").unlink()
            assert await world.holds() == before

    asyncio.run(scenario())


def report_of(leak: Callable[[], object]) -> Report:
    """Looks at this process, `leak` called before each; everything else as it is after a faultless soak."""
    before = holdings()
    looks = []
    for number in range(6):
        leak()
        looks.append(Look(50 * number, holdings(), dict(PARTS), 0))
    outcomes = {kind.name: {kind.ends[0]: 1} for kind in KINDS}
    return Report(8, before, tuple(looks), holdings(), outcomes, {"passed": 1}, 1, 1, 1.0)


KEPT: list[Any] = []
LEAKS: dict[str, Callable[[], object]] = {
    "memory": lambda: KEPT.append(bytearray(os.urandom(16 << 20))),
    "Python's objects": lambda: KEPT.append([object() for _ in range(3_000)]),
    "descriptors": lambda: KEPT.append(open("/dev/null")),  # noqa: SIM115 - left open on purpose
    "listeners": lambda: KEPT.append(socket.create_server(("127.0.0.1", 0))),
    "processes": lambda: KEPT.append(subprocess.Popen(["sleep", "60"])),
    "threads": lambda: KEPT.append(_start(threading.Timer(60, lambda: None))),
}


def _start(thread: threading.Timer) -> threading.Timer:
    thread.daemon = True
    thread.start()
    return thread


def _let_go() -> None:
    for kept in KEPT:
        if isinstance(kept, subprocess.Popen):
            kept.kill()
            kept.wait()
        elif isinstance(kept, threading.Timer):
            kept.cancel()
            kept.join()
        elif hasattr(kept, "close"):
            kept.close()
    KEPT.clear()


@pytest.mark.parametrize("what", LEAKS)
def test_a_deliberate_leak_is_found_and_named(what: str) -> None:
    try:
        found = broken_bounds(report_of(LEAKS[what]))
    finally:
        _let_go()
    assert found
    assert all(what in line for line in found), found


def test_a_soak_without_a_leak_breaks_no_bound() -> None:
    assert broken_bounds(report_of(lambda: None)) == []


def spoilt(report: Report, **changes: Any) -> Report:
    """`report` with its last look changed."""
    return replace(report, looks=(*report.looks[:-1], replace(report.looks[-1], **changes)))


def test_what_the_parts_hold_and_how_sessions_ended_is_judged_too() -> None:
    good = report_of(lambda: None)
    last = good.looks[-1]
    many = CONNECTIONS_PER_SESSION * 8 + 2
    cases = {
        "models served were 2 and are 3": spoilt(good, parts={**PARTS, "models served": 3}),
        "bytes of prefixes": spoilt(good, cached_bytes=(CACHE_MB << 20) + 1),
        f"{many} connections": spoilt(good, process=replace(last.process, connections=many, tasks=many // 2)),
        "tasks were 0 and are 1": spoilt(good, process=replace(last.process, tasks=1)),
        "solved: 1 sessions ended as infra": replace(good, outcomes={**good.outcomes, "solved": {"infra ": 1}}),
        "solved: no session ended as graded": replace(good, outcomes={**good.outcomes, "solved": {}}),
        "no canary": replace(good, canaries={"indistinguishable": 9}),
        "when all was closed": replace(good, after=replace(good.after, files=1)),
    }
    for text, report in cases.items():
        assert any(text in line for line in broken_bounds(report)), (text, broken_bounds(report))
