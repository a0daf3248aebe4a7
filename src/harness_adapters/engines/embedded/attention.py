"""Attention of one step over a ragged batch: sequences that decode one token, and sequences that fill in a prompt.

Decoding: all slots form one batched product; a segment that several sequences refer to is read once for all of them.
The parts of a sequence's context are merged by their log-sum-exp, which is exact: with s_p the scores of part p,
m = max over parts, softmax-weighted sum = Σ_p e^{m_p - m} o_p / Σ_p e^{m_p - m} l_p (online softmax, Milakov and
Gimelshein 2018, arXiv 1805.02867).

Filling in: per sequence, fused attention over the concatenated context with a causal mask inside the chunk.

Asymmetry: decoding writes to the slot pool, filling in writes to the sequence's own segment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from harness_adapters.engines.embedded.kv import Segment, SlotPool


@dataclass(frozen=True, slots=True)
class PrefillRows:
    """Rows `start` to `stop` of the step are one sequence's next prompt tokens, written to `own` from `at` on."""

    start: int
    stop: int
    past: tuple[Segment, ...]
    own: Segment
    at: int


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """Row `row` of the step is one sequence's next token, written to position `at` of its slot."""

    row: int
    past: tuple[Segment, ...]
    slot: int
    at: int


class StepAttention:
    """Writes the step's keys and values and attends, layer by layer."""

    def __init__(self, pool: SlotPool, decodes: Sequence[DecodeRow], prefills: Sequence[PrefillRows]) -> None:
        self._decode = _Decode(pool, decodes) if decodes else None
        self._prefills = [_Prefill(rows) for rows in prefills]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q` is `[rows, heads, head_dim]`, `k` and `v` are `[rows, kv_heads, head_dim]`, rotary applied to q and k.

        Returns the attention output `[rows, heads * head_dim]`.
        """
        if self._decode is not None and not self._prefills:
            return self._decode(layer, q, k, v).flatten(1)
        out = torch.empty_like(q)
        for prefill in self._prefills:
            span = slice(prefill.rows.start, prefill.rows.stop)
            out[span] = prefill(layer, q[span], k[span], v[span])
        if self._decode is not None:
            rows = self._decode.rows
            out[rows] = self._decode(layer, q[rows], k[rows], v[rows])
        return out.flatten(1)


class _Prefill:
    def __init__(self, rows: PrefillRows) -> None:
        self.rows = rows
        new = rows.stop - rows.start
        before = sum(part.length for part in rows.past) + rows.at
        self._mask = torch.ones(new, before + new, dtype=torch.bool).tril(before) if before else None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, own = self.rows, self.rows.own
        end = rows.at + k.shape[0]
        own.k[layer, :, rows.at : end] = k.transpose(0, 1)
        own.v[layer, :, rows.at : end] = v.transpose(0, 1)
        keys = [*(part.k[layer] for part in rows.past), own.k[layer, :, :end]]
        values = [*(part.v[layer] for part in rows.past), own.v[layer, :, :end]]
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1).unsqueeze(0),
            torch.cat(keys, dim=1).unsqueeze(0),
            torch.cat(values, dim=1).unsqueeze(0),
            attn_mask=self._mask,
            is_causal=self._mask is None,
            enable_gqa=True,
        )
        return out[0].transpose(0, 1)


class _Decode:
    def __init__(self, pool: SlotPool, decodes: Sequence[DecodeRow]) -> None:
        self._pool = pool
        self.rows = torch.tensor([d.row for d in decodes])
        self._slots = torch.tensor([d.slot for d in decodes])
        self._at = torch.tensor([d.at for d in decodes])
        self._used = max(d.slot for d in decodes) + 1
        self._longest = max(d.at for d in decodes) + 1
        # Slots that do not decode now borrow row 0 and keep one position open, so that their scores stay finite.
        self._row_of_slot = torch.zeros(self._used, dtype=torch.long)
        self._row_of_slot[self._slots] = torch.arange(len(decodes))
        ends = torch.zeros(self._used, dtype=torch.long)
        ends[self._slots] = self._at
        hidden = torch.arange(self._longest)[None, :] > ends[:, None]
        self._mask = torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf)[:, None, None, :]
        self._shared = _group_by_segment(decodes)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, heads, head_dim = q.shape
        kv_heads = k.shape[1]
        self._pool.k[layer][self._slots, :, self._at] = k
        self._pool.v[layer][self._slots, :, self._at] = v
        query = q.reshape(rows, kv_heads, heads // kv_heads, head_dim) / math.sqrt(head_dim)
        top, total, out = self._attend_slots(layer, query)
        for segment, members in self._shared:
            top, total, out = _merge(segment, layer, query, members, top, total, out)
        return (out / total).reshape(rows, heads, head_dim)

    def _attend_slots(self, layer: int, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slots, kv_heads, positions = self._used, query.shape[1], self._longest
        by_slot = query[self._row_of_slot].flatten(0, 1)
        keys = self._pool.k[layer, :slots, :, :positions].flatten(0, 1)
        values = self._pool.v[layer, :slots, :, :positions].flatten(0, 1)
        scores = torch.bmm(by_slot, keys.transpose(1, 2)).view(slots, kv_heads, -1, positions).add_(self._mask)
        top = scores.amax(-1, keepdim=True)
        weights = scores.sub_(top).exp_()
        total = weights.sum(-1, keepdim=True)
        out = torch.bmm(weights.flatten(0, 1), values).view(slots, *query.shape[1:])
        return top[self._slots], total[self._slots], out[self._slots]


def _group_by_segment(decodes: Sequence[DecodeRow]) -> list[tuple[Segment, Tensor | None]]:
    """Each distinct segment with the decode rows that refer to it; None stands for all of them."""
    members: dict[Segment, list[int]] = {}
    for index, decode in enumerate(decodes):
        for segment in decode.past:
            members.setdefault(segment, []).append(index)
    return [(s, None if len(rows) == len(decodes) else torch.tensor(rows)) for s, rows in members.items()]


def _merge(
    segment: Segment, layer: int, query: Tensor, members: Tensor | None, top: Tensor, total: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Add one segment's part to the running (maximum, normaliser, weighted sum), each `[rows, kv_heads, group, …]`."""
    mine = query if members is None else query[members]
    rows, kv_heads, group, head_dim = mine.shape
    stacked = mine.transpose(0, 1).reshape(kv_heads, rows * group, head_dim)
    scores = torch.bmm(stacked, segment.k[layer].transpose(1, 2))
    part_top = scores.amax(-1, keepdim=True)
    weights = scores.sub_(part_top).exp_()
    by_row = (kv_heads, rows, group, -1)
    part_total = weights.sum(-1, keepdim=True).view(by_row).transpose(0, 1)
    part_out = torch.bmm(weights, segment.v[layer]).view(by_row).transpose(0, 1)
    part_top = part_top.view(by_row).transpose(0, 1)
    old_top, old_total, old_out = (top, total, out) if members is None else (top[members], total[members], out[members])
    new_top = torch.maximum(old_top, part_top)
    keep, add = (old_top - new_top).exp_(), (part_top - new_top).exp_()
    new_total = old_total * keep + part_total * add
    new_out = old_out * keep + part_out * add
    if members is None:
        return new_top, new_total, new_out
    top[members], total[members], out[members] = new_top, new_total, new_out
    return top, total, out
