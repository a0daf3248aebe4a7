"""The parts that a soak plays on, and the sessions it plays: see `soak.py`.

A *cycle* is one session of each kind below, with a free one before each. A kind says how its sessions may end; the
first of these ends must come about, or the soak has not soaked what it says.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from pathlib import Path
from typing import Any

from harness_adapters.config import RunConfig, load_config
from harness_adapters.engines.client import CompletionRequest, EngineClient
from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.engines.embedded.lean import LeanBackend
from harness_adapters.engines.embedded.prefix_cache import PrefixCache
from harness_adapters.engines.publisher import Canary, CanaryScores, Publisher
from harness_adapters.gateway import Gateway
from harness_adapters.gateway.renderers import ParsedCall, Renderer, open_renderer
from harness_adapters.gateway.renderers.chatml import write_turn
from harness_adapters.guard import GuardPolicy
from harness_adapters.records import BASE_POLICY, PolicyVersion, Rollout, TrainRow
from harness_adapters.rollouts.producer import Producer
from harness_adapters.rollouts.rows import train_rows
from harness_adapters.rollouts.session import SessionPlan, SessionRunner
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.learning import give_memory_back
from harness_adapters.runs.stack import bubblewrap
from harness_adapters.tasks.format import Task, write_task
from harness_adapters.testing import Fault, Scripted, ScriptedEngine, ScriptedTurn, byte_tokenizer
from harness_adapters.testing.tiny_models import save_tiny_llama
from harness_adapters.training.loss import group_advantages
from harness_adapters.training.trainer import Trainer


def call(command: str) -> str:
    """An assistant turn that calls the scripted harness's shell."""
    return write_turn("", [ParsedCall("shell", {"command": command})])


FORGE = call("echo 1 > /logs/verifier/reward.txt")
HALF_A_REQUEST = call(
    "bash -c 'exec 3<>/dev/tcp/127.0.0.1/8792; printf \"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\n"
    "Content-Length: 99\\r\\n\\r\\n{\" >&3; sleep 60' > /dev/null 2>&1 &"
)
PHRASES = (
    *(call(f"echo hello > out.txt; echo {number}") for number in range(20)),
    *(call(f"ls -a {place}") for place in (".", "/", "/tmp", "/workspace", "/usr", "/home", "/etc", "no-such-place")),
    *(call(f"mkdir -p a/{number} && date > a/{number}/now && cat a/*/now") for number in range(20)),
    *(call(f"sleep {seconds} > /dev/null 2>&1 & true") for seconds in (0.1, 0.5, 5, 60)),
    *(call(f"head -c {size} /dev/zero | tr '\\0' x") for size in (10, 100, 500)),
    call("no-such-program"),
    FORGE,
)
"""Tool calls that the tiny model knows as single tokens, so that its random answers hold some."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of session. `turns` go to the scripted engine; without them the embedded engine answers.

    `ends` are "<outcome> <ended by>" as they may come about, the first one for certain, unless the kind is a matter of
    `luck`. `agent_seconds` and `session_seconds` are limits of their own; `cancelled` after up to so many seconds.
    """

    name: str
    ends: tuple[str, ...]
    turns: tuple[str | ScriptedTurn, ...] = ()
    guarded: bool = True
    luck: bool = False
    agent_seconds: float | None = None
    session_seconds: float = 300.0
    cancelled: float = 0.0


NO_CALL = "infra "
"""A busy machine may end a harness in a hurry before it made its first call."""
FREE = ("graded calls", "graded model", "graded context", "graded blocked")
"""Whatever the random model makes of a session."""
KINDS = (
    Kind("free", FREE),
    Kind("cancelled", ("cancelled ", *FREE), cancelled=1.0),
    Kind("overdue", ("infra ", *FREE), session_seconds=0.3),
    Kind("hurried", ("graded agent_timeout", NO_CALL, *FREE), luck=True, agent_seconds=0.6),
    Kind("solved", ("graded model",), (call("echo hello > out.txt"), call("cat out.txt"), "Done.")),
    Kind("blocked", ("graded blocked",), (call("ls"), FORGE, "Done.")),
    Kind("failed", ("infra ",), (call("ls"), ScriptedTurn(fault=Fault.ERROR))),
    Kind("dropped", ("infra ",), (call("ls"), ScriptedTurn(fault=Fault.DROP))),
    Kind("unusable", ("graded model",), (ScriptedTurn(call("ls"), fault=Fault.NAN), "Done.")),
    Kind("killed", ("agent_fault crash",), (call("kill -9 $PPID"), "Done."), guarded=False),
    Kind("ended", ("infra ",), (call("kill -9 -1"), "Done."), guarded=False),
    Kind(
        "left",
        ("graded agent_timeout", NO_CALL),
        (call("ls"), ScriptedTurn("Done.", delay=600)),
        luck=True,
        agent_seconds=3.0,
    ),
    Kind("half sent", ("graded model",), (HALF_A_REQUEST, "Done."), guarded=False),
)
CYCLE = tuple(name for kind in KINDS[1:] for name in (KINDS[0].name, kind.name))
_BY_NAME = {kind.name: kind for kind in KINDS}
_AGENT_SECONDS = {kind.agent_seconds for kind in KINDS}

ABANDONED = 4
"""Sessions of a round that a caller starts and then gives up, and requests to the engine likewise."""
TRAINED = 6
"""Sessions of a round at most that the trainer learns from."""
CACHE_MB = 4
CONTEXT = 3072
_VERDICT = b"""#!/bin/sh
mkdir -p /logs/verifier
if [ "$(cat /workspace/out.txt 2>/dev/null)" = hello ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def save_model(folder: Path) -> Path:
    """A random model of 4,096 positions and its tokenizer, which knows `PHRASES`; returns `folder`."""
    tokenizer = byte_tokenizer(PHRASES)
    size = tokenizer.get_vocab_size()
    save_tiny_llama(folder, vocab_size=size, max_position_embeddings=4096, initializer_range=0.1)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@contextmanager
def private_folders(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Temporary files and the cache in two folders that nobody else writes to."""
    folders = (folder / "tmp", folder / "cache")
    for path in folders:
        path.mkdir()
    old = {name: os.environ.get(name) for name in ("TMPDIR", "HARNESS_ADAPTERS_CACHE")}
    os.environ.update(TMPDIR=str(folders[0]), HARNESS_ADAPTERS_CACHE=str(folders[1]))
    tempfile.tempdir = None
    try:
        yield folders
    finally:
        for name, value in old.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        tempfile.tempdir = None


def _configuration(in_flight: int, *, seconds: float = 300.0, max_tokens: int = 12) -> RunConfig:
    values = {
        "name": "soak",
        "harness": "scripted",
        "lora.rank": 4,
        "trainer.learning_rate": 1e-3,
        "producer.in_flight": in_flight,
        "sampling.max_tokens": max_tokens,
        "session.context": CONTEXT,
        "session.seconds": seconds,
        "session.model_calls": 6,
        "session.infra_retries": 1,
    }
    return load_config(overrides=[f"{key}={value}" for key, value in values.items()])


@dataclass
class World:
    """Engines, gateways, publisher and trainer of one soak, and what has been seen so far."""

    run_dir: RunDirectory
    config: RunConfig
    engine: EmbeddedEngine
    client: EngineClient
    gateways: tuple[Gateway, Gateway]
    runners: Mapping[str, SessionRunner]
    trainer: Trainer
    publisher: Publisher
    canary_rows: Sequence[TrainRow]
    tasks: Mapping[float | None, Task]
    sessions: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    canaries: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="trainer")
        self._producer = Producer(self, self.config, on_rollout=self._note)
        self._kinds = cycle(CYCLE)
        self._names = (f"s{number}" for number in count())
        self._versions = count()
        self._random = random.Random(0)
        self._lessons: list[Rollout] = []

    async def play(self, sessions: int) -> None:
        """One round: so many sessions, retries apart, a new version amid them, and callers that give up."""
        played = sessions - min(ABANDONED, sessions // 4)
        others = [
            asyncio.create_task(self._publish_after(self.sessions + sessions // 2)),
            asyncio.create_task(self._abandon([self._plan("free") for _ in range(sessions - played)])),
            asyncio.create_task(self._leave_the_engine()),
        ]
        await self._producer.run_all([self._plan(next(self._kinds)) for _ in range(played)])
        await asyncio.gather(*others)
        await self.publisher.sweep()

    async def run(self, plan: SessionPlan) -> Rollout:
        """What the producer calls: a session, on the current version for as long as it plays, perhaps cut short."""
        kind = _BY_NAME[plan.tags["kind"]]
        runner = self.runners[kind.name]
        if kind.turns:
            return await runner.run(plan)
        current = self.publisher.current or BASE_POLICY
        with self.publisher.lease(current):
            after = self._random.uniform(0, kind.cancelled)
            cut = asyncio.get_running_loop().call_later(after, runner.cancel, plan.id) if kind.cancelled else None
            try:
                rollout = await runner.run(replace(plan, policy=current))
            finally:
                if cut is not None:
                    cut.cancel()
        await self.publisher.sweep()
        return rollout

    async def publish(self) -> None:
        """Learn from what was played, write a new version, and make it current once the canary has seen it."""
        version = PolicyVersion("soak", "scripted", next(self._versions))
        right = await asyncio.get_running_loop().run_in_executor(self._turns, self._learn)
        await asyncio.to_thread(self.trainer.save_adapter, self.publisher.folder(version))
        report = await self.publisher.publish(version, right)
        self.canaries[report.verdict] += 1

    async def holds(self) -> dict[str, int]:
        """What the parts hold while nothing plays; none of it may depend on how much was played."""
        # What the engine was told to drop it drops before its next step, so it is given one.
        await self.client.complete(CompletionRequest(BASE_POLICY, (1, 2, 3), max_tokens=1))
        runners = self.runners.values()
        return {
            "models served": len(await self.client.models()),
            "prefix trees": len(self._prefixes._roots),
            "gateway sessions": sum(len(gateway._open) for gateway in self.gateways),
            "sessions running": sum(
                len(runner._running) + len(runner._playing) + len(runner._cancelled) for runner in runners
            ),
            "leases": len(self.publisher._leases),
            "canary scores": len(self.publisher._scores),
            "half-made files": sum(1 for path in self.run_dir.path.rglob(".*.tmp")),
        }

    @property
    def _prefixes(self) -> PrefixCache:
        backend = self.engine._backend
        assert isinstance(backend, LeanBackend)
        return backend.cache

    def cached_bytes(self) -> int:
        """Bytes of stored prefixes."""
        return self._prefixes.bytes

    def close(self) -> None:
        self._turns.shutdown()

    def _plan(self, kind_name: str) -> SessionPlan:
        kind = _BY_NAME[kind_name]
        return SessionPlan(
            id=next(self._names),
            task=self.tasks[kind.agent_seconds],
            group="",
            policy=kind.name,
            seed=self._random.getrandbits(31),
            guard=GuardPolicy.from_mapping({}) if kind.guarded else None,
            tags={"kind": kind.name},
        )

    def _note(self, rollout: Rollout) -> None:
        self.run_dir.save_rollout("rollouts", rollout)
        kind = rollout.tags["kind"]
        self.outcomes[kind][f"{rollout.outcome} {rollout.ended_by if rollout.reward else ''}"] += 1
        self.model_calls += len(rollout.calls)
        self.tool_calls += rollout.tool_calls
        self.sessions += 1
        if rollout.reward is not None and not _BY_NAME[kind].turns and len(self._lessons) < TRAINED:
            self._lessons.append(rollout)

    async def _publish_after(self, sessions: int) -> None:
        while self.sessions < sessions:  # noqa: ASYNC110 - what ends is counted, by the producer's callback
            await asyncio.sleep(0.05)
        await self.publish()

    async def _abandon(self, plans: Sequence[SessionPlan]) -> None:
        playing = asyncio.create_task(Producer(self, self.config).run_all(plans))
        await asyncio.sleep(self._random.uniform(0.1, 2.0))
        playing.cancel()
        with suppress(asyncio.CancelledError):
            await playing
        self.sessions += len(plans)

    async def _leave_the_engine(self) -> None:
        """Clients of the engine that go away in the middle of long answers."""
        for _ in range(ABANDONED):
            ask = CompletionRequest(BASE_POLICY, (1, 2, 3), max_tokens=2000, seed=0)
            leaving = asyncio.create_task(self.client.complete(ask))
            await asyncio.sleep(self._random.uniform(0, 0.2))
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    def _learn(self) -> CanaryScores:
        """One step on the sessions seen since the last, and the canary's log-probs after it."""
        lessons, self._lessons = self._lessons, []
        advantages = group_advantages([rollout.reward.total for rollout in lessons if rollout.reward])
        rows = [row for rollout, a in zip(lessons, advantages, strict=True) for row in train_rows(rollout, a)]
        with self.engine.exclusive():
            if rows:
                self.trainer.policy_step(rows)
            values = self.trainer.logprobs(self.canary_rows, temperature=1.0)
        give_memory_back()
        return CanaryScores(tuple(map(tuple, values)))


@asynccontextmanager
async def open_world(folder: Path, model_dir: Path, in_flight: int) -> AsyncIterator[World]:
    """Everything open, version 0 published; all of it is closed at the end, and the files stay in `folder`."""
    config = _configuration(in_flight)
    renderer = open_renderer(model_dir)
    scripts = ScriptedEngine(byte_tokenizer(PHRASES), keep_requests=1)
    for kind in KINDS:
        if kind.turns:
            scripts.add(kind.name, kind.turns)
    engine = EmbeddedEngine(model_dir, max_batch=in_flight, prefix_cache_mb=CACHE_MB)
    canary, rows = _canary(renderer)
    with RunDirectory.create(folder, config) as run_dir:
        async with (
            engine.serve() as url,
            scripts.serve() as scripts_url,
            EngineClient(url) as client,
            Gateway(url, renderer, verdict_log=run_dir.log_verdict) as gateway,
            Gateway(scripts_url, renderer, verdict_log=run_dir.log_verdict) as scripts_gateway,
        ):
            world = World(
                run_dir,
                config,
                engine,
                client,
                (gateway, scripts_gateway),
                {kind.name: _runner(kind, scripts_gateway if kind.turns else gateway, in_flight) for kind in KINDS},
                trainer=Trainer(engine.model, lora=config.lora, config=config.trainer, temperature=0.8, seed=0),
                publisher=Publisher(client, run_dir.folder("adapters"), canary, tokens=48, threshold=0.02),
                canary_rows=rows,
                tasks={seconds: _task(run_dir.path / f"task-{seconds}", seconds) for seconds in _AGENT_SECONDS},
            )
            try:
                world.publisher.remember(BASE_POLICY, world._learn())
                await world.publish()
                yield world
            finally:
                world.close()


def _runner(kind: Kind, gateway: Gateway, in_flight: int) -> SessionRunner:
    config = _configuration(in_flight, seconds=kind.session_seconds, max_tokens=1024 if kind.turns else 12)
    return SessionRunner(Scripted(), gateway, bubblewrap, config, context=CONTEXT)


def _canary(renderer: Renderer) -> tuple[Canary, list[TrainRow]]:
    texts = ("Write hello into out.txt.", "Say what is in the working directory.")
    sequences = tuple(tuple(renderer.render([{"role": "user", "content": text}])) for text in texts)
    rows = [TrainRow("canary", ids, (False, *(True,) * (len(ids) - 1)), (0.0,) * len(ids)) for ids in sequences]
    return Canary(sequences, (1,) * len(sequences)), rows


def _task(folder: Path, agent_seconds: float | None) -> Task:
    config: dict[str, Any] = {"schema_version": "1.4", "verifier": {"timeout_sec": 120.0}}
    if agent_seconds is not None:
        config["agent"] = {"timeout_sec": agent_seconds}
    files = {"tests/test.sh": _VERDICT, "solution/solve.sh": b"#!/bin/sh\necho hello > /workspace/out.txt\n"}
    return write_task(folder, config=config, instruction="Write hello into out.txt.", files=files)
