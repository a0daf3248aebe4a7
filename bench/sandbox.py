"""How long sandboxes take: one JSON object on stdout. Run on a quiet machine: `python bench/sandbox.py`.

Milliseconds of wall time: `start` (construction to executor ready) and `kill` one after the other, `exec` of `true`,
`connect` (a connection from inside answered by this process), `start_24_at_once` (all ready). `memory_each_mib` is
the drop of the machine's available memory per idle sandbox among those 24.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from harness_adapters.sandbox import Sandbox, SandboxSpec, open_sandbox

SEQUENTIAL = 20
CONCURRENT = 24
EXECS = 50


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000


def summary(samples: list[float]) -> dict[str, float]:
    ordered = sorted(samples)
    return {"median": round(statistics.median(ordered), 1), "p90": round(ordered[int(len(ordered) * 0.9)], 1)}


def available_mib() -> float:
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found[1]) / 1024 if found else 0.0


async def one_after_the_other() -> dict[str, dict[str, float]]:
    starts, kills = [], []
    for _ in range(SEQUENTIAL):
        sandbox = open_sandbox("bubblewrap", SandboxSpec())
        starts.append(await timed(sandbox.start))
        kills.append(await timed(sandbox.kill))
    return {"start_ms": summary(starts), "kill_ms": summary(kills)}


async def inside_one() -> dict[str, dict[str, float]]:
    sandbox = open_sandbox("bubblewrap", SandboxSpec())
    try:
        await sandbox.start()
        execs = [await timed(lambda: sandbox.exec(["true"], timeout=30)) for _ in range(EXECS)]
        return {"exec_ms": summary(execs), "connect_ms": summary(await connections(sandbox))}
    finally:
        await sandbox.kill()


async def connections(sandbox: Sandbox) -> list[float]:
    """Measured inside, by the clock of bash, for each of 20 connections."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(answer, sock=await sandbox.listen(8000))
    script = (
        "for i in $(seq 20); do a=${EPOCHREALTIME/./}; exec 3<>/dev/tcp/127.0.0.1/8000; echo x >&3; read -r y <&3;"
        " exec 3>&-; b=${EPOCHREALTIME/./}; echo $((b - a)); done"
    )
    try:
        done = await sandbox.exec(["bash", "-c", script], timeout=60)
    finally:
        server.close()
    return [int(line) / 1000 for line in done.stdout.split()]


async def at_once() -> dict[str, float]:
    sandboxes = [open_sandbox("bubblewrap", SandboxSpec()) for _ in range(CONCURRENT)]
    before = available_mib()
    try:
        started = await timed(lambda: asyncio.gather(*(sandbox.start() for sandbox in sandboxes)))
        memory = (before - available_mib()) / CONCURRENT
    finally:
        ended = await timed(lambda: asyncio.gather(*(sandbox.kill() for sandbox in sandboxes)))
    return {
        "start_24_at_once_ms": round(started, 1),
        "kill_24_at_once_ms": round(ended, 1),
        "memory_each_mib": round(memory, 1),
    }


async def main() -> None:
    load = round(os.getloadavg()[0], 1)
    figures = {"cpus": os.cpu_count(), "load": load, **await one_after_the_other(), **await inside_one()}
    json.dump({**figures, **await at_once()}, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    asyncio.run(main())
