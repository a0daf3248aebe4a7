"""The stages of a run before and after GRPO: oracle sessions, warm start, evaluation.

Invariant: each stage can be killed at any moment and entered again; what it finished is on the disk under a final
name and is not done twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from harness_adapters.config import RunConfig
from harness_adapters.engines.scripted import ScriptedEngine
from harness_adapters.errors import EngineError, TaskError
from harness_adapters.gateway import Gateway
from harness_adapters.gateway.renderers import ParsedCall, Renderer
from harness_adapters.gateway.renderers.chatml import write_turn
from harness_adapters.guard import GuardPolicy
from harness_adapters.harnesses import Harness
from harness_adapters.records import BASE_POLICY, Outcome, Rollout, TrainRow
from harness_adapters.rollouts.producer import Producer
from harness_adapters.rollouts.rows import train_rows
from harness_adapters.rollouts.session import SessionPlan, SessionRunner
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.progress import Progress
from harness_adapters.runs.resuming import ResumingRunner
from harness_adapters.runs.stack import Stack, bubblewrap
from harness_adapters.tasks.format import Task
from harness_adapters.tasks.sources.first_steps import OracleTurn, oracle_turns

STYLES = ("direct", "careful")


def guard_policy(task: Task, pack: str = "train") -> GuardPolicy:
    """The guard of one session: the task's own policy, in this pack unless the task names another."""
    return GuardPolicy.from_mapping({"pack": pack, **task.guard})


async def record_oracles(
    run: RunDirectory, harness: Harness, model_dir: Path, renderer: Renderer, tasks: Sequence[Task], progress: Progress
) -> list[Rollout]:
    """Play oracles through the real harness against the scripted engine; the solved sessions, in plan order.

    Once recorded they stay those: a session that failed for want of the machine is not tried again on a resume, since
    what a warm-start step trains on depends on all of them. Raises TaskError when under two thirds of the oracles solve
    their task (the tasks or the harness are broken), RunError where a recorded session is gone.
    """
    if (chosen := run.read_done("record")) is not None:
        return [run.read_rollout("oracle", name) for name in chosen["ids"]]
    engine = ScriptedEngine(Tokenizer.from_file(str(model_dir / "tokenizer.json")))
    plans = _oracle_plans(run.config, engine, tasks)
    async with engine.serve() as url, Gateway(url, renderer, verdict_log=run.log_verdict) as gateway:
        runner = ResumingRunner(run, "oracle", SessionRunner(harness, gateway, bubblewrap, run.config))
        progress.begin("record oracle sessions", len(plans), sum(runner.finished(plan) for plan in plans))
        rollouts = await _play(runner, run.config, plans, progress)
    solved = [rollout for rollout in rollouts if rollout.solved]
    if len(solved) * 3 < len(plans) * 2:
        sample = next(rollout for rollout in rollouts if not rollout.solved)
        raise TaskError(
            f"only {len(solved)} of {len(plans)} oracle sessions solved their task",
            f"first failure: {sample.task}: {sample.outcome}, ended by {sample.ended_by or 'nothing'}"
            + (f": {sample.detail}" if sample.detail else ""),
        )
    run.mark_done("record", sessions=len(plans), ids=[rollout.id for rollout in solved])
    return solved


def _oracle_plans(config: RunConfig, engine: ScriptedEngine, tasks: Sequence[Task]) -> list[SessionPlan]:
    wanted = config.warm_start.steps * config.warm_start.sessions_per_step
    plans: list[SessionPlan] = []
    order = sorted(tasks, key=lambda task: task.id)
    rng = random.Random(f"{config.seed}:oracles")
    rng.shuffle(order)
    careful = math.floor(len(order) * config.warm_start.careful_share)
    for number in range(min(wanted, 2 * len(order))):
        task = order[number % len(order)]
        first_round = number < len(order)
        style = STYLES[(number % len(order) < careful) == first_round]
        name = f"oracle-{task.id}-{style}"
        engine.add(name, [_turn_text(turn) for turn in oracle_turns(task, style)])
        tags = {"style": style, "family": task.family}
        plans.append(
            SessionPlan(id=name, task=task, group="", policy=name, seed=number, guard=guard_policy(task), tags=tags)
        )
    rng.shuffle(plans)
    return plans


def _turn_text(turn: OracleTurn) -> str:
    return write_turn(turn.text, [ParsedCall(turn.tool, turn.arguments)] if turn.tool else ())


def supervised_sessions(rollouts: Sequence[Rollout]) -> list[list[TrainRow]]:
    """Rows of recorded sessions; each session's weight is its tokens."""
    return [train_rows(rollout, 1.0) for rollout in rollouts]


async def evaluate(
    run: RunDirectory,
    stack: Stack,
    policies: Mapping[str, str],
    pools: Mapping[str, Sequence[Task]],
    progress: Progress,
) -> None:
    """One attempt (or `evaluation.attempts`) of every task judged on by every policy, all from one engine.

    `policies` maps a label (base, warm, final) to the served name. Policies take turns task by task, so that whatever
    changes on the machine meanwhile meets all of them alike. Raises EngineError where the engine lacks one of them.
    """
    served = await stack.client.models()
    if lacking := sorted(set(policies.values()) - set(served)):
        raise EngineError(f"the engine does not serve {', '.join(lacking)}", "resume the run: they are loaded again")
    plans = [
        SessionPlan(
            id=f"{label}-{task.id}-a{attempt}",
            task=task,
            group="",
            policy=name,
            seed=run.config.seed * 1_000_003 + number * 101 + attempt,
            guard=guard_policy(task, "eval"),
            allow_base=name == BASE_POLICY,
            tags={"split": split, "policy_label": label, "attempt": str(attempt)},
        )
        for split in run.config.tasks.judged
        for number, task in enumerate(pools[split])
        for attempt in range(run.config.evaluation.attempts)
        for label, name in policies.items()
    ]
    runner = ResumingRunner(run, "eval", stack.runner)
    progress.begin("evaluate", len(plans), sum(runner.finished(plan) for plan in plans))
    await _play(runner, run.config, plans, progress)
    if run.read_done("evaluate") != {"sessions": len(plans)}:
        run.mark_done("evaluate", sessions=len(plans))


async def _play(
    runner: ResumingRunner, config: RunConfig, plans: Sequence[SessionPlan], progress: Progress
) -> list[Rollout]:
    seen: list[Rollout] = []

    def note(rollout: Rollout) -> None:
        seen.append(rollout)
        infra = sum(r.outcome is Outcome.INFRA for r in seen)
        text = f"solved {sum(r.solved for r in seen)}/{len(seen)}" + (f", infra {infra}" if infra else "")
        progress.advance(text)

    return await Producer(runner, config, on_rollout=note).run_all(plans)
