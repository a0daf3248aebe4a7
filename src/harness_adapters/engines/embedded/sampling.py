"""Drawing one token a row by inverting the cumulative distribution at one uniform number of the row's own generator.

One uniform a token, in vocabulary order: the draw of a request depends on its seed and its logits alone, never on who
else is in the batch. Log-probs are of the distribution drawn from: temperature first, then the nucleus (the smallest
set of tokens whose mass reaches top_p, renormalised; Holtzman et al. 2020, arXiv 1904.09751).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

FloatArray: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row is sampled; temperature 0 takes the most probable token."""

    temperature: float
    top_p: float
    generator: torch.Generator


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[tuple[int, float]]:
    """(token, log-prob) for each row of logits fp32 `[rows, vocabulary]`. Draws once from every row's generator."""
    return [_sample_row(row, draw) for row, draw in zip(logits.numpy(), draws, strict=True)]


def _sample_row(logits: FloatArray, draw: Draw) -> tuple[int, float]:
    logprobs = _log_softmax(logits if draw.temperature == 0 else logits / np.float32(draw.temperature))
    uniform = torch.rand((), generator=draw.generator, dtype=torch.float64).item()
    if draw.temperature == 0:
        token = int(logits.argmax())
        return token, float(logprobs[token])
    if draw.top_p < 1.0:
        logprobs = _nucleus(logprobs, draw.top_p)
    cumulative = np.cumsum(np.exp(logprobs), dtype=np.float64)
    # The first entry above the target: a token of probability 0 repeats its predecessor's sum and is never that.
    token = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    token = min(token, len(logits) - 1)
    return token, float(logprobs[token])


def _log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max()
    total: FloatArray = shifted - np.log(np.exp(shifted).sum(dtype=np.float64)).astype(np.float32)
    return total


def _nucleus(logprobs: FloatArray, top_p: float) -> FloatArray:
    order = np.argsort(-logprobs, kind="stable")
    ordered = np.exp(logprobs[order])
    before = np.cumsum(ordered, dtype=np.float64) - ordered
    kept = logprobs.copy()
    kept[order[before >= top_p]] = -np.inf
    return _log_softmax(kept)


def token_logprobs(logits: Tensor, tokens: Sequence[int]) -> list[float]:
    """Log-probs at temperature 1 of one token a row; logits fp32 `[rows, vocabulary]`."""
    chosen = torch.tensor(tokens)[:, None]
    picked = logits.gather(1, chosen)[:, 0] - logits.logsumexp(-1)
    return [float(value) for value in picked.tolist()]
