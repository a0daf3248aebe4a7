"""Drawing one token a row by inverting the cumulative distribution at one uniform number of the row's own generator.

One uniform a token, in vocabulary order: the draw of a request depends on its seed and its logits alone, never on who
else is in the batch. Log-probs are of the distribution drawn from: temperature first, then the nucleus (the smallest
set of tokens whose mass reaches top_p, renormalised; Holtzman et al. 2020, arXiv 1904.09751).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row is sampled; temperature 0 takes the most probable token."""

    temperature: float
    top_p: float
    generator: torch.Generator


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[tuple[int, float]]:
    """(token, log-prob) for each row of logits fp32 `[rows, vocabulary]`. Draws once from every row's generator."""
    temperatures = torch.tensor([draw.temperature or 1.0 for draw in draws])
    logprobs = torch.log_softmax(logits / temperatures[:, None], dim=-1)
    for row, draw in enumerate(draws):
        if draw.top_p < 1.0 and draw.temperature:
            logprobs[row] = _nucleus(logprobs[row], draw.top_p)
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    uniform = torch.cat([torch.rand(1, generator=draw.generator, dtype=torch.float64) for draw in draws])
    targets = (uniform * cumulative[:, -1])[:, None]
    # right=True finds the first entry above the target: a token of probability 0 repeats its predecessor's sum.
    tokens = torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp_(max=logits.shape[1] - 1)
    greedy = torch.tensor([draw.temperature == 0 for draw in draws])
    if bool(greedy.any()):
        tokens = torch.where(greedy, logits.argmax(-1), tokens)
    chosen = logprobs.gather(1, tokens[:, None])[:, 0]
    return list(zip(tokens.tolist(), chosen.tolist(), strict=True))


def _nucleus(logprobs: Tensor, top_p: float) -> Tensor:
    ordered, order = logprobs.sort(descending=True)
    before = ordered.exp().cumsum(0) - ordered.exp()
    outside = order[before >= top_p]
    kept = logprobs.index_fill(0, outside, -math.inf)
    return kept - kept.logsumexp(0)


def token_logprobs(logits: Tensor, tokens: Sequence[int]) -> list[float]:
    """Log-probs at temperature 1 of one token a row; logits fp32 `[rows, vocabulary]`."""
    chosen = torch.tensor(tokens)[:, None]
    picked = logits.gather(1, chosen)[:, 0] - logits.logsumexp(-1)
    return [float(value) for value in picked.tolist()]
