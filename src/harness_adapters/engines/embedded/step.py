"""One step of the engine: the next token of every decoding sequence, then a share of prompt tokens for the others.

Invariant: computing changes nothing of a sequence but its cache rows and its random generator; the batcher books the
results.

Asymmetry: decoding goes through `Decoder`, one compiled call for all rows; prompts go through `LlamaModel.forward`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from torch import Tensor

from harness_adapters.engines.embedded.attention import PrefillRows, PromptAttention
from harness_adapters.engines.embedded.backend import StepResult
from harness_adapters.engines.embedded.blas import WHOLE
from harness_adapters.engines.embedded.decoder import Decoder
from harness_adapters.engines.embedded.kv import SlotPool
from harness_adapters.engines.embedded.lora import Adapter
from harness_adapters.engines.embedded.model import AdapterRows, LlamaModel
from harness_adapters.engines.embedded.sampling import sample, token_logprobs
from harness_adapters.engines.embedded.sequence import Sequence

PREFILL_CHUNK = 512
"""Prompt tokens computed in one step: enough to keep the processor's arithmetic busy, little enough to stay polite."""

LOGIT_ROWS = 64
"""Rows of logits held at once while scoring a prompt: 64 × 49,152 floats are 12 MB."""


@dataclass(slots=True)
class _Rows:
    """Packed prompt rows of some sequences; `sampled` maps a result to the row whose hidden state its draw needs."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    prompts: list[PrefillRows] = field(default_factory=list)
    adapters: list[AdapterRows] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    sampled: list[tuple[StepResult, int]] = field(default_factory=list)
    scored: list[tuple[StepResult, int, int]] = field(default_factory=list)

    def add_prompt(self, sequence: Sequence, count: int) -> None:
        """The next `count` prompt tokens of a sequence that is filling in."""
        assert sequence.filling is not None
        row, first, prompt = len(self.tokens), sequence.position, sequence.request.prompt
        result = StepResult(sequence, filled=count)
        self.tokens += prompt[first : first + count]
        self.positions += range(first, first + count)
        self.prompts.append(PrefillRows(row, row + count, sequence.past, sequence.filling, sequence.filled))
        if sequence.request.prompt_logprobs:
            self.scored.append((result, first, row))
        if first + count == len(prompt):
            self.sampled.append((result, row + count - 1))
        self.results.append(result)

    def end_run(self, adapter: Adapter | None, start: int) -> None:
        """Fill up the rows of one adapter, which begin at `start`, so that products of them are of whole blocks."""
        missing = -len(self.tokens) % WHOLE
        self.tokens += [0] * missing
        self.positions += [0] * missing
        if adapter is not None:
            self.adapters.append(AdapterRows(start, len(self.tokens), adapter))


class Stepper:
    """Computes steps over one model and slot pool."""

    def __init__(self, model: LlamaModel, pool: SlotPool) -> None:
        self._model = model
        self._decoder = Decoder(model, pool)

    def step(self, running: Ordered[Sequence]) -> list[StepResult]:
        """Compute one step. A sequence whose prompt got no share of this step's tokens gets no result."""
        decoding = [sequence for sequence in running if sequence.filling is None]
        filling = [sequence for sequence in running if sequence.filling is not None]
        results = self._decode(decoding) if decoding else []
        return results + (self._fill(filling) if filling else [])

    def _decode(self, decoding: Ordered[Sequence]) -> list[StepResult]:
        drawn = self._decoder.step(decoding)
        return [StepResult(sequence, drawn=token) for sequence, token in zip(decoding, drawn, strict=True)]

    def _fill(self, filling: Ordered[Sequence]) -> list[StepResult]:
        rows = _lay_out(filling)
        hidden = self._model.forward(rows.tokens, rows.positions, rows.adapters, PromptAttention(rows.prompts))
        for result, first, row in rows.scored:
            result.scores = self._score(result.job, first, hidden[row : row + result.filled])
        if rows.sampled:
            logits = self._model.logits(hidden[[row for _, row in rows.sampled]])
            drawn = sample(logits, [result.job.draw for result, _ in rows.sampled])
            for (result, _), token in zip(rows.sampled, drawn, strict=True):
                result.drawn = token
        return rows.results

    def _score(self, sequence: Sequence, first: int, hidden: Tensor) -> list[float | None]:
        """Log-probs of the prompt tokens that follow the chunk's rows; the first prompt token has none."""
        scores: list[float | None] = [None] if first == 0 else []
        following = sequence.request.prompt[first + 1 : first + 1 + hidden.shape[0]]
        for at in range(0, len(following), LOGIT_ROWS):
            targets = following[at : at + LOGIT_ROWS]
            scores += token_logprobs(self._model.logits(hidden[at : at + len(targets)]), targets)
        return scores


def _lay_out(filling: Ordered[Sequence]) -> _Rows:
    """Rows in order of adapter, so that each adapter's rows are one run."""
    shares = prompt_shares([sequence.prompt_left for sequence in filling], PREFILL_CHUNK)
    served = sorted((pair for pair in zip(filling, shares, strict=True) if pair[1]), key=lambda pair: pair[0].key)
    rows = _Rows()
    for adapter, group in itertools.groupby(served, key=lambda pair: pair[0].adapter):
        start = len(rows.tokens)
        for sequence, share in group:
            rows.add_prompt(sequence, share)
        rows.end_run(adapter, start)
    return rows


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
