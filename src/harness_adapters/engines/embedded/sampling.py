"""Drawing one token a row by inverting the cumulative distribution at one uniform number of the row's own generator.

One uniform a token, in vocabulary order: the draw of a request depends on its seed and its logits alone, never on who
else is in the batch. Log-probs are of the distribution drawn from: temperature first, then the nucleus (the smallest
set of tokens whose mass reaches top_p, renormalised; Holtzman et al. 2020, arXiv 1904.09751).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from harness_adapters.engines.embedded.compiled import loop
from harness_adapters.engines.embedded.kernels import exponential

FloatArray: TypeAlias = npt.NDArray[np.float32]

STRETCH = 256
"""Tokens whose mass is summed before the search looks into them one by one."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How one row is sampled; temperature 0 takes the most probable token."""

    temperature: float
    top_p: float
    generator: torch.Generator


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[tuple[int, float]]:
    """(token, log-prob) for each row of logits fp32 `[rows, vocabulary]`. Draws once from every row's generator."""
    return [sample_row(row, draw) for row, draw in zip(logits.numpy(), draws, strict=True)]


def sample_row(logits: FloatArray, draw: Draw) -> tuple[int, float]:
    """(token, log-prob) of one row of logits, fp32 `[vocabulary]`, contiguous."""
    uniform = torch.rand((), generator=draw.generator, dtype=torch.float64).item()
    if draw.temperature == 0:
        token, logprob = _draw(logits, uniform, True)
    else:
        scaled = logits / np.float32(draw.temperature)
        token, logprob = _draw(_nucleus(scaled, draw.top_p) if draw.top_p < 1.0 else scaled, uniform, False)
    return int(token), float(logprob)


@loop
def _draw(logits: FloatArray, uniform: float, greedy: bool) -> Any:
    """The most probable token, or the first one up to which more than `uniform` of the mass lies; its log-prob."""
    best = _argmax(logits)
    top = logits[best]
    sums = np.empty((len(logits) + STRETCH - 1) // STRETCH, dtype=np.float64)
    total = 0.0
    for stretch in range(len(sums)):
        part = np.float32(0)
        for token in range(stretch * STRETCH, min((stretch + 1) * STRETCH, len(logits))):
            part += _mass(logits[token] - top)
        sums[stretch] = part
        total += sums[stretch]
    token = best if greedy else _at_mass(logits, top, sums, uniform * total)
    return token, logits[token] - top - np.log(total)


@loop
def _mass(below: float) -> Any:
    """Unnormalised probability of a logit this far from the top; none where it would be smaller than fp32 can say."""
    return np.float32(0) if below < np.float32(-87) else exponential(below)


@loop
def _argmax(logits: FloatArray) -> int:
    """The first of the largest logits; one that is not a number counts as largest.

    Compared as integers, which order as the numbers do once the negative ones are turned round: the compiler then
    compares many at a time.
    """
    bits = logits.view(np.int32)
    most = np.int32(-(2**31))
    for token in range(len(bits)):
        most = max(most, bits[token] ^ ((bits[token] >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    for token in range(len(bits)):
        if (bits[token] ^ ((bits[token] >> np.int32(31)) & np.int32(0x7FFFFFFF))) == most:
            return token
    return 0


@loop
def _at_mass(logits: FloatArray, top: float, sums: npt.NDArray[np.float64], target: float) -> int:
    """The first token up to which more than `target` of the mass lies; the last one with any where rounding hides it.

    A token without mass adds nothing to what lies before it and is never the one.
    """
    before, chosen = 0.0, 0
    for stretch in range(len(sums)):
        if (sums[stretch] > 0 and before + sums[stretch] > target) or stretch == len(sums) - 1:
            chosen = stretch
            break
        before += sums[stretch]
    while sums[chosen] <= 0 and chosen > 0:
        chosen -= 1
        before -= sums[chosen]
    last = -1
    for token in range(chosen * STRETCH, min((chosen + 1) * STRETCH, len(logits))):
        mass = _mass(logits[token] - top)
        before += mass
        if mass > 0:
            last = token
            if before > target:
                return token
    return max(last, 0)


def _nucleus(logits: FloatArray, top_p: float) -> FloatArray:
    """The logits, those outside the nucleus at minus infinity."""
    order = np.argsort(-logits, kind="stable")
    ordered = np.exp(logits[order] - logits[order[0]], dtype=np.float64)
    ordered /= ordered.sum()
    kept = logits.copy()
    kept[order[np.cumsum(ordered) - ordered >= top_p]] = -np.inf
    return kept


def token_logprobs(logits: Tensor, tokens: Sequence[int]) -> list[float]:
    """Log-probs at temperature 1 of one token a row; logits fp32 `[rows, vocabulary]`."""
    chosen = torch.tensor(tokens)[:, None]
    picked = logits.gather(1, chosen)[:, 0] - logits.logsumexp(-1)
    return [float(value) for value in picked.tolist()]


def warm_up() -> None:
    """Have the draw compiled, or its compiled code read."""
    _draw(np.zeros(1, dtype=np.float32), 0.5, False)
