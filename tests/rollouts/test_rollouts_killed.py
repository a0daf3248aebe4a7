"""Processes of a session killed from outside: the session is infra, played again, and never scored 0 for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

import pytest
from rollouts_bench import Bench, OpenBench, children, tool_turn

from harness_adapters.config import load_config
from harness_adapters.engines.scripted import ScriptedTurn
from harness_adapters.harnesses.scripted import Scripted
from harness_adapters.records import Outcome, Rollout
from harness_adapters.rollouts.producer import Producer
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.resuming import ResumingRunner

KINDS = ("launcher", "init", "executor", "agent")
TURNS = [
    ScriptedTurn(tool_turn("shell", "I write it.", command="sleep 0.1; echo hello > out.txt"), delay=0.1),
    ScriptedTurn(tool_turn("shell", command="sleep 0.1; cat out.txt"), delay=0.1),
    ScriptedTurn("Done.", delay=0.1),
]
KILLS_OF_A_KIND = 6


def kind_of(pid: int) -> str:
    """Which part of a sandbox a process below this one is, by its command line; empty for any other."""
    with contextlib.suppress(OSError):
        words, parent = _words(pid), int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if words[0] == b"bwrap":
            return "launcher" if parent == os.getpid() else "init"
        # What the executor starts bears its name until it becomes the command.
        if b"/opt/execd/execd.py" in words and _words(parent)[0] == b"bwrap":
            return "executor"
        if words[-1].endswith(b"/config.json"):
            return "agent"
    return ""


def _words(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")


async def kill_at_random(rng: random.Random, killed: dict[str, int]) -> None:
    """Kill processes of the kinds in turn, each a random while after it was seen, until each had its share."""
    while min(killed.values()) < KILLS_OF_A_KIND:
        wanted = min(KINDS, key=lambda kind: killed[kind])
        found = [pid for pid in children() if kind_of(pid) == wanted]
        await asyncio.sleep(rng.uniform(0.0, 0.3) if found else 0.01)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(found), signal.SIGKILL)
                killed[wanted] += 1


@pytest.mark.slow
def test_sessions_whose_processes_are_killed_are_infra_and_solved_in_the_end(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(1 << 30))
    print(f"KILL_SEED={seed}")
    seen: list[Rollout] = []
    killed = dict.fromkeys(KINDS, 0)

    async def play(bench: Bench) -> list[Rollout]:
        runner = ResumingRunner(run, "rollouts", bench.runner)
        producer = Producer(runner, bench.runner.config, on_rollout=seen.append)
        killer = asyncio.create_task(kill_at_random(random.Random(seed), killed))
        ended: list[Rollout] = []
        while not killer.done():
            ended += await producer.run_all([bench.plan(TURNS, f"s{len(ended)}-{number}") for number in range(3)])
        await killer
        return ended

    async def all_of_it() -> list[Rollout]:
        async with open_bench(Scripted(), "bubblewrap", overrides=["session.infra_retries=40"]) as bench:
            return await play(bench)

    with RunDirectory.create(tmp_path, load_config()) as run:
        before = children()
        ended = asyncio.run(all_of_it())
        assert children() <= before
    assert all(rollout.solved for rollout in ended), [(rollout.outcome, rollout.detail) for rollout in ended]
    assert {rollout.outcome for rollout in seen} == {Outcome.GRADED, Outcome.INFRA}
    for rollout in seen:
        assert (rollout.reward is None) == (rollout.outcome is Outcome.INFRA)
        assert rollout.reward is None or rollout.reward.verifier == 1.0
    infra = sum(rollout.outcome is Outcome.INFRA for rollout in seen)
    assert infra >= KILLS_OF_A_KIND, "kills that end no session prove nothing"
