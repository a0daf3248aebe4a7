"""One session of one task: sandbox, harness, gateway, fresh verifier sandbox, reward — as a small state machine.

    CREATED → BOOT → AGENT → QUIESCE → COLLECT → VERIFY → DONE

Invariants
- `SessionRunner.run` never raises for anything that goes wrong with the session: it returns a `Rollout` with a typed
  outcome. Only a cancellation that did not come through `SessionRunner.cancel` propagates, after full clean-up.
- One deadline (`session.seconds`) covers every phase; the agent's share ends early enough to leave the verifier time.
- The gateway session closes after the agent's process ended; the agent's sandbox is confirmed dead before a fresh one
  verifies; only declared artifacts cross, and the reward is read by the host from the verifier's sandbox.
- An infrastructure failure never becomes a reward of 0, and what is not understood counts as one.

How an agent's end is judged (`judge_end`): time used up, a limit or a block by the gateway, or a clean exit → the state
at that moment is graded. The harness process died although it had reached the model (a crash, the sandbox's memory
limit, a command of the agent's that ends processes) → `AGENT_FAULT`, reward 0, nothing is verified. The engine or guard
failed, the harness reports a failed request that the gateway did not cause, it never reached the model, somebody else
ended its process (the machine short of memory or shut down, a person), or the whole sandbox ended → `INFRA` (a command
of the agent's can do the last two; that cannot be told from a fault of ours, so it is never scored).

Asymmetry: artifacts are collected before the sandbox is killed, since what the agent wrote lives only as long as the
sandbox does; background processes it left may still run then, but none can reach the model or the verifier.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from harness_adapters.config import RunConfig
from harness_adapters.engines.scripted import OWNER as SCRIPTED
from harness_adapters.errors import ConfigError, HarnessAdaptersError
from harness_adapters.gateway import ALIAS, Gateway, GatewaySession, SessionCapture, SessionSpec
from harness_adapters.harnesses.protocol import HOME, Harness, HarnessExit
from harness_adapters.records import Decision, Outcome, RewardParts, Rollout
from harness_adapters.rollouts.reward import score
from harness_adapters.sandbox.archive import pack
from harness_adapters.sandbox.protocol import ExecResult, Limits, Mount, Sandbox, SandboxSpec
from harness_adapters.tasks.format import Task
from harness_adapters.tasks.grading import collect, grade, prepare

if TYPE_CHECKING:
    from harness_adapters.guard import GuardPolicy

log = logging.getLogger(__name__)

OUTPUT_LIMIT = 16 << 20
"""Bytes of the harness's standard output that are kept; pi repeats the whole conversation at its end."""

VERIFIER_SHARE = 0.25
"""The verifier keeps its own time limit free, up to this share of the session's deadline."""

CLEAN_UP_SECONDS = 30.0
"""How long clean-up may take past the deadline before it is given up and logged."""

UNISOLATED = "inprocess"

_SENT_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM)
"""Signals by which processes are ended from outside; what a crash of their own raises is not among them."""

_ENDS_PROCESSES = re.compile(r"kill|terminate|shutdown|reboot|halt", re.IGNORECASE)

OpenSandbox = Callable[[SandboxSpec], Sandbox]


class Phase(StrEnum):
    CREATED = "created"
    BOOT = "boot"
    AGENT = "agent"
    QUIESCE = "quiesce"
    COLLECT = "collect"
    VERIFY = "verify"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What one session is to do. `policy` is an engine's model name; `allow_base` permits the base model's."""

    id: str
    task: Task
    group: str
    policy: str
    seed: int
    guard: GuardPolicy | None = None
    allow_base: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a session ended; `ended_by` says who ended the agent."""

    outcome: Outcome
    detail: str = ""
    reward: RewardParts | None = None
    ended_by: str = ""


class SessionRunner:
    """Plays sessions; any number at once. Pacing and retries are the producer's."""

    def __init__(
        self, harness: Harness, gateway: Gateway, open_sandbox: OpenSandbox, config: RunConfig, *, context: int = 8192
    ) -> None:
        self.harness = harness
        self.gateway = gateway
        self.open_sandbox = open_sandbox
        self.config = config
        self.context = context
        self._running: set[str] = set()
        self._playing: dict[str, asyncio.Task[object]] = {}
        """Of the running sessions those that may be cancelled, having not come to their end."""
        self._cancelled: set[str] = set()

    async def run(self, plan: SessionPlan) -> Rollout:
        """Play `plan` to its end and clean up. Raises ValueError if a session of this id is running."""
        task = asyncio.current_task()
        if task is None or plan.id in self._running:
            raise ValueError(f"session {plan.id} is running already")
        self._running.add(plan.id)
        session = _Session(self, plan)
        try:
            ending = await self._ending(session, task)
        finally:
            try:
                await _to_the_end(session.clean_up())
            finally:
                self._running.discard(plan.id)
        return session.rollout(ending)

    def cancel(self, session_id: str) -> bool:
        """End one session with outcome `CANCELLED`; false if none of that id runs, or if it cleans up already."""
        task = self._playing.get(session_id)
        if task is None:
            return False
        self._cancelled.add(session_id)
        return task.cancel()

    async def _ending(self, session: _Session, task: asyncio.Task[object]) -> Ending:
        seconds = self.config.session.seconds
        self._playing[session.plan.id] = task
        try:
            async with asyncio.timeout(seconds):
                return await session.play()
        except TimeoutError:
            return Ending(Outcome.INFRA, f"the deadline of {seconds:g} s passed in phase {session.phase}")
        except asyncio.CancelledError:
            if session.plan.id not in self._cancelled:
                raise
            task.uncancel()
            return Ending(Outcome.CANCELLED, f"cancelled in phase {session.phase}")
        except HarnessAdaptersError as error:
            return Ending(Outcome.INFRA, f"{type(error).__name__} in phase {session.phase}: {error}")
        except Exception as error:  # The boundary: our own bug ends one session as infra, never as a reward of 0.
            log.exception("session %s: unexpected failure in phase %s", session.plan.id, session.phase)
            return Ending(Outcome.INFRA, f"unexpected {type(error).__name__} in phase {session.phase}: {error}")
        finally:
            del self._playing[session.plan.id]
            self._cancelled.discard(session.plan.id)


class _Session:
    """The mutable state of one attempt."""

    def __init__(self, runner: SessionRunner, plan: SessionPlan) -> None:
        self.runner = runner
        self.plan = plan
        self.phase = Phase.CREATED
        self.started = time.time()
        self.deadline = time.monotonic() + runner.config.session.seconds
        self._entered = time.monotonic()
        self._seconds: dict[str, float] = {}
        self._sandbox: Sandbox | None = None
        self._limits: Mapping[str, str] = {}
        self._gateway: GatewaySession | None = None
        self._capture: SessionCapture | None = None

    async def play(self) -> Ending:
        sandbox = await self._boot()
        result = await self._run_agent(sandbox)
        self._enter(Phase.QUIESCE)
        capture = await self._close_gateway()
        harness_exit = self.runner.harness.read_exit(result.stdout, result.stderr, result.returncode)
        ending = judge_end(result, harness_exit, capture)
        if ending.outcome is not Outcome.GRADED:
            return ending
        self._enter(Phase.COLLECT)
        artifacts = await collect(sandbox, self.plan.task)
        await sandbox.kill()
        self._enter(Phase.VERIFY)
        seconds = min(self.plan.task.verifier_timeout, self._remaining())
        verdict = await grade(self.runner.open_sandbox, self.plan.task, artifacts, timeout=seconds)
        reward = score(
            verdict.reward,
            tool_calls=capture.tool_calls,
            blocked=_zeroed(capture),
            config=self.runner.config.reward,
        )
        return Ending(Outcome.GRADED, ending.detail, reward, ending.ended_by)

    async def clean_up(self) -> None:
        """Close and kill whatever is open; failures are logged, since nothing can be done about them here."""
        self._enter(Phase.DONE)
        try:
            async with asyncio.timeout(CLEAN_UP_SECONDS):
                if self._gateway is not None:
                    await self._close_gateway()
                if self._sandbox is not None:
                    await self._sandbox.kill()
        except (HarnessAdaptersError, OSError) as error:
            log.error("session %s: clean-up failed: %s", self.plan.id, error or "it took too long")

    def rollout(self, ending: Ending) -> Rollout:
        plan, capture = self.plan, self._capture
        return Rollout(
            id=plan.id,
            task=plan.task.id,
            family=plan.task.family,
            group=plan.group,
            harness=f"{self.runner.harness.name}@{self.runner.harness.version}",
            policy=plan.policy,
            outcome=ending.outcome,
            detail=ending.detail,
            reward=ending.reward,
            calls=capture.calls if capture else (),
            tool_calls=capture.tool_calls if capture else 0,
            ended_by=ending.ended_by,
            started=self.started,
            phases=dict(self._seconds),
            limits=dict(self._limits),
            tags=dict(plan.tags),
        )

    async def _boot(self) -> Sandbox:
        self._enter(Phase.BOOT)
        runner, plan = self.runner, self.plan
        settings = runner.config.session
        mounts = tuple(Mount(source, target) for source, target in runner.harness.mounts())
        limits = Limits(memory_mb=settings.memory_mb, processes=settings.processes)
        sandbox = self._sandbox = runner.open_sandbox(SandboxSpec(mounts, limits))
        await self._refuse_unisolated(sandbox)
        await sandbox.start()
        self._limits = sandbox.limits_enforced()
        await prepare(sandbox, plan.task, timeout=self._remaining())
        await sandbox.put(pack(self._harness_files()), HOME)
        listener = await sandbox.listen(runner.harness.port)
        try:
            self._gateway = runner.gateway.open(self._gateway_spec())
        except BaseException:
            listener.close()
            raise
        await self._gateway.attach(listener)
        return sandbox

    async def _refuse_unisolated(self, sandbox: Sandbox) -> None:
        """Raise ConfigError where commands would run on this machine and a model, not a script, would write them."""
        if sandbox.kind == UNISOLATED and await self.runner.gateway.owners() != {SCRIPTED}:
            raise ConfigError("the in-process sandbox isolates nothing", "it accepts the scripted engine only")

    def _harness_files(self) -> dict[str, bytes]:
        harness = self.runner.harness
        files = harness.files(
            base_url=f"http://127.0.0.1:{harness.port}/v1",
            alias=ALIAS,
            context=self.runner.context,
            max_tokens=self.runner.config.sampling.max_tokens,
        )
        return {str(PurePosixPath(path).relative_to(HOME)): data for path, data in files.items()}

    def _gateway_spec(self) -> SessionSpec:
        runner, plan = self.runner, self.plan
        return SessionSpec(
            id=plan.id,
            policy=plan.policy,
            tool_map=runner.harness.tool_map,
            sampling=runner.config.sampling,
            max_model_calls=runner.config.session.model_calls,
            deadline=self.deadline - self._verifier_reserve(),
            guard=plan.guard,
            allow_base=plan.allow_base,
            seed=plan.seed,
            # The harness is told the model's own context: one near its end would shorten its answers by itself.
            context=min(runner.context, runner.config.session.context),
            on_block=plan.guard.on_block if plan.guard else "stop",
        )

    async def _run_agent(self, sandbox: Sandbox) -> ExecResult:
        self._enter(Phase.AGENT)
        task = self.plan.task
        seconds = max(0.1, self._remaining() - self._verifier_reserve())
        launch = self.runner.harness.launch(task.instruction, session_id=self.plan.id, alias=ALIAS)
        return await sandbox.exec(
            launch.argv,
            cwd=task.workdir,
            env=launch.env,
            timeout=min(seconds, task.agent_timeout) if task.agent_timeout else seconds,
            stdin=launch.stdin,
            output_limit=OUTPUT_LIMIT,
        )

    async def _close_gateway(self) -> SessionCapture:
        if self._gateway is None:
            raise RuntimeError("no gateway session is open")
        self._capture = await self._gateway.close()
        return self._capture

    def _enter(self, phase: Phase) -> None:
        now = time.monotonic()
        if self.phase is not phase and self.phase is not Phase.CREATED:
            self._seconds[self.phase.value] = now - self._entered
        self.phase, self._entered = phase, now

    def _verifier_reserve(self) -> float:
        return min(self.plan.task.verifier_timeout, VERIFIER_SHARE * self.runner.config.session.seconds)

    def _remaining(self) -> float:
        return max(0.1, self.deadline - time.monotonic())


def judge_end(result: ExecResult, harness_exit: HarnessExit, capture: SessionCapture) -> Ending:
    """What the end of the agent's process means; `GRADED` here means "to be graded". Pure."""
    if capture.infra:
        return Ending(Outcome.INFRA, capture.infra, ended_by=capture.ended_by)
    if not capture.calls and capture.ended_by == "context":
        return Ending(Outcome.GRADED, "the first prompt does not fit session.context", ended_by="context")
    if not capture.calls:
        said = "it ran out of time" if result.timed_out else harness_exit.error or capture.ended_by or "it just ended"
        return Ending(Outcome.INFRA, f"the harness made no model call: {said}")
    if result.timed_out:
        return Ending(Outcome.GRADED, ended_by="agent_timeout")
    if harness_exit.crashed and not capture.ended_by:
        if _ended_by_others(result, capture):
            return Ending(Outcome.INFRA, f"somebody ended the harness's process: {harness_exit.error}")
        return Ending(Outcome.AGENT_FAULT, harness_exit.error, RewardParts(0.0, 0.0, _zeroed(capture), 0.0), "crash")
    if not harness_exit.ok and not capture.ended_by:
        return Ending(Outcome.INFRA, f"the harness reports a failed model request: {harness_exit.error}")
    return Ending(Outcome.GRADED, harness_exit.error, ended_by=capture.ended_by or "agent")


def _ended_by_others(result: ExecResult, capture: SessionCapture) -> bool:
    """Whether a signal that is sent on purpose ended the harness, and nothing says that the agent sent it.

    Evidence is the sandbox's own limit, or the word for ending processes in the calls that ran when the harness died.
    """
    if result.returncode is None or -result.returncode not in _SENT_SIGNALS or result.limit:
        return False
    return not any(_ENDS_PROCESSES.search(str(call.arguments)) for call in capture.calls[-1].tool_calls)


def _zeroed(capture: SessionCapture) -> bool:
    verdicts = (verdict for call in capture.calls for verdict in call.verdicts)
    return any(verdict.decision in (Decision.BLOCK, Decision.ZERO) for verdict in verdicts)


async def _to_the_end(work: Awaitable[None]) -> None:
    """Await `work` to its end even when this task is cancelled meanwhile; the cancellation is raised afterwards."""
    inner = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not inner.done():
        try:
            await asyncio.shield(inner)
        except asyncio.CancelledError as error:
            interrupted = error
    inner.result()
    if interrupted is not None:
        raise interrupted
