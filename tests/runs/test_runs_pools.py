"""A run's tasks: one test set for several seeds, none of it while tuning, and no other than the frozen one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness_adapters.config import RunConfig, load_config
from harness_adapters.errors import ConfigError
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.pools import digest_of, judged_digest, task_pools
from harness_adapters.runs.stack import check_new
from harness_adapters.tasks.sources.first_steps import generate

SMALL = ("tasks.train=8", "tasks.heldout=9", "tasks.unseen=6", "tasks.dev=8")
OTHER = "sha256:" + "0" * 64


def config(*overrides: str) -> RunConfig:
    return load_config(preset="tiny-cpu", overrides=[*SMALL, *overrides])


def digests(parent: Path, *overrides: str) -> Iterator[tuple[str, str]]:
    """Of the tasks that runs of two seeds make: those trained on, those judged on."""
    for seed in (1, 2):
        with RunDirectory.create(parent, config(f"seed={seed}", *overrides)) as run:
            pools = task_pools(run)
            trained = {"train": pools.pop("train")}
            yield digest_of(trained), digest_of(pools)


def test_runs_of_two_seeds_share_the_tasks_they_are_judged_on_where_these_have_a_seed_of_their_own(
    tmp_path: Path,
) -> None:
    (train_1, judged_1), (train_2, judged_2) = digests(tmp_path / "own")
    assert train_1 != train_2
    assert judged_1 != judged_2
    (shared_train_1, shared_1), (shared_train_2, shared_2) = digests(tmp_path / "shared", "tasks.evaluation_seed=1")
    assert (shared_train_1, shared_train_2) == (train_1, train_2)
    assert shared_1 == shared_2 == judged_1, "the seed that was not set is the run's own"


def test_a_tuning_run_does_not_even_make_the_test_set(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, config("tasks.evaluate_on=dev")) as run:
        assert {split: len(tasks) for split, tasks in task_pools(run).items()} == {"train": 8, "dev": 8}
        assert sorted(path.name for path in (run.path / "tasks").iterdir()) == ["dev", "train"]


def test_the_digest_is_of_every_byte_name_and_split_and_of_nothing_else(tmp_path: Path) -> None:
    made = generate(tmp_path, seed=0, heldout=3, unseen=2)
    digest = digest_of(made)
    assert digest == judged_digest(load_config(overrides=["tasks.heldout=3", "tasks.unseen=2"]))
    assert digest == digest_of({split: tasks[::-1] for split, tasks in reversed(made.items())})
    assert digest != digest_of({"dev": made["heldout"], "unseen": made["unseen"]})
    assert digest != digest_of({**made, "unseen": made["unseen"][:1]})
    file = made["heldout"][0].path / "tests" / "test.sh"
    file.chmod(0o700)
    assert digest == digest_of(made)
    file.write_bytes(file.read_bytes() + b"\n")
    assert digest != digest_of(made)


def test_a_run_starts_on_the_frozen_test_set_and_on_no_other(tmp_path: Path) -> None:
    right = judged_digest(config())
    check_new(config(f"frozen.test_set={right}"))
    with pytest.raises(ConfigError, match=rf"the test set is {right}, and frozen\.test_set names {OTHER}"):
        check_new(config(f"frozen.test_set={OTHER}"))
    with pytest.raises(ConfigError, match=r"frozen\.test_set names"):
        check_new(config(f"frozen.test_set={right}", "tasks.heldout=8"))
    with RunDirectory.create(tmp_path, config(f"frozen.test_set={right}")) as run:
        pools = task_pools(run)
        file = pools["unseen"][0].path / "instruction.md"
        file.write_text(file.read_text() + "Think.\n")
        with pytest.raises(ConfigError, match=r"frozen\.test_set names"):
            task_pools(run)


def test_a_folder_of_tasks_is_judged_on_and_frozen_alike(tmp_path: Path) -> None:
    made = generate(tmp_path / "mine", seed=3, train=8, heldout=3, dev=2)
    mine = load_config(preset="tiny-cpu", overrides=[f"tasks.source={tmp_path / 'mine'}"])
    right = digest_of({"heldout": made["heldout"], "unseen": []})
    assert judged_digest(mine) == right
    check_new(load_config(base=mine.model_dump(), overrides=[f"frozen.test_set={right}"]))
    tuning = load_config(base=mine.model_dump(), overrides=["tasks.evaluate_on=dev"])
    with RunDirectory.create(tmp_path, tuning) as run:
        assert {split: len(tasks) for split, tasks in task_pools(run).items()} == {"train": 8, "dev": 2}


def test_choices_of_tasks_that_make_no_sense_are_refused_in_one_line(tmp_path: Path) -> None:
    generate(tmp_path / "mine", seed=3, train=8, heldout=3)
    source = f"tasks.source={tmp_path / 'mine'}"
    for overrides, complaint in (
        ([source, "tasks.evaluate_on=dev"], r"has no train/ and dev/ folders of tasks"),
        ([source, "tasks.evaluation_seed=3"], "tasks.evaluation_seed says which first-steps tasks to make"),
        (["tasks.evaluate_on=dev", f"frozen.test_set={OTHER}"], "fixes held-out and unseen tasks"),
    ):
        with pytest.raises(ConfigError, match=complaint) as caught:
            check_new(load_config(preset="tiny-cpu", overrides=overrides))
        assert "\n" not in str(caught.value)
