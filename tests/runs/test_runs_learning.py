"""The learner over its lifetimes: real engine, trainer and publisher on a tiny model; only the sessions are made up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness_adapters.config import RunConfig
from harness_adapters.engines.client import EngineClient
from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.errors import RunError
from harness_adapters.records import CallLabel, ModelCall, Outcome, RewardParts, Rollout
from harness_adapters.rollouts.rows import train_rows
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.learning import Learner
from harness_adapters.runs.progress import Progress
from harness_adapters.runs.stack import Stack
from harness_adapters.testing.tiny_models import save_tiny_llama

INSTRUCTIONS = {"t": "make it so"}
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


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("model") / "m")


@asynccontextmanager
async def a_life(
    run: RunDirectory, model: Path, sessions: list[Rollout] = SESSIONS
) -> AsyncIterator[tuple[Learner, EmbeddedEngine]]:
    """One process's learner on an engine that knows nothing of the lives before."""
    engine = EmbeddedEngine(model, max_batch=4, prefix_cache_mb=8)
    async with engine.serve() as url, EngineClient(url) as client:
        stack = cast(Stack, SimpleNamespace(engine=engine, client=client, renderer=RENDERER))
        yield Learner(run, stack, sessions, INSTRUCTIONS), engine


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
    learner.state.update(grpo_steps=learner.state["grpo_steps"] + 1)
    await learner._checkpoint()


async def warm(learner: Learner) -> None:
    await learner.warm_start(Progress([("warm start", 1.0)]))


def test_after_a_resume_the_warm_start_and_the_current_version_are_both_served(tmp_path: Path, model: Path) -> None:
    async def lives() -> None:
        with RunDirectory.create(tmp_path, config(model)) as run:
            async with a_life(run, model) as (learner, _):
                with learner.publisher.lease(learner.version(0).name):
                    await warm(learner)
                    await one_step(learner)
                    await learner.publish(1)
            async with a_life(run, model) as (learner, engine):
                names = [learner.version(number).name for number in (0, 1)]
                with learner.publisher.lease(names[0]):
                    await learner.restore()
                    assert set(names) <= set(engine.models())
                    assert learner.publisher.current == names[1]

    asyncio.run(lives())


@pytest.mark.parametrize(("steps", "current"), [(1, 0), (2, 2), (3, 2)])
def test_a_resume_goes_on_with_the_version_that_was_due(tmp_path: Path, model: Path, steps: int, current: int) -> None:
    settings = config(model, publish={"every": 2}, trainer={"steps": 9})

    async def lives() -> None:
        with RunDirectory.create(tmp_path, settings) as run:
            async with a_life(run, model) as (learner, _):
                await warm(learner)
                for step in range(1, steps + 1):
                    await one_step(learner)
                    if step % 2 == 0:
                        await learner.publish(step)
            async with a_life(run, model) as (learner, _):
                await learner.restore()
                assert learner.publisher.current == learner.version(current).name

    asyncio.run(lives())


def test_a_version_killed_between_checkpoint_and_publishing_is_published_on_resume(tmp_path: Path, model: Path) -> None:
    async def lives() -> None:
        with RunDirectory.create(tmp_path, config(model)) as run:
            async with a_life(run, model) as (learner, _):
                await warm(learner)
                await one_step(learner)
            async with a_life(run, model) as (learner, _):
                await learner.restore()
                assert learner.publisher.current == learner.version(1).name
                assert (run.path / "adapters" / "v1").is_dir()

    asyncio.run(lives())


def test_the_canary_stays_what_it_was_whatever_sessions_a_resume_brings(tmp_path: Path, model: Path) -> None:
    async def lives() -> None:
        with RunDirectory.create(tmp_path, config(model)) as run:
            async with a_life(run, model) as (learner, _):
                await warm(learner)
                first = learner.canary
            async with a_life(run, model, SESSIONS[1:]) as (learner, _):
                assert learner.canary == first
                await learner.restore()

    asyncio.run(lives())


def test_a_run_without_a_warm_start_begins_from_the_base(tmp_path: Path, model: Path) -> None:
    async def life() -> None:
        with RunDirectory.create(tmp_path, config(model, warm_start={"steps": 0})) as run:
            async with a_life(run, model, []) as (learner, _):
                await warm(learner)
                assert learner.publisher.current == learner.version(0).name

    asyncio.run(life())


def test_a_damaged_checkpoint_of_a_higher_number_does_not_outlive_good_ones(tmp_path: Path, model: Path) -> None:
    async def lives() -> None:
        with RunDirectory.create(tmp_path, config(model)) as run:
            for number in (16, 17):
                folder = run.folder("checkpoints") / f"step-{number:05d}"
                folder.mkdir()
                (folder / "manifest.json").write_text("{")
            async with a_life(run, model) as (learner, _):
                await warm(learner)
                assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["step-00002"]

    asyncio.run(lives())


@pytest.mark.parametrize("lost", ["canary.json", "v0.canary.json", "v0"])
def test_what_a_resume_cannot_do_without_is_named_in_one_line(tmp_path: Path, model: Path, lost: str) -> None:
    async def lives() -> None:
        with RunDirectory.create(tmp_path, config(model)) as run:
            async with a_life(run, model) as (learner, _):
                await warm(learner)
                await one_step(learner)
            path = run.path / "adapters" / lost
            if path.is_dir():
                path.rename(tmp_path / "elsewhere")
            else:
                path.write_text(json.dumps([])[:1])
            with pytest.raises(RunError, match=lost):
                async with a_life(run, model) as (learner, _):
                    await learner.restore()

    asyncio.run(lives())
