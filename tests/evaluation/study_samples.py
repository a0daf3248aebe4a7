"""Studies made by hand, and study directories of real rollout records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evaluation_samples import rollout_factory

from harness_adapters.config import load_config, to_toml, toml_text
from harness_adapters.evaluation.evaluated import Evaluated
from harness_adapters.evaluation.from_run import RunEvaluation
from harness_adapters.evaluation.from_study import STUDY
from harness_adapters.evaluation.study import Study, StudyFacts
from harness_adapters.records import Outcome, Rollout

Results = Mapping[str, Sequence[tuple[bool, int]]]
"""`results[label][i]` is whether task i was solved, and in how many calls."""

DIGEST = "sha256:" + "5" * 64


def session(
    label: str,
    task: str,
    solved: bool,
    calls: int = 2,
    *,
    split: str = "heldout",
    family: str = "edit",
    outcome: Outcome = Outcome.GRADED,
    attempt: str = "0",
) -> Evaluated:
    """One evaluated session of 30 sampled tokens that ended by itself."""
    return Evaluated(split, label, task, family, attempt, outcome, solved, calls, False, 30, "stop")


def sessions_of(results: Results, split: str = "heldout") -> tuple[Evaluated, ...]:
    """The sessions of one run; task i is of the family `f<i % 4>`."""
    return tuple(
        session(label, f"{split}-{task:03d}", solved, calls, split=split, family=f"f{task % 4}")
        for label, outcomes in results.items()
        for task, (solved, calls) in enumerate(outcomes)
    )


def study_of(runs: Mapping[int, Sequence[Evaluated]], *, seeds: Sequence[int] = (), confidence: float = 0.95) -> Study:
    """A study all of whose runs are finished."""
    facts = StudyFacts("mine", tuple(seeds or runs), confidence, DIGEST, "")
    done = {
        seed: RunEvaluation(tuple(sessions), "pi", len({session.plan for session in sessions}), 0)
        for seed, sessions in runs.items()
    }
    return Study(facts, "pi", done)


def solved(count: int, of: int, calls: int = 2, *, shift: int = 0) -> list[tuple[bool, int]]:
    """`count` of `of` tasks solved, beginning with task `shift`."""
    return [((task - shift) % of < count, calls) for task in range(of)]


def write_study(folder: Path, runs: Mapping[int, Sequence[Rollout]], *, test_set: str = DIGEST) -> Path:
    """A study directory whose runs hold these evaluation rollouts and, where there are any, are finished."""
    config = load_config(preset="tiny-cpu", overrides=[f"frozen.test_set={test_set}"] if test_set else [])
    folder.mkdir(parents=True)
    shared = config.model_dump(exclude_none=True, exclude={"seed"})
    (folder / STUDY).write_text(toml_text({"seeds": list(runs), **shared, "name": "mine"}))
    for seed, rollouts in runs.items():
        run = folder / f"mine-s{seed}-20261201-000000"
        (run / "eval").mkdir(parents=True)
        (run / "config.resolved.toml").write_text(to_toml(config.model_copy(update={"seed": seed})))
        for rollout in rollouts:
            (run / "eval" / f"{rollout.id}.json").write_text(json.dumps(rollout.to_json()))
        if rollouts:
            plans = {(r.tags["policy_label"], r.task, r.tags.get("attempt", "0")) for r in rollouts}
            (run / ".done").mkdir()
            (run / ".done" / "evaluate").write_text(json.dumps({"sessions": len(plans)}))
    return folder


def rollouts_of(results: Results, split: str = "heldout") -> list[Rollout]:
    """The rollouts of one run, named as an evaluation names them."""
    make = rollout_factory()
    return [
        replace(make(label, f"{split}-{task:03d}", won, calls, split=split), id=f"{label}-{split}-{task:03d}-a0")
        for label, outcomes in results.items()
        for task, (won, calls) in enumerate(outcomes)
    ]
