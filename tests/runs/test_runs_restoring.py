"""Checkpoints that do not fit are named and passed over; what a run goes on with instead is said, and is right."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_lives import SAID, a_life, config, one_step, warm
from safetensors.torch import load_file, save_file

from harness_adapters.config import RunConfig
from harness_adapters.errors import RunError
from harness_adapters.events import read_events
from harness_adapters.runs.directory import CONFIG, RunDirectory
from harness_adapters.testing.tiny_models import save_tiny_llama

Harm = Callable[[Path], None]


def truncated(checkpoint: Path) -> None:
    path = checkpoint / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:100])


def of_another_format(checkpoint: Path) -> None:
    path = checkpoint / "checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))


def of_another(**identity: Any) -> Harm:
    def harm(checkpoint: Path) -> None:
        path = checkpoint / "checkpoint.json"
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps({**manifest, "identity": {**manifest["identity"], **identity}}))

    return harm


HARMS = [
    (truncated, "step-00003 is damaged: optimizer.safetensors is not what was written"),
    (of_another_format, "step-00003 has format 99"),
    (of_another(rank=16), "step-00003 is of another rank: 16, this run has 4"),
    (of_another(alpha=1), "step-00003 is of another alpha: 1, this run has 64"),
    (of_another(base="other"), "step-00003 is of another base: 'other'"),
]


def started(tmp_path: Path, settings: RunConfig, steps: int) -> Path:
    """A run whose warm start (2 steps) and `steps` GRPO steps are done; its folder."""

    async def life() -> Path:
        with RunDirectory.create(tmp_path, settings) as run:
            async with a_life(run, Path(settings.model.path)) as (learner, _):
                await warm(learner)
                for step in range(1, steps + 1):
                    await one_step(learner)
                    await learner.versions.publish(step)
            return run.path

    return asyncio.run(life())


def gone_on_with(path: Path, model: Path) -> dict[str, Any]:
    """What the next life stands at and serves, after what is left of the warm start."""

    async def life() -> dict[str, Any]:
        with RunDirectory.resume(path) as run:
            async with a_life(run, model) as (learner, _):
                restored = {"warm_steps": learner.state.warm_steps, "grpo_steps": learner.state.grpo_steps}
                await warm(learner)
                return {**restored, "current": learner.versions.current, "number": learner.state.version}

    SAID.clear()
    return asyncio.run(life())


def told(path: Path, kind: str) -> list[Mapping[str, Any]]:
    return [event for event in read_events(path / "events.jsonl") if event["kind"] == kind]


@pytest.mark.parametrize(("harm", "named"), HARMS)
def test_one_that_does_not_fit_is_named_and_the_one_before_it_is_used(
    tmp_path: Path, model: Path, harm: Harm, named: str
) -> None:
    path = started(tmp_path, config(model), steps=1)
    harm(path / "checkpoints" / "step-00003")
    stands = gone_on_with(path, model)
    assert (stands["warm_steps"], stands["grpo_steps"], stands["number"]) == (2, 0, 0)
    assert SAID[0].startswith("checkpoint step-00003 is passed over: ")
    assert named in SAID[0]
    assert SAID[1:] == ["going on from checkpoint step-00002"]
    (passed_over,) = told(path, "checkpoint_passed_over")
    assert passed_over["checkpoint"] == "step-00003"
    assert named in passed_over["reason"]
    restored = told(path, "learner_restored")[-1]
    assert (restored["checkpoint"], restored["warm_steps"], restored["grpo_steps"]) == ("step-00002", 2, 0)
    assert [entry.name for entry in (path / "checkpoints").iterdir()] == ["step-00002"]
    assert (path / "set-aside" / "checkpoints" / "step-00003" / "checkpoint.json").is_file()


def test_one_that_was_being_written_is_named_and_the_one_before_it_is_used(tmp_path: Path, model: Path) -> None:
    path = started(tmp_path, config(model), steps=1)
    shutil.copytree(path / "checkpoints" / "step-00003", path / "checkpoints" / ".step-00004.abcdefgh.tmp")
    with RunDirectory.resume(path) as run:
        assert run.swept == ["checkpoints/.step-00004.abcdefgh.tmp"]
    assert gone_on_with(path, model)["grpo_steps"] == 1
    assert SAID == ["going on from checkpoint step-00003"]


def test_of_damaged_ones_alone_the_run_begins_again_and_comes_to_the_same_versions(tmp_path: Path, model: Path) -> None:
    path = started(tmp_path, config(model), steps=1)
    for checkpoint in (path / "checkpoints").iterdir():
        truncated(checkpoint)
    before = load_file(path / "adapters" / "v0" / "adapter_model.safetensors")
    stands = gone_on_with(path, model)
    assert (stands["warm_steps"], stands["grpo_steps"], stands["number"]) == (0, 0, 0)
    assert SAID[-1] == "no checkpoint is left: the run begins again from its recorded sessions and rollouts"
    assert len(SAID) == 3
    after = load_file(path / "adapters" / "v0" / "adapter_model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {entry.name for entry in (path / "adapters").glob("v*/")} == {"v0", "v1"}


def test_weights_that_come_out_otherwise_never_get_a_number_that_was_used(tmp_path: Path, model: Path) -> None:
    path = started(tmp_path, config(model), steps=1)
    shutil.rmtree(path / "checkpoints")
    names = [path / "adapters" / name / "adapter_model.safetensors" for name in ("v0", "v1")]
    for name in names:
        save_file({key: tensor + 0.01 for key, tensor in load_file(name).items()}, name)
    contents = [name.read_bytes() for name in names]
    stands = gone_on_with(path, model)
    assert (stands["number"], stands["current"][-3:]) == (2, "-v2")
    assert SAID == ["no checkpoint is left: the run begins again from its recorded sessions and rollouts"]
    assert [name.read_bytes() for name in names] == contents
    assert [event["number"] for event in told(path, "published")] == [0, 1, 2]
    assert gone_on_with(path, model)["number"] == 2, "the same life again comes to the same number"


@pytest.mark.parametrize("what", ["rank", "base", "format"])
def test_of_whole_ones_of_something_else_alone_the_run_is_refused_and_nothing_is_moved(
    tmp_path: Path, model: Path, what: str
) -> None:
    path = started(tmp_path, config(model), steps=1)
    truncated(path / "checkpoints" / "step-00002")
    base = model
    if what == "rank":
        (path / CONFIG).write_text((path / CONFIG).read_text().replace("rank = 4", "rank = 8"))
    elif what == "base":
        base = save_tiny_llama(tmp_path / "other", seed=1)
    else:
        of_another_format(path / "checkpoints" / "step-00003")
    with pytest.raises(RunError, match=rf"no checkpoint of .* can be used: .*step-00003.*{what}") as caught:
        gone_on_with(path, base)
    assert "\n" not in str(caught.value)
    assert "move checkpoints/ away" in caught.value.hint
    assert {entry.name for entry in (path / "checkpoints").iterdir()} == {"step-00002", "step-00003"}
    assert len(SAID) == 2
    shutil.rmtree(path / "checkpoints")
    assert gone_on_with(path, base)["warm_steps"] == 0


def test_a_new_run_says_nothing_of_checkpoints_and_a_resumed_one_where_it_goes_on(tmp_path: Path, model: Path) -> None:
    SAID.clear()
    path = started(tmp_path, config(model), steps=0)
    assert SAID == []
    assert gone_on_with(path, model)["warm_steps"] == 2
    assert SAID == ["going on from checkpoint step-00002"]
    assert told(path, "checkpoint_passed_over") == []
