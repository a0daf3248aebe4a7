"""Attention of a step's prompt rows: per sequence, fused attention over the concatenated context with a causal mask
inside the chunk, in pieces that the engine's thread and its helpers share. Decoding attends in `decoding`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from harness_adapters.engines.embedded.blas import share
from harness_adapters.engines.embedded.kv import Segment

PIECE_ROWS = 64
"""Prompt rows attended to in one piece of work."""


@dataclass(frozen=True, slots=True)
class PrefillRows:
    """Rows `start` to `stop` of the step are one sequence's next prompt tokens, written to `own` from `at` on."""

    start: int
    stop: int
    past: tuple[Segment, ...]
    own: Segment
    at: int


class PromptAttention:
    """Writes the keys and values of a step's prompt rows and attends, layer by layer."""

    def __init__(self, prompts: Sequence[PrefillRows]) -> None:
        self._prompts = [_Prefill(rows) for rows in prompts]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q` is `[rows, heads, head_dim]`, `k` and `v` are `[rows, kv_heads, head_dim]`, rotary applied to q and k.

        Returns the attention output `[rows, heads * head_dim]`.
        """
        out = torch.empty_like(q)
        share([piece for prompt in self._prompts for piece in prompt.pieces(layer, q, k, v, out)])
        return out.flatten(1)


class _Prefill:
    def __init__(self, rows: PrefillRows) -> None:
        self._rows = rows
        new = rows.stop - rows.start
        self._before = sum(part.length for part in rows.past) + rows.at
        self._mask = torch.ones(new, self._before + new, dtype=torch.bool).tril(self._before)

    def pieces(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Iterator[Callable[[], None]]:
        """Write this sequence's keys and values; the pieces write its rows of `out`, in any order."""
        rows, own = self._rows, self._rows.own
        end = rows.at + rows.stop - rows.start
        own.k[layer, :, rows.at : end] = k[rows.start : rows.stop].transpose(0, 1)
        own.v[layer, :, rows.at : end] = v[rows.start : rows.stop].transpose(0, 1)
        keys = torch.cat([*(part.k[layer] for part in rows.past), own.k[layer, :, :end]], dim=1)
        values = torch.cat([*(part.v[layer] for part in rows.past), own.v[layer, :, :end]], dim=1)
        for first in range(0, rows.stop - rows.start, PIECE_ROWS):
            yield functools.partial(self._attend, first, q, keys, values, out)

    def _attend(self, first: int, q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
        start = self._rows.start + first
        stop = min(start + PIECE_ROWS, self._rows.stop)
        context = self._before + first + stop - start
        attended = F.scaled_dot_product_attention(
            q[start:stop].transpose(0, 1).unsqueeze(0),
            keys[:, :context].unsqueeze(0),
            values[:, :context].unsqueeze(0),
            attn_mask=self._mask[first : first + stop - start, :context],
            enable_gqa=True,
        )
        out[start:stop] = attended[0].transpose(0, 1)
