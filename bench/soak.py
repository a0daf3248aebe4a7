"""Thousands of sessions through everything that is real, and proof that nothing grows and nothing is left.

    python bench/soak.py [--sessions 2000] [--in-flight 8] [--json]

The scripted harness plays in bubblewrap sandboxes, through the gateway, on two engines: the embedded one with a tiny
random model, some tokens of which are whole tool calls, and the scripted one. A trainer makes adapters of what was
played; the publisher brings them in while sessions still hold the version before. The sessions (`soak_world`) end in
every way they can: solved, blocked, cancelled, out of time, killed by their agent, failed by their engine, given up by
their caller.

Every `EVERY` sessions, when nothing plays, everything held is counted. Counts must be what they were after the first
sessions, and at the end, with all closed, what they were before; memory may grow by `MEMORY_BOUND` over the last two
thirds of the sessions. Exit status 1 names every bound that was broken. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

from harness_adapters.guard.memo import clear_memories
from harness_adapters.testing.leaks import Holdings, growth, holdings, whole_subtree
from soak_world import CACHE_MB, CYCLE, KINDS, open_world, private_folders, save_model

EVERY = 100
"""Sessions between two looks, retries apart; a short soak looks more often."""
LOOKS = 8
"""Looks that a soak takes at least: fewer say nothing of growth."""
MIN_ROUND = 12

MEMORY_BOUND = 32 << 20
"""Bytes of private memory by which the last two thirds of a soak may grow."""
BLOCKS_BOUND = 4_000
"""Python objects by which they may grow: what one session leaves when it is not let go is over a hundred.

The safetensors library (0.8.0) itself loses two for each tensor that it reads: 56 a version.
"""
CONNECTIONS_PER_SESSION = 6
"""Ends of connections kept open, for each session in flight: two each to two engines, and what callers gave up."""

SETTLE_SECONDS = 10.0
"""How long a closed connection may take to be noticed at its other end."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was held after so many sessions: by the process, and by the parts themselves."""

    sessions: int
    process: Holdings
    parts: dict[str, int]
    cached_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """One soak. `before` and `after`: with everything closed; `looks` while it was open."""

    in_flight: int
    before: Holdings
    looks: tuple[Look, ...]
    after: Holdings
    outcomes: dict[str, dict[str, int]]
    canaries: dict[str, int]
    model_calls: int
    tool_calls: int
    seconds: float

    @property
    def memory_growth(self) -> float:
        """Bytes over the last two thirds of the sessions."""
        return growth([(look.sessions, look.process.memory) for look in self.looks])

    @property
    def blocks_growth(self) -> float:
        return growth([(look.sessions, look.process.blocks) for look in self.looks])


async def soak(sessions: int, in_flight: int, folder: Path, say: Callable[[str], None]) -> Report:
    """Play `sessions` sessions or a few more, `in_flight` at once, with everything in `folder`."""
    started = time.monotonic()
    model_dir = save_model(folder / "model")
    await _fill_default_executor()
    with whole_subtree(), private_folders(folder) as watched:
        # Played once through, so that what is made at first use (libraries, threads, caches) is there before.
        async with open_world(folder / "rehearsal", model_dir, in_flight) as world:
            await world.play(len(CYCLE))
        before = await _settled(watched, closed=True)
        looks: list[Look] = []
        async with open_world(folder / "soak", model_dir, in_flight) as world:
            while world.sessions < sessions:
                await world.play(min(EVERY, max(MIN_ROUND, sessions // LOOKS)))
                held = await _settled(watched, closed=False)
                looks.append(Look(world.sessions, held, await world.holds(), world.cached_bytes()))
                say(_line(looks[-1], sessions, time.monotonic() - started))
        after = await _settled(watched, closed=True)
    return Report(
        in_flight,
        before,
        tuple(looks),
        after,
        {kind: dict(counts) for kind, counts in world.outcomes.items()},
        dict(world.canaries),
        world.model_calls,
        world.tool_calls,
        time.monotonic() - started,
    )


def broken_bounds(report: Report) -> list[str]:
    """What a soak found, one line each; empty when nothing grew or is left and all sessions ended as they must."""
    found = [f"when all was closed, {lost}" for lost in report.after.lost_since(report.before)]
    first, *later = (at_rest(look) for look in report.looks)
    for look, held in zip(report.looks[1:], later, strict=True):
        changed = [f"{name} were {first[name]} and are {now}" for name, now in held.items() if now != first[name]]
        found += [f"after {look.sessions} sessions, {change}" for change in changed]
    most = max(look.process.connections for look in report.looks)
    if most > CONNECTIONS_PER_SESSION * report.in_flight:
        found.append(f"{most} connections were open with nothing to do")
    cached = max(look.cached_bytes for look in report.looks)
    if cached > CACHE_MB << 20:
        found.append(f"{cached} bytes of prefixes were cached, over {CACHE_MB} MB")
    if report.memory_growth > MEMORY_BOUND:
        found.append(f"memory grew by {report.memory_growth / 2**20:.1f} MB, over {MEMORY_BOUND >> 20} MB")
    if report.blocks_growth > BLOCKS_BOUND:
        found.append(f"Python's objects grew by {report.blocks_growth:.0f}, over {BLOCKS_BOUND}")
    return found + _wrong_ends(report)


def at_rest(look: Look) -> dict[str, int]:
    """The counts that must not change from look to look.

    How many connections to the engines wait for the next request differs; each has two ends here, and a task serves it.
    """
    counts = {name: value for name, value in asdict(look.process).items() if name not in ("memory", "blocks")}
    counts["tasks"] -= counts.pop("connections") // 2
    return {**counts, **look.parts}


def _wrong_ends(report: Report) -> list[str]:
    """A soak in which sessions did not end as they must has soaked something else."""
    found = []
    for kind in KINDS:
        seen = report.outcomes.get(kind.name, {})
        found += [f"{kind.name}: {n} sessions ended as {end}" for end, n in seen.items() if end not in kind.ends]
        if kind.ends[0] not in seen and not kind.luck:
            found.append(f"{kind.name}: no session ended as {kind.ends[0]}")
    if not report.canaries.get("passed"):
        found.append("no canary told a new version from the one before")
    return found


async def _settled(watched: Sequence[Path], *, closed: bool) -> Holdings:
    """What is held once both ends of what was closed have noticed, or never do; `closed`: with no engine open.

    The guard's memories go first: they are bounded where they are made, and take hundreds of sessions to fill up.
    """
    clear_memories()
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        await asyncio.sleep(0.2)
        held = holdings(watched)
        noticed = held.tasks == held.connections // 2 and not (closed and held.connections)
        if noticed or time.monotonic() > deadline:
            return held


async def _fill_default_executor() -> None:
    """Start all threads that `asyncio.to_thread` may ever use here: it adds them one by one, as work overlaps."""
    size = 8
    executor = ThreadPoolExecutor(size, thread_name_prefix="shared")
    asyncio.get_running_loop().set_default_executor(executor)
    together = Barrier(size)
    await asyncio.gather(*(asyncio.to_thread(together.wait) for _ in range(size)))


def _line(look: Look, sessions: int, seconds: float) -> str:
    held = look.process
    return (
        f"{look.sessions:5} of {sessions} sessions, {seconds:4.0f} s: {held.memory / 2**20:.1f} MB, "
        f"{held.blocks} objects, {held.descriptors} descriptors, {held.connections} connections, "
        f"{held.processes} processes, {held.threads} threads, {look.parts['models served']} models"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def summary(report: Report) -> dict[str, Any]:
    """The figures of a soak, for people and for JSON."""
    return {
        "sessions": report.looks[-1].sessions,
        "seconds": round(report.seconds, 1),
        "model_calls": report.model_calls,
        "tool_calls": report.tool_calls,
        "versions": sum(report.canaries.values()),
        "memory_mb": round(report.looks[-1].process.memory / 2**20, 1),
        "memory_growth_mb": round(report.memory_growth / 2**20, 2),
        "objects_growth": round(report.blocks_growth),
        "ends": report.outcomes,
        "broken": broken_bounds(report),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Thousands of sessions, and proof that nothing grows or is left.")
    parser.add_argument(
        "--sessions", type=int, default=2000, help="sessions to play, retries among them (default 2000)"
    )
    parser.add_argument("--in-flight", type=int, default=8, help="sessions at once (default 8)")
    parser.add_argument("--json", action="store_true", help="print every look as one JSON object")
    arguments = parser.parse_args()
    if arguments.sessions < LOOKS * MIN_ROUND or arguments.in_flight < 1:
        parser.error(f"a soak needs at least {LOOKS * MIN_ROUND} sessions, and one in flight")
    logging.getLogger("harness_adapters").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        report = asyncio.run(soak(arguments.sessions, arguments.in_flight, Path(folder), _say))
    figures = summary(report)
    if arguments.json:
        figures |= {"looks": [asdict(look) for look in report.looks]}
        figures |= {"before": asdict(report.before), "after": asdict(report.after)}
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    for line in figures["broken"]:
        sys.stderr.write(f"broken: {line}\n")
    return 1 if figures["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
