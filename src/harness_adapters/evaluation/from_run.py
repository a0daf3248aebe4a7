"""Rollouts of a run directory, read back, and the comparison made anew from them.

Layout: `<run>/eval/*.json` are evaluation rollouts, `<run>/rollouts/*.json` training rollouts, each file one
`Rollout.to_json()`, named by its id. Evaluation rollouts carry the tags `split`, `policy_label` and `attempt`, training
ones `step`. `<run>/.done/evaluate` is there once every planned evaluation session is, and holds their number.

Invariants
- A comparison is a function of the files alone; nothing of the run that wrote them is needed but its confidence level,
  the one key read from `config.resolved.toml`, so that runs of other versions of this program stay readable.
- A comparison of fewer sessions than were planned is never given without a warning that says so.

Asymmetry: missing sessions are a warning (half an evaluation is worth a look), mixed ones an error (two policies under
one label, or two results of one attempt, make a number that means nothing).
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from harness_adapters.config import EvalConfig
from harness_adapters.errors import RunError
from harness_adapters.evaluation.compare import Comparison, compare
from harness_adapters.records import Outcome, Rollout, rollout_from_json

FOLDERS = {"eval": "eval", "training": "rollouts"}
"""Kind of rollouts -> the folder of a run directory that holds them."""

_COUNTED = (Outcome.GRADED, Outcome.AGENT_FAULT)
_Plan = tuple[str, str, str]
"""Policy label, task and attempt: one planned evaluation session. An infra attempt and its retry share one."""


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


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A comparison and, one sentence each, what keeps it from being the one that was planned; normally nothing."""

    comparison: Comparison
    warnings: tuple[str, ...] = ()


def recompute(run_dir: Path) -> Recomputed:
    """The comparison of a run's evaluation rollouts, with a warning for whatever sessions are missing.

    Raises RunError when there are none, one is damaged, two count for one attempt, a label stands for two policies, or
    the configured confidence level is not one.
    """
    rollouts = load_rollouts(run_dir, "eval")
    if not rollouts:
        raise RunError(
            f"{run_dir} holds no evaluation rollouts",
            "a run evaluates itself at its end: go on with it by `demo --resume`",
        )
    _refuse_mixtures(rollouts)
    comparison = compare(rollouts, confidence=_confidence(run_dir / "config.resolved.toml"))
    return Recomputed(comparison, tuple(_gaps(run_dir, {_plan(rollout) for rollout in rollouts})))


def _plan(rollout: Rollout) -> _Plan:
    return rollout.tags.get("policy_label", ""), rollout.task, rollout.tags.get("attempt", "0")


def _refuse_mixtures(rollouts: Sequence[Rollout]) -> None:
    policies: dict[str, Rollout] = {}
    results: dict[_Plan, Rollout] = {}
    for rollout in rollouts:
        label, task, attempt = plan = _plan(rollout)
        first = policies.setdefault(label, rollout)
        if first.policy != rollout.policy:
            raise RunError(
                f"{label!r} is {first.policy} in eval/{first.id}.json but {rollout.policy} in eval/{rollout.id}.json",
                "move the files of one of the two away",
            )
        if rollout.outcome not in _COUNTED:
            continue
        if plan in results:
            raise RunError(
                f"eval/{results[plan].id}.json and eval/{rollout.id}.json are both attempt {attempt} at {task} "
                f"by {label!r}",
                "move one of the two away",
            )
        results[plan] = rollout


def _gaps(run_dir: Path, plans: set[_Plan]) -> list[str]:
    """What is missing among the evaluation's sessions, one sentence each."""
    labels, tasks, attempts = (len(set(column)) for column in zip(*plans, strict=True))
    planned = _planned_sessions(run_dir / ".done" / "evaluate")
    if planned is None:
        folders = (run_dir / "tasks" / split for split in ("heldout", "unseen"))
        entries = [entry for folder in folders if folder.is_dir() for entry in folder.iterdir()]
        known = sum(entry.is_dir() and not entry.name.startswith(".") for entry in entries)
        total = labels * max(tasks, known) * attempts
        return [f"evaluation is not finished: {len(plans)} of {'' if known else 'at least '}{total} sessions"]
    gaps = []
    if planned != len(plans):
        difference = f"{planned - len(plans)} missing" if planned > len(plans) else "more than were planned"
        gaps.append(f"the evaluation had {planned} sessions and {len(plans)} are here: {difference}")
    if absent := labels * tasks * attempts - len(plans):
        gaps.append(f"{absent} of {labels * tasks * attempts} combinations of policy, task and attempt have no session")
    return gaps


def _planned_sessions(path: Path) -> int | None:
    """Sessions of a finished evaluation, None for an unfinished one. Raises RunError for a damaged note."""
    try:
        noted = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"cannot read {path}: {error}", "restore the file from a copy, or evaluate again") from error
    sessions = noted.get("sessions") if isinstance(noted, dict) else None
    if type(sessions) is not int or sessions < 1:
        raise RunError(f"{path} names no number of sessions", "restore the file from a copy, or evaluate again")
    return sessions


def _confidence(path: Path) -> float:
    """`evaluation.confidence` of a resolved configuration, the default where it has none; no other key is looked at."""
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        section = data.get("evaluation", {})
        return EvalConfig.model_validate({key: section[key] for key in ("confidence",) if key in section}).confidence
    except FileNotFoundError:
        return EvalConfig().confidence
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{path} gives no evaluation.confidence: {reason}", "mend the file by hand") from error


def training_curve(rollouts: Iterable[Rollout]) -> list[TrainingPoint]:
    """Means by training step, from rollouts tagged `step`; infrastructure failures and cancelled ones left out.

    A rollout without a reward that counts (an agent fault) has reward 0. Raises RunError for a step that is not a
    whole number.
    """
    steps: dict[int, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.outcome in _COUNTED:
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
        rollout = rollout_from_json(json.loads(path.read_bytes()))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}", "check the file's permissions") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is not a rollout: {error!r}", "restore the file from a copy, or remove it") from error
    if rollout.id != path.stem:
        raise RunError(f"{path} holds the rollout {rollout.id!r}", "a rollout's file is named by its id; rename it")
    return rollout
