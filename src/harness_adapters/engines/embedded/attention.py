"""Attention of a step's prompt rows: per sequence, fused attention over the concatenated context with a causal mask,
in pieces that the engine's thread and its helpers share. Decoding attends in `decoding`.

Invariant: what a row attends to has the same bits however its prompt is cut into chunks and cached parts.
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

TILE = 16
"""Positions attended from in one piece of work, counted from the beginning of the context."""


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
        # Rows that only fill up a block get nought: what is there by chance may not even be finite.
        out = torch.zeros_like(q)
        share([piece for prompt in self._prompts for piece in prompt.pieces(layer, q, k, v, out)])
        return out.flatten(1)


class _Prefill:
    def __init__(self, rows: PrefillRows) -> None:
        self._rows = rows
        self._before = sum(part.length for part in rows.past) + rows.at
        self._after = self._before + rows.stop - rows.start

    def pieces(self, layer: int, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Iterator[Callable[[], None]]:
        """Write this sequence's keys and values; the pieces write its rows of `out`, in any order."""
        rows, own = self._rows, self._rows.own
        end = rows.at + rows.stop - rows.start
        own.k[layer, :, rows.at : end] = k[rows.start : rows.stop].transpose(0, 1)
        own.v[layer, :, rows.at : end] = v[rows.start : rows.stop].transpose(0, 1)
        keys = self._context(layer, own.k[:, :, :end], [part.k for part in rows.past])
        values = self._context(layer, own.v[:, :, :end], [part.v for part in rows.past])
        for tile in range(self._before // TILE, -(-self._after // TILE)):
            yield functools.partial(self._attend, tile * TILE, q, keys, values, out)

    def _context(self, layer: int, own: Tensor, past: Sequence[Tensor]) -> Tensor:
        """Keys or values of the whole context, `[1, kv_heads, positions, head_dim]`, noughts up to a whole tile."""
        parts = [*(part[layer] for part in past), own[layer]]
        missing = -self._after % TILE
        if missing:
            parts.append(own.new_zeros(own.shape[1], missing, own.shape[3]))
        return torch.cat(parts, dim=1).unsqueeze(0)

    def _attend(self, tile: int, q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
        """Attend from a tile. One that is computed in part is filled up with rows of nought, so that the shapes, and
        with them the order of every sum, follow from the tile's place in the context alone."""
        first, last = max(tile, self._before), min(tile + TILE, self._after)
        start = self._rows.start + first - self._before
        query = q.new_zeros(1, q.shape[1], TILE, q.shape[2])
        query[0, :, first - tile : last - tile] = q[start : start + last - first].transpose(0, 1)
        attended = F.scaled_dot_product_attention(
            query,
            keys[:, :, : tile + TILE],
            values[:, :, : tile + TILE],
            attn_mask=_mask(tile),
            enable_gqa=True,
        )
        out[start : start + last - first] = attended[0, :, first - tile : last - tile].transpose(0, 1)


@functools.lru_cache(maxsize=256)
def _mask(tile: int) -> Tensor:
    """Which positions a tile's rows see: themselves and what is before them."""
    return torch.ones(TILE, tile + TILE, dtype=torch.bool).tril(tile)
