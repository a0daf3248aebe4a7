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
from harness_adapters.evaluation.compare import Comparison, compare_sessions
from harness_adapters.evaluation.evaluated import COUNTED, Evaluated, evaluated, harness_of
from harness_adapters.records import Rollout, rollout_from_json

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


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """A run's evaluation as its files have it.

    `planned` is the number of sessions of a finished one, None for one that is not; `tasks` the number of task
    directories that the run made to be judged on, 0 where it made none.
    """

    sessions: tuple[Evaluated, ...]
    harness: str
    planned: int | None
    tasks: int

    def gaps(self) -> tuple[str, ...]:
        """What is missing among the evaluation's sessions, one sentence each."""
        plans = {session.plan for session in self.sessions}
        labels, tasks, attempts = (len({plan[column] for plan in plans}) for column in range(3))
        if self.planned is None:
            total = labels * max(tasks, self.tasks) * attempts
            at_least = "" if self.tasks else "at least "
            return (f"evaluation is not finished: {len(plans)} of {at_least}{total} sessions",)
        gaps = []
        if self.planned != len(plans):
            missing = self.planned - len(plans)
            difference = f"{missing} missing" if missing > 0 else "more than were planned"
            gaps.append(f"the evaluation had {self.planned} sessions and {len(plans)} are here: {difference}")
        if absent := labels * tasks * attempts - len(plans):
            total = labels * tasks * attempts
            gaps.append(f"{absent} of {total} combinations of policy, task and attempt have no session")
        return tuple(gaps)


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
    run = load_evaluation(run_dir)
    if not run.sessions:
        raise RunError(
            f"{run_dir} holds no evaluation rollouts",
            "a run evaluates itself at its end: go on with it by `demo --resume`",
        )
    confidence = read_confidence(run_dir / "config.resolved.toml")
    return Recomputed(compare_sessions(run.sessions, harness=run.harness, confidence=confidence), run.gaps())


def load_evaluation(run_dir: Path) -> RunEvaluation:
    """A run's evaluation, of no sessions where it has not come to it. Raises RunError as `recompute` does."""
    rollouts = load_rollouts(run_dir, "eval")
    sessions = tuple(map(evaluated, rollouts))
    _refuse_mixtures(rollouts, sessions)
    folders = (run_dir / "tasks" / split for split in ("heldout", "unseen", "dev"))
    entries = [entry for folder in folders if folder.is_dir() for entry in folder.iterdir()]
    known = sum(entry.is_dir() and not entry.name.startswith(".") for entry in entries)
    return RunEvaluation(sessions, harness_of(rollouts), _planned_sessions(run_dir / ".done" / "evaluate"), known)


def _refuse_mixtures(rollouts: Sequence[Rollout], sessions: Sequence[Evaluated]) -> None:
    policies: dict[str, Rollout] = {}
    results: dict[tuple[str, str, str], Rollout] = {}
    for rollout, session in zip(rollouts, sessions, strict=True):
        first = policies.setdefault(session.label, rollout)
        if first.policy != rollout.policy:
            raise RunError(
                f"{session.label!r} is {first.policy} in eval/{first.id}.json but {rollout.policy} in "
                f"eval/{rollout.id}.json",
                "move the files of one of the two away",
            )
        if not session.counted:
            continue
        if session.plan in results:
            raise RunError(
                f"eval/{results[session.plan].id}.json and eval/{rollout.id}.json are both attempt {session.attempt} "
                f"at {session.task} by {session.label!r}",
                "move one of the two away",
            )
        results[session.plan] = rollout


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


def read_confidence(path: Path) -> float:
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
        if rollout.outcome in COUNTED:
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
