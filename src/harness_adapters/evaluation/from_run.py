"""Rollouts of a run directory, read back, and the comparison made anew from them.

Layout: `<run>/eval/*.json` are evaluation rollouts, `<run>/rollouts/*.json` training rollouts, each file one
`Rollout.to_json()`. Evaluation rollouts carry the tags `split` and `policy_label`, training ones `step`.

Invariant: a comparison is a function of the files alone; nothing of the run that wrote them is needed but its
confidence level, read from `config.resolved.toml` where that exists.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from harness_adapters.config import EvalConfig, load_config
from harness_adapters.errors import RunError
from harness_adapters.evaluation.compare import Comparison, compare
from harness_adapters.records import Outcome, Rollout, rollout_from_json

FOLDERS = {"eval": "eval", "training": "rollouts"}
"""Kind of rollouts -> the folder of a run directory that holds them."""


@dataclass(frozen=True, slots=True)
class TrainingPoint:
    """Means over the valid training rollouts of one step; `solved` is a share in [0, 1]."""

    step: int
    rollouts: int
    reward: float
    solved: float
    tool_calls: float


def load_rollouts(run_dir: Path, kind: str = "eval") -> list[Rollout]:
    """All rollouts of `kind` ("eval" or "training") by file name; none if the run has not made any.

    Raises RunError for a folder that is not there and for a damaged file, naming it; ValueError for another kind.
    """
    if kind not in FOLDERS:
        raise ValueError(f"kind is one of {', '.join(FOLDERS)}, not {kind!r}")
    if not run_dir.is_dir():
        raise RunError(f"no run directory {run_dir}", "check the path")
    return [_read_rollout(path) for path in sorted((run_dir / FOLDERS[kind]).glob("*.json"))]


def recompute(run_dir: Path) -> Comparison:
    """The comparison of a run's evaluation rollouts. Raises RunError when there are none or one is damaged."""
    rollouts = load_rollouts(run_dir, "eval")
    if not rollouts:
        raise RunError(f"{run_dir} holds no evaluation rollouts", "evaluate the run first")
    resolved = run_dir / "config.resolved.toml"
    evaluation = load_config(resolved).evaluation if resolved.is_file() else EvalConfig()
    return compare(rollouts, confidence=evaluation.confidence)


def training_curve(rollouts: Iterable[Rollout]) -> list[TrainingPoint]:
    """Means by training step, from rollouts tagged `step`; infrastructure failures and cancelled ones left out.

    A rollout without a reward that counts (an agent fault) has reward 0. Raises RunError for a step that is not a
    whole number.
    """
    steps: dict[int, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.outcome in (Outcome.GRADED, Outcome.AGENT_FAULT):
            steps[_step(rollout)].append(rollout)
    return [
        TrainingPoint(
            step=step,
            rollouts=len(group),
            reward=fmean(rollout.reward.total if rollout.reward else 0.0 for rollout in group),
            solved=fmean(rollout.solved for rollout in group),
            tool_calls=fmean(rollout.tool_calls for rollout in group),
        )
        for step, group in sorted(steps.items())
    ]


def _step(rollout: Rollout) -> int:
    text = rollout.tags.get("step", "")
    if not text.isdecimal():
        raise RunError(f"training rollout {rollout.id!r} has no step but {text!r}", "remove its file or mend the tag")
    return int(text)


def _read_rollout(path: Path) -> Rollout:
    try:
        return rollout_from_json(json.loads(path.read_bytes()))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}", "check the file's permissions") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is not a rollout: {error!r}", "restore the file from a copy, or remove it") from error
