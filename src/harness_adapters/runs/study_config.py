"""A study's file: a run's configuration with several seeds in place of one, and what a commit has fixed of it.

    preset = "study"
    name = "mine"
    seeds = [1, 2, 3]
    [frozen]
    test_set = "sha256:…"

Invariants
- All runs of a study differ in their seed, and in their name by it, and in nothing else.
- They share the tasks that they are judged on.
- The resolved file reads back equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness_adapters.config import RunConfig, load_config, read_toml, toml_text, validate
from harness_adapters.errors import ConfigError
from harness_adapters.runs.pools import FIRST_STEPS, judged_digest
from harness_adapters.runs.stack import check_new

SEEDS = (1, 2, 3)
"""Of a study whose file names none."""


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """`run` is the configuration of every run; its seed stands for none of them."""

    seeds: tuple[int, ...]
    run: RunConfig

    def run_of(self, seed: int) -> RunConfig:
        """The configuration of one run. Raises ConfigError for a seed or a name that no run can have."""
        return validate(RunConfig, {**self.run.model_dump(), "seed": seed, "name": f"{self.run.name}-s{seed}"}, "study")

    def to_toml(self) -> str:
        """The resolved study as TOML that `load_study` reads back equal."""
        return toml_text({"seeds": list(self.seeds), **self.run.model_dump(exclude_none=True, exclude={"seed"})})


def load_study(path: Path, seeds: Sequence[int] = ()) -> StudyConfig:
    """The study in a file, with other `seeds` where some are given. Raises ConfigError."""
    data = read_toml(path)
    if "seed" in data:
        raise ConfigError("a study has no seed of its own", "name its runs' seeds: seeds = [1, 2, 3]")
    named = data.pop("seeds", None)
    run = load_config(preset=str(data.pop("preset", "")), base=data)
    own = _checked(named, "seeds") if named is not None else ()
    if seeds and own and run.frozen.test_set and tuple(seeds) != own:
        raise ConfigError(
            f"the study is frozen with the seeds {', '.join(map(str, own))}",
            "leave --seeds out, or freeze another study",
        )
    study = StudyConfig(_checked(list(seeds), "--seeds") if seeds else own or SEEDS, run)
    for seed in study.seeds:
        study.run_of(seed)
    return study


def resolve(study: StudyConfig) -> StudyConfig:
    """The study as it will be run: its choices checked, the digest of its test set filled in.

    Raises ConfigError or TaskError for what no run could be made of, and where the test set is not the frozen one.
    """
    tasks = study.run.tasks
    if tasks.source == FIRST_STEPS and tasks.evaluation_seed is None:
        raise ConfigError(
            "the runs of a study are judged on the same tasks, and tasks.evaluation_seed is not set",
            'set it, or name the preset that does (preset = "study")',
        )
    check_new(study.run)
    if study.run.frozen.test_set or tasks.evaluate_on == "dev":
        return study
    frozen = study.run.frozen.model_copy(update={"test_set": judged_digest(study.run)})
    return replace(study, run=study.run.model_copy(update={"frozen": frozen}))


def _checked(seeds: object, what: str) -> tuple[int, ...]:
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ConfigError(f"{what} is not a list of whole numbers", "for example seeds = [1, 2, 3]")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"{what} names a seed twice", "every run of a study has a seed of its own")
    return tuple(seeds)
