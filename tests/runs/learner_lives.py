"""Lives of a learner: real engine, trainer and publisher on a tiny model; only the sessions are made up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from harness_adapters.config import RunConfig
from harness_adapters.engines.client import EngineClient
from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.records import CallLabel, ModelCall, Outcome, RewardParts, Rollout
from harness_adapters.rollouts.rows import train_rows
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.learning import Learner
from harness_adapters.runs.progress import Progress
from harness_adapters.runs.stack import Stack

INSTRUCTIONS = {"t": "make it so"}
SAID: list[str] = []
"""What the lives told the person."""

RENDERER = SimpleNamespace(render=lambda messages: (1, 2, 3))


def session(number: int) -> Rollout:
    """A recorded session of one call."""
    ids = tuple(range(number + 1, number + 12))
    call = ModelCall(
        index=0,
        label=CallLabel.AGENT,
        prompt_ids=(1, 2, 3),
        completion_ids=ids,
        logprobs=(-1.0,) * len(ids),
        finish_reason="stop",
        policy="o",
    )
    return Rollout(
        id=f"o{number}",
        task="t",
        family="f",
        group="",
        harness="pi",
        policy="o",
        outcome=Outcome.GRADED,
        reward=RewardParts(1.0, 0.0, False, 1.0),
        calls=(call,),
    )


SESSIONS = [session(number) for number in range(5)]


@asynccontextmanager
async def a_life(
    run: RunDirectory, model: Path, sessions: list[Rollout] = SESSIONS
) -> AsyncIterator[tuple[Learner, EmbeddedEngine]]:
    """One process's learner on an engine that knows nothing of the lives before."""
    engine = EmbeddedEngine(model, max_batch=4, prefix_cache_mb=8)
    async with engine.serve() as url, EngineClient(url) as client:
        stack = cast(Stack, SimpleNamespace(engine=engine, client=client, renderer=RENDERER))
        with Learner(run, stack, sessions, INSTRUCTIONS, SAID.append) as learner:
            yield learner, engine


def config(model: Path, **changes: Mapping[str, Any]) -> RunConfig:
    values: dict[str, Any] = {
        "model": {"path": str(model)},
        "lora": {"rank": 4},
        "warm_start": {"steps": 2, "sessions_per_step": 1},
        "trainer": {"steps": 3},
        "publish": {"every": 1},
    }
    return RunConfig.model_validate({**values, **changes})


async def one_step(learner: Learner) -> None:
    """What a GRPO step does once its sessions are there."""
    learner.trainer.policy_step(train_rows(SESSIONS[0], 1.0))
    learner.state.grpo_steps += 1
    await learner._checkpoint()


async def warm(learner: Learner) -> None:
    await learner.warm_start(Progress([("warm start", 1.0)]))
    await learner.versions.serve()
