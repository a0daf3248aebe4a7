"""One step of the engine: the next token of every decoding sequence, and a share of prompt tokens for the others.

Invariant: computing changes nothing of a sequence but its cache rows and its random generator; the batcher books the
results.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch

from harness_adapters.engines.embedded.backend import StepResult
from harness_adapters.engines.embedded.kv import SlotPool
from harness_adapters.engines.embedded.model import LlamaModel
from harness_adapters.engines.embedded.products import FloatArray
from harness_adapters.engines.embedded.sampling import sample_row, token_logprobs
from harness_adapters.engines.embedded.sequence import Sequence
from harness_adapters.engines.embedded.tables import Forward, Share

PREFILL_CHUNK = 512
"""Prompt tokens computed in one step: enough to keep the processor's arithmetic busy, little enough to stay polite."""

SCORED_CHUNK = 64
"""The same while a prompt's own log-probs are wanted: 64 rows of 49,152 logits are 12 MB."""


class Stepper:
    """Computes steps over one model and slot pool."""

    def __init__(self, model: LlamaModel, pool: SlotPool) -> None:
        self._forward = Forward(model, pool)
        self._pool = pool

    def step(self, running: Ordered[Sequence]) -> list[StepResult]:
        """Compute one step. A sequence whose prompt got no share of this step's tokens gets no result."""
        decoding = [sequence for sequence in running if sequence.filling is None]
        for sequence in decoding:
            sequence.room_in_slot(self._pool)
        shares = [Share(sequence, sequence.tokens[-1:], 1) for sequence in decoding]
        shares += _prompt_shares([sequence for sequence in running if sequence.filling is not None])
        return [_result(share, logits) for share, logits in zip(shares, self._forward(shares), strict=True)]


def _prompt_shares(filling: Ordered[Sequence]) -> list[Share]:
    budget = SCORED_CHUNK if any(sequence.request.prompt_logprobs for sequence in filling) else PREFILL_CHUNK
    shares = []
    for sequence, count in zip(filling, prompt_shares([s.prompt_left for s in filling], budget), strict=True):
        if count:
            first = sequence.position
            picked = count if sequence.request.prompt_logprobs else int(count == sequence.prompt_left)
            shares.append(Share(sequence, sequence.request.prompt[first : first + count], picked))
    return shares


def _result(share: Share, logits: FloatArray) -> StepResult:
    """What a share gave; draws from the sequence's generator where its prompt is whole."""
    sequence = share.sequence
    if sequence.filling is None:
        return StepResult(sequence, drawn=sample_row(logits[-1], sequence.draw))
    result = StepResult(sequence, filled=len(share.tokens))
    if sequence.request.prompt_logprobs:
        first, prompt = sequence.position, sequence.request.prompt
        targets = prompt[first + 1 : first + 1 + len(share.tokens)]
        # The first token of a prompt has no log-prob, the row of its last predicts none of it.
        result.scores = [None] if first == 0 else []
        if targets:
            result.scores += token_logprobs(torch.from_numpy(logits[: len(targets)]), targets)
    if result.filled == sequence.prompt_left:
        result.drawn = sample_row(logits[-1], sequence.draw)
    return result


def prompt_shares(left: Ordered[int], budget: int) -> list[int]:
    """How many of `budget` prompt tokens each sequence gets that has `left` to fill in.

    Fair: those with least left are served first and whole where an equal share suffices, so a short prompt never waits
    for a long one to end, and what they leave over goes to the others.
    """
    shares = [0] * len(left)
    waiting = sorted(range(len(left)), key=lambda index: left[index])
    for served, index in enumerate(waiting):
        shares[index] = min(left[index], -(-budget // (len(waiting) - served)))
        budget -= shares[index]
    return shares
