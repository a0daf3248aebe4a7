"""One step of the engine: lay out rows for the running sequences, compute them, draw a token where one is due.

Invariant: computing changes nothing of a sequence but its cache rows and its random generator; the batcher books the
results.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

from torch import Tensor

from harness_adapters.engines.embedded.attention import DecodeRow, PrefillRows, StepAttention
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
class StepResult:
    """What a sequence got from a step: `filled` prompt tokens with their scores, and a token with its log-prob."""

    sequence: Sequence
    filled: int = 0
    scores: list[float | None] = field(default_factory=list)
    drawn: tuple[int, float] | None = None


@dataclass(slots=True)
class _Rows:
    """The packed rows of some sequences; `sampled` maps a result to the row whose hidden state its draw needs."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    decodes: list[DecodeRow] = field(default_factory=list)
    prefills: list[PrefillRows] = field(default_factory=list)
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
        self.prefills.append(PrefillRows(row, row + count, sequence.past, sequence.filling, sequence.filled))
        if sequence.request.prompt_logprobs:
            self.scored.append((result, first, row))
        if first + count == len(prompt):
            self.sampled.append((result, row + count - 1))
        self._close(result, sequence.adapter, row)

    def add_decode(self, sequence: Sequence) -> None:
        """The last drawn token of a sequence whose prompt is whole."""
        row, result = len(self.tokens), StepResult(sequence)
        self.tokens.append(sequence.tokens[-1])
        self.positions.append(sequence.position)
        self.decodes.append(DecodeRow(row, sequence.past, sequence.slot, sequence.slot_length))
        self.sampled.append((result, row))
        self._close(result, sequence.adapter, row)

    def _close(self, result: StepResult, adapter: Adapter | None, start: int) -> None:
        self.results.append(result)
        if adapter is None:
            return
        last = self.adapters[-1] if self.adapters else None
        if last is not None and last.delta is adapter and last.stop == start:
            start = self.adapters.pop().start
        self.adapters.append(AdapterRows(start, len(self.tokens), adapter))


class Stepper:
    """Computes steps over one model and slot pool."""

    def __init__(self, model: LlamaModel, pool: SlotPool) -> None:
        self._model = model
        self._pool = pool

    def step(self, running: Ordered[Sequence]) -> list[StepResult]:
        """Compute one step. A sequence whose prompt got no share of this step's tokens gets no result."""
        rows = self._lay_out(running)
        attention = StepAttention(self._pool, rows.decodes, rows.prefills)
        hidden = self._model.forward(rows.tokens, rows.positions, rows.adapters, attention)
        for result, first, row in rows.scored:
            result.scores = self._score(result.sequence, first, hidden[row : row + result.filled])
        if rows.sampled:
            logits = self._model.logits(hidden[[row for _, row in rows.sampled]])
            drawn = sample(logits, [result.sequence.draw for result, _ in rows.sampled])
            for (result, _), token in zip(rows.sampled, drawn, strict=True):
                result.drawn = token
        return rows.results

    def _lay_out(self, running: Ordered[Sequence]) -> _Rows:
        """Rows in order of adapter, so that each adapter's rows are one block."""
        prompt_tokens = _prompt_shares(running)
        rows = _Rows()
        for sequence in sorted(running, key=lambda sequence: sequence.key):
            if sequence.filling is None:
                sequence.room_in_slot(self._pool)
                rows.add_decode(sequence)
            elif prompt_tokens[sequence]:
                rows.add_prompt(sequence, prompt_tokens[sequence])
        return rows

    def _score(self, sequence: Sequence, first: int, hidden: Tensor) -> list[float | None]:
        """Log-probs of the prompt tokens that follow the chunk's rows; the first prompt token has none."""
        scores: list[float | None] = [None] if first == 0 else []
        following = sequence.request.prompt[first + 1 : first + 1 + hidden.shape[0]]
        for at in range(0, len(following), LOGIT_ROWS):
            targets = following[at : at + LOGIT_ROWS]
            scores += token_logprobs(self._model.logits(hidden[at : at + len(targets)]), targets)
        return scores


def _prompt_shares(running: Ordered[Sequence]) -> dict[Sequence, int]:
    """How many prompt tokens each sequence fills in this step: first come, first served."""
    budget = PREFILL_CHUNK
    shares: dict[Sequence, int] = {}
    for sequence in running:
        shares[sequence] = min(sequence.prompt_left, budget)
        budget -= shares[sequence]
    return shares
