"""A run's tasks: what it trains on, and what policies are judged on at its end.

Invariants
- What is made once lies in the run directory and is not made again.
- Training tasks are drawn with the run's seed, the others with `tasks.evaluation_seed` where there is one.
- A run with a frozen test set never starts on another, whether it is made anew or found on the disk.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness_adapters.config import RunConfig, TasksConfig
from harness_adapters.errors import ConfigError
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.storage import explained, sha256_file
from harness_adapters.tasks.format import Task, read_tasks, task_files
from harness_adapters.tasks.sources.first_steps import STYLES, generate, oracle_turns

FIRST_STEPS = "first-steps"
_MADE = ("train", "heldout", "unseen", "dev", "evaluation_seed")
"""Keys that say which first-steps tasks are made; they do nothing for a folder of tasks."""


def task_pools(run: RunDirectory) -> dict[str, list[Task]]:
    """The run's tasks by split: generated into `tasks/` once, or read from the folder the configuration names.

    Raises TaskError for a directory that does not parse, ConfigError for a folder that cannot hold the pools or a test
    set that is not the frozen one.
    """
    config = run.config
    if config.tasks.source == FIRST_STEPS:
        source = run.path / "tasks"
        if not run.done("tasks"):
            generate(source, seed=config.seed, train=config.tasks.train)
            _make_judged(config, source)
            run.mark_done("tasks")
    else:
        check_task_folder(config.tasks, oracles=False)
        source = Path(config.tasks.source).expanduser()
    pools = _read(source, ("train", *config.tasks.judged))
    if config.frozen.test_set:
        _refuse_another(config, digest_of({split: pools[split] for split in config.tasks.judged}))
    return pools


def judged_digest(config: RunConfig) -> str:
    """The digest of the tasks that policies of such a run are judged on; they are made in a temporary folder."""
    if config.tasks.source != FIRST_STEPS:
        return digest_of(_read(Path(config.tasks.source).expanduser(), tuple(config.tasks.judged)))
    with explained("cannot make the tasks in a temporary folder"), tempfile.TemporaryDirectory() as folder:
        _make_judged(config, Path(folder))
        return digest_of(_read(Path(folder), tuple(config.tasks.judged)))


def digest_of(pools: Mapping[str, Sequence[Task]]) -> str:
    """`sha256:` and a digest over the split, id, file names and bytes of every task. Raises TaskError.

    File modes stand aside: they are those of the machine that a folder of tasks was copied to.
    """
    digest = hashlib.sha256()
    for split, tasks in sorted(pools.items()):
        for task in sorted(tasks, key=lambda task: task.id):
            for name, file in task_files(task.path).items():
                digest.update(f"{split}/{task.id}/{name} {sha256_file(file)}\n".encode(errors="surrogateescape"))
    return f"sha256:{digest.hexdigest()}"


def check_tasks(config: RunConfig) -> None:
    """Raise ConfigError for choices of tasks that no run can be made of, TaskError for a task that does not parse."""
    if config.frozen.test_set and config.tasks.evaluate_on == "dev":
        raise ConfigError(
            'frozen.test_set fixes held-out and unseen tasks, and tasks.evaluate_on is "dev"', "leave one of them out"
        )
    check_task_folder(config.tasks, oracles=config.warm_start.steps > 0)


def check_new_tasks(config: RunConfig) -> None:
    """Raise ConfigError for keys about tasks that would do nothing, and for a test set that is not the frozen one."""
    usual = TasksConfig()
    idle = [key for key in _MADE if getattr(config.tasks, key) != getattr(usual, key)]
    if config.tasks.source != FIRST_STEPS and idle:
        raise ConfigError(
            f"tasks.{idle[0]} says which first-steps tasks to make; {config.tasks.source} holds its own",
            "leave it out (and --tasks), or tasks.source",
        )
    if config.frozen.test_set:
        _refuse_another(config, judged_digest(config))


def check_task_folder(tasks: TasksConfig, *, oracles: bool) -> None:
    """Raise ConfigError where `tasks.source` is a folder that cannot hold a run's pools, TaskError for a task in it
    that does not parse or, where `oracles` are to be recorded, for one without an oracle that does."""
    if tasks.source == FIRST_STEPS:
        return
    source = Path(tasks.source).expanduser()
    if not all((source / split).is_dir() for split in ("train", tasks.evaluate_on)):
        raise ConfigError(
            f"tasks.source: {source.resolve()} has no train/ and {tasks.evaluate_on}/ folders of tasks",
            "a relative one is looked up from the current folder; harness-adapters tasks first-steps shows the form",
        )
    pools = _read(source, ("train", *tasks.judged))
    for task in pools["train"] if oracles else ():
        there = [style for style in STYLES if (task.path / "solution" / f"{style}.json").exists()]
        for style in there or STYLES[:1]:
            oracle_turns(task, style)


def _make_judged(config: RunConfig, folder: Path) -> None:
    seed = config.seed if config.tasks.evaluation_seed is None else config.tasks.evaluation_seed
    generate(folder, seed=seed, **config.tasks.judged)


def _read(source: Path, splits: Sequence[str]) -> dict[str, list[Task]]:
    return {split: read_tasks(source / split) if (source / split).is_dir() else [] for split in splits}


def _refuse_another(config: RunConfig, found: str) -> None:
    if found != config.frozen.test_set:
        raise ConfigError(
            f"the test set is {found}, and frozen.test_set names {config.frozen.test_set}",
            "bring back the tasks, seed and program that it was frozen with; another test set is another study",
        )
