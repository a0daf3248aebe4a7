"""Attention of one step over a ragged batch: sequences that decode one token, and sequences that fill in a prompt.

Decoding: the slots form one batched product; a segment that several sequences refer to is read once for all of them.
The parts of a sequence's context are merged by their log-sum-exp, which is exact: with s_p the scores of part p,
m = max over parts, softmax-weighted sum = Σ_p e^{m_p - m} o_p / Σ_p e^{m_p - m} l_p (online softmax, Milakov and
Gimelshein 2018, arXiv 1805.02867).

Filling in: per sequence, fused attention over the concatenated context with a causal mask inside the chunk.

Asymmetry: decoding writes to the slot pool, filling in writes to the sequence's own segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from harness_adapters.engines.embedded.kv import Segment, SlotPool

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]


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


class _Part(NamedTuple):
    """Attention over a part of the context, not yet normalised: each `[rows, kv_heads, group, 1 or head_dim]`."""

    top: FloatArray
    total: FloatArray
    weighted: FloatArray


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
    """In numpy: on one thread, like the products around it (`blas`)."""

    def __init__(self, pool: SlotPool, decodes: Sequence[DecodeRow]) -> None:
        self._keys, self._values = pool.k.numpy(), pool.v.numpy()
        self.rows = torch.tensor([d.row for d in decodes])
        self._slots = np.array([d.slot for d in decodes])
        self._at = np.array([d.at for d in decodes])
        self._first = int(self._slots.min())
        self._span = int(self._slots.max()) + 1 - self._first
        self._longest = int(self._at.max()) + 1
        # Slots in between that do not decode now borrow row 0 and keep one position open: their scores stay finite.
        self._row_of_slot = np.zeros(self._span, dtype=np.int64)
        self._row_of_slot[self._slots - self._first] = np.arange(len(decodes))
        ends = np.zeros(self._span, dtype=np.int64)
        ends[self._slots - self._first] = self._at
        hidden = np.arange(self._longest)[None, :] > ends[:, None]
        self._mask = np.where(hidden, -np.inf, 0.0).astype(np.float32)[:, None, None, :]
        self._shared = [
            (segment.k.numpy(), segment.v.numpy(), rows) for segment, rows in _group_by_segment(decodes).items()
        ]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, heads, head_dim = q.shape
        kv_heads = k.shape[1]
        self._keys[layer][self._slots, :, self._at] = k.numpy()
        self._values[layer][self._slots, :, self._at] = v.numpy()
        query: FloatArray = q.numpy().reshape(rows, kv_heads, heads // kv_heads, head_dim) * np.float32(head_dim**-0.5)
        running = self._attend_slots(layer, query)
        for keys, values, members in self._shared:
            part = _attend_segment(query[members], keys[layer], values[layer])
            _merge(running, members, part)
        return torch.from_numpy(running.weighted / running.total).view(rows, heads, head_dim)

    def _attend_slots(self, layer: int, query: FloatArray) -> _Part:
        slots = slice(self._first, self._first + self._span)
        keys = self._keys[layer, slots, :, : self._longest]
        values = self._values[layer, slots, :, : self._longest]
        scores = query[self._row_of_slot] @ keys.transpose(0, 1, 3, 2)
        scores += self._mask
        by_slot = _soft(scores, values)
        rows = self._slots - self._first
        return _Part(by_slot.top[rows], by_slot.total[rows], by_slot.weighted[rows])


def _group_by_segment(decodes: Sequence[DecodeRow]) -> dict[Segment, IntArray]:
    """Each distinct segment with the decode rows that refer to it."""
    members: dict[Segment, list[int]] = {}
    for index, decode in enumerate(decodes):
        for segment in decode.past:
            members.setdefault(segment, []).append(index)
    return {segment: np.array(rows) for segment, rows in members.items()}


def _soft(scores: FloatArray, values: FloatArray) -> _Part:
    """`scores` `[…, rows, positions]`, which is overwritten, and `values` `[…, positions, head_dim]`."""
    top = scores.max(-1, keepdims=True)
    scores -= top
    np.exp(scores, out=scores)
    return _Part(top, scores.sum(-1, keepdims=True), scores @ values)


def _attend_segment(query: FloatArray, keys: FloatArray, values: FloatArray) -> _Part:
    """`query` `[rows, kv_heads, group, head_dim]` over one segment's layer: one product a head for all its rows."""
    rows, kv_heads, group, head_dim = query.shape
    stacked = query.transpose(1, 0, 2, 3).reshape(kv_heads, rows * group, head_dim)
    part = _soft(stacked @ keys.transpose(0, 2, 1), values)

    def by_row(array: FloatArray) -> FloatArray:
        return array.reshape(kv_heads, rows, group, -1).transpose(1, 0, 2, 3)

    return _Part(by_row(part.top), by_row(part.total), by_row(part.weighted))


def _merge(running: _Part, members: IntArray, part: _Part) -> None:
    """Add a part to the rows `members` of the running result, in place."""
    old_top = running.top[members]
    top = np.maximum(old_top, part.top)
    keep, add = np.exp(old_top - top), np.exp(part.top - top)
    running.top[members] = top
    running.total[members] = running.total[members] * keep + part.total * add
    running.weighted[members] = running.weighted[members] * keep + part.weighted * add
