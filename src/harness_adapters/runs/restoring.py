"""Where a run's learner stands, and how a resumed run finds back to it.

A checkpoint holds adapter, optimizer and random state (`training.checkpoint`) and, as its state, a `LearnerState`. What
else a run has to know lies beside it: the plan of the step that was being sampled (`planning`), and every rollout by
its id. So what a step was trained on is in its `policy_step` event, which stands as soon as the step's checkpoint does.

Without any usable checkpoint a run begins again from its recorded sessions. The same steps on the same rollouts then
give the same weights and the same versions; where they do not (another machine, another number of threads), a version
gets a number that was never used, and rollouts of other versions are set aside, never trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from harness_adapters.errors import RunError
from harness_adapters.runs.directory import RunDirectory

if TYPE_CHECKING:
    from harness_adapters.training.checkpoint import Refusal, Restored
    from harness_adapters.training.trainer import Trainer

CHECKPOINTS = "checkpoints"


@dataclass(slots=True)
class LearnerState:
    """Steps taken, tasks drawn by the end of the last one, and the numbers of version 0 and of the last version.

    A version's number is its step's, unless a resume had to give another one; -1 before the first.
    """

    warm_steps: int = 0
    grpo_steps: int = 0
    cursor: int = 0
    warm_version: int = -1
    version: int = -1


def restore(run: RunDirectory, trainer: Trainer, say: Callable[[str], None]) -> LearnerState:
    """Bring `trainer` to the newest checkpoint of `run` that fits it; what stands then.

    Each one passed over is said and logged by name, and moved away. Raises RunError where none is good and one is
    whole but of another base, rank, alpha, targets or format: the run was made with something else.
    """
    folder = run.folder(CHECKPOINTS)
    restored = trainer.load_newest_checkpoint(folder)
    for refusal in restored.refused:
        say(f"checkpoint {refusal.name} is passed over: {refusal.reason}")
        run.events.append("checkpoint_passed_over", checkpoint=refusal.name, reason=refusal.reason)
    foreign = [refusal for refusal in restored.refused if refusal.foreign]
    if restored.folder is None and foreign:
        raise RunError(
            f"no checkpoint of {run.path} can be used: {'; '.join(refusal.reason for refusal in foreign)}",
            "resume with the configuration and base model it was made with, or move checkpoints/ away to begin again "
            "from the recorded sessions",
        )
    _move_away(run, restored.refused)
    state = LearnerState(**restored.state)
    if said := _outcome(run, restored):
        say(said)
    name = restored.folder.name if restored.folder else None
    run.events.append("learner_restored", checkpoint=name, **asdict(state))
    return state


def _move_away(run: RunDirectory, refused: tuple[Refusal, ...]) -> None:
    """Kept, one of a higher number would outlive every good one written from here on."""
    for refusal in refused:
        run.set_aside([run.path / CHECKPOINTS / refusal.name], refusal.reason)


def _outcome(run: RunDirectory, restored: Restored) -> str:
    """What a person has to know of where the run goes on; empty for a run that has not come to a checkpoint yet."""
    if restored.folder is not None:
        return f"going on from checkpoint {restored.folder.name}"
    if restored.refused or any((run.path / "adapters").glob("v*/")):
        return "no checkpoint is left: the run begins again from its recorded sessions and rollouts"
    return ""
