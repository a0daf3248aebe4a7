"""The learner over its lifetimes: real engine, trainer and publisher on a tiny model; only the sessions are made up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from learner_lives import SESSIONS, a_life, config, one_step, warm

from harness_adapters.errors import RunError
from harness_adapters.runs.directory import RunDirectory


def test_after_a_resume_the_warm_start_and_the_current_version_are_both_served(tmp_path: Path, model: Path) -> None:
    async def lives() -> None:
        with RunDirectory.create(tmp_path, config(model)) as run:
            async with a_life(run, model) as (learner, _):
                await warm(learner)
                await one_step(learner)
                await learner.versions.publish(1)
            async with a_life(run, model) as (learner, engine):
                names = [learner.versions.version(number).name for number in (0, 1)]
                await learner.versions.serve()
                assert set(names) <= set(engine.models())
                assert (learner.versions.warm, learner.versions.current) == (names[0], names[1])

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
                        await learner.versions.publish(step)
            async with a_life(run, model) as (learner, _):
                await learner.versions.serve()
                assert learner.versions.current == learner.versions.version(current).name

    asyncio.run(lives())


def test_a_version_killed_between_checkpoint_and_publishing_is_published_on_resume(tmp_path: Path, model: Path) -> None:
    async def lives() -> None:
        with RunDirectory.create(tmp_path, config(model)) as run:
            async with a_life(run, model) as (learner, _):
                await warm(learner)
                await one_step(learner)
            async with a_life(run, model) as (learner, _):
                await learner.versions.serve()
                assert learner.versions.current == learner.versions.version(1).name
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
                await learner.versions.serve()

    asyncio.run(lives())


def test_a_run_without_a_warm_start_begins_from_the_base(tmp_path: Path, model: Path) -> None:
    async def life() -> None:
        with RunDirectory.create(tmp_path, config(model, warm_start={"steps": 0})) as run:
            async with a_life(run, model, []) as (learner, _):
                await warm(learner)
                assert learner.versions.current == learner.versions.version(0).name

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
                    await learner.versions.serve()

    asyncio.run(lives())
