"""From the model calls of a rollout to linear rows of tokens that can be trained on.

Invariants
- Every completion token of every `AGENT` call is trained in exactly one row; no other token is trained.
- Ids and log-probs are copied from the records; nothing is encoded, decoded or aligned by text.

Asymmetry: a call whose prompt does not extend the row before it starts a new row with its whole prompt as context,
even when that prompt repeats earlier completions: those were trained where they were sampled.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness_adapters.records import CallLabel, ModelCall, Rollout, TrainRow


def train_rows(rollout: Rollout, advantage: float) -> list[TrainRow]:
    """The rows of a rollout's `AGENT` calls, in the order of the calls; rows without a trained token are left out."""
    agent = (call for call in rollout.calls if call.label is CallLabel.AGENT)
    return [row.finish(rollout.id, advantage) for row in _linear_rows(agent) if any(row.trained)]


class _Row:
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.trained: list[bool] = []
        self.logprobs: list[float] = []

    def extended_by(self, call: ModelCall) -> bool:
        return len(call.prompt_ids) >= len(self.ids) and list(call.prompt_ids[: len(self.ids)]) == self.ids

    def append(self, call: ModelCall) -> None:
        new = call.prompt_ids[len(self.ids) :]
        self.ids += [*new, *call.completion_ids]
        self.trained += [False] * len(new) + [True] * len(call.completion_ids)
        self.logprobs += [0.0] * len(new) + list(call.logprobs)

    def finish(self, rollout: str, advantage: float) -> TrainRow:
        return TrainRow(rollout, tuple(self.ids), tuple(self.trained), tuple(self.logprobs), advantage)


def _linear_rows(calls: Iterable[ModelCall]) -> list[_Row]:
    rows: list[_Row] = []
    for call in calls:
        if not rows or not rows[-1].extended_by(call):
            rows.append(_Row())
        rows[-1].append(call)
    return rows
