"""A run from nothing to a report: `demo` and `train` are the same loop with different configurations."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from harness_adapters.config import RunConfig
from harness_adapters.errors import Terminated
from harness_adapters.harnesses import Harness
from harness_adapters.records import BASE_POLICY
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.invocation import command
from harness_adapters.runs.progress import Progress
from harness_adapters.runs.stack import (
    check_choices,
    check_disk,
    check_machine,
    check_new,
    open_stack,
    prepare_harness,
    prepare_model,
)

SECONDS = {
    "record": 1.6,
    "warm": 22.0,
    "session": 2.4,
    "train": 60.0,
    "evaluate": 1.8,
}
"""Planned seconds a unit on two slow cores: an oracle session, a warm-start step, a sampled session, a policy step, an
evaluated session. Only the first guess of the time left; the pace seen corrects it."""


def run_to_the_end(config: RunConfig, parent: Path, resume: Path | None, *, stand_in: Harness | None = None) -> int:
    """Make or resume a run directory and do whatever is left of it. Returns the exit code.

    `stand_in` plays the sessions in place of the configuration's harness, whether or not that may be trained for: for
    tests of the loop, which need no real agent. Raises ConfigError, TaskError, InfraError, EngineError, TrainingError
    or RunError for expected failures; what was finished stays and `--resume` goes on from it.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if resume is None:
        check_new(config, stand_in)
        check_disk(parent)
    run = RunDirectory.resume(resume) if resume is not None else RunDirectory.create(parent, anywhere(config))
    with run, resumable(command("demo", "--resume", run.path)):
        try:
            asyncio.run(_until_told(_run(run, stand_in)))
        except BaseException as error:
            run.events.append("stopped", reason=type(error).__name__, message=str(error))
            raise
    return 0


@contextlib.contextmanager
def resumable(how: str) -> Iterator[None]:
    """Print the command that goes on, whatever stops the block."""
    try:
        yield
    except BaseException:
        print(f"stopped; go on with: {how}", file=sys.stderr)
        raise


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Do `work`; SIGTERM stops it as Ctrl-C does. Raises Terminated then."""
    task = asyncio.ensure_future(work)
    told: list[int] = []

    def stop() -> None:
        told.append(signal.SIGTERM)
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        await task
    except asyncio.CancelledError:
        if told:
            raise Terminated from None
        raise


def anywhere(config: RunConfig) -> RunConfig:
    """The configuration with its folders absolute, so that a run can be resumed from another folder."""
    changes: dict[str, object] = {}
    if config.tasks.source != "first-steps":
        changes["tasks"] = config.tasks.model_copy(update={"source": _absolute(config.tasks.source)})
    if config.model.path:
        changes["model"] = config.model.model_copy(update={"path": _absolute(config.model.path)})
    return config.model_copy(update=changes)


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


async def _run(run: RunDirectory, stand_in: Harness | None) -> None:
    from harness_adapters.runs.learning import Learner, adapter_copy
    from harness_adapters.runs.pools import task_pools
    from harness_adapters.runs.results import print_results
    from harness_adapters.runs.stages import evaluate, record_oracles

    config = run.config
    check_choices(config, stand_in)
    progress = Progress(_plan(config))
    progress.say(f"run directory: {run.path}")
    for leftover in run.swept:
        progress.say(f"removed {leftover}: writing it was interrupted")
    await check_machine(run.path)
    harness = await asyncio.to_thread(prepare_harness, config, progress.say, stand_in)
    model_dir = await asyncio.to_thread(prepare_model, config, progress.say)
    pools = task_pools(run)
    progress.say("tasks: " + ", ".join(f"{len(tasks)} {split}" for split, tasks in pools.items()))
    async with open_stack(config, model_dir, harness, run.log_verdict) as stack:
        sessions = await record_oracles(run, harness, model_dir, stack.renderer, pools["train"], progress)
        instructions = {task.id: task.instruction for task in pools["train"]}
        with Learner(run, stack, sessions, instructions, progress.say) as learner:
            await learner.warm_start(progress)
            if not run.done("warm-start"):
                run.mark_done("warm-start")
            versions = learner.versions
            await versions.serve()
            await learner.grpo(pools["train"], progress)
            adapter_copy(versions.current_folder, run.path / "adapter")
            policies = {"base": BASE_POLICY, "warm": versions.warm, "final": versions.current}
            await evaluate(run, stack, policies, pools, progress)
    progress.end()
    print_results(run)


def _plan(config: RunConfig) -> list[tuple[str, float]]:
    sessions = config.producer.groups_per_step * config.producer.group_size
    evaluated = 3 * sum(config.tasks.judged.values()) * config.evaluation.attempts
    return [
        ("record oracle sessions", SECONDS["record"] * config.warm_start.steps * config.warm_start.sessions_per_step),
        ("warm start", SECONDS["warm"] * config.warm_start.steps),
        ("reinforcement learning", config.trainer.steps * (sessions * SECONDS["session"] + SECONDS["train"])),
        ("evaluate", SECONDS["evaluate"] * evaluated),
    ]
