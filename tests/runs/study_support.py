"""A run's sessions made up, everything else of it real: its directory, its tasks, its records, its results."""

from __future__ import annotations

import random
from pathlib import Path

from harness_adapters.config import load_config
from harness_adapters.records import CallLabel, ModelCall, Outcome, RewardParts, Rollout
from harness_adapters.runs.directory import CONFIG, RunDirectory
from harness_adapters.runs.pools import task_pools
from harness_adapters.runs.results import print_results

SOLVES = {"base": 0.0, "warm": 0.4, "final": 0.7}
STUDY = """
preset = "study"
name = "mine"
seeds = [1, 2, 3]
[tasks]
train = 8
heldout = 16
unseen = 5
dev = 8
"""


def play(path: Path) -> int:
    """Evaluate a run on its real tasks by drawing whether they are solved, and end it as a run ends."""
    with RunDirectory.resume(path) as run:
        rollouts = made_up(run)
        for rollout in rollouts:
            if run.load_rollout("eval", rollout.id) is None:
                run.save_rollout("eval", rollout)
        run.mark_done("evaluate", sessions=len(rollouts))
        print_results(run)
    return 0


def play_some(path: Path, sessions: int) -> None:
    """Begin to evaluate a run, and leave it there."""
    with RunDirectory.resume(path) as run:
        for rollout in made_up(run)[:sessions]:
            run.save_rollout("eval", rollout)


def seed_of(path: Path) -> int:
    return load_config(path / CONFIG).seed


def made_up(run: RunDirectory) -> list[Rollout]:
    rng = random.Random(run.config.seed)
    pools = task_pools(run)
    return [
        _rollout(f"{label}-{task.id}-a0", task.id, task.family, label, split, rng.random() < share)
        for split in run.config.tasks.judged
        for task in pools[split]
        for label, share in SOLVES.items()
    ]


def _rollout(identity: str, task: str, family: str, label: str, split: str, solved: bool) -> Rollout:
    call = ModelCall(0, label, (1, 2), (3, 4, 5), (-0.1, -0.2, -0.3), "stop", CallLabel.AGENT)
    return Rollout(
        id=identity,
        task=task,
        family=family,
        group="",
        harness="pi",
        policy=label,
        outcome=Outcome.GRADED,
        reward=RewardParts(float(solved), 0.0, False, float(solved)),
        calls=(call,),
        tool_calls=1 + solved,
        ended_by="stop",
        tags={"split": split, "policy_label": label, "attempt": "0"},
    )
