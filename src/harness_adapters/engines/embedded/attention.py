"""Attention of one step over a ragged batch: sequences that decode one token, and sequences that fill in a prompt.

Decoding: the slots form one batched product; a segment that several sequences refer to is read once for all of them.
The parts of a sequence's context are merged by their log-sum-exp, which is exact: with s_p the scores of part p,
m = max over parts, softmax-weighted sum = Σ_p e^{m_p - m} o_p / Σ_p e^{m_p - m} l_p (online softmax, Milakov and
Gimelshein 2018, arXiv 1805.02867).

Filling in: per sequence, fused attention over the concatenated context with a causal mask inside the chunk.

Asymmetry: decoding writes to the slot pool, filling in writes to the sequence's own segment.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from harness_adapters.engines.embedded.blas import share
from harness_adapters.engines.embedded.kv import Segment, SlotPool

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]

PIECE_ROWS = 64
"""Prompt rows attended to in one piece of work."""

LONG_SEGMENT = 512
"""Positions from which on a segment is cut in two."""

WORTH_SHARING_SCORES = 2048
"""Rows times positions from which on the scores of a stretch outweigh waking a helper."""


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
        share([piece for prefill in self._prefills for piece in prefill.pieces(layer, q, k, v, out)])
        if self._decode is not None:
            rows = self._decode.rows
            out[rows] = self._decode(layer, q[rows], k[rows], v[rows])
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


class _Decode:
    """In numpy, shared with the helpers like the products around it (`blas`)."""

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
        self._shared = _stretches(decodes)
        self._near, self._far = _halves([len(stretch.members) * stretch.length for stretch in self._shared])

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, heads, head_dim = q.shape
        kv_heads = k.shape[1]
        self._keys[layer][self._slots, :, self._at] = k.numpy()
        self._values[layer][self._slots, :, self._at] = v.numpy()
        query: FloatArray = q.numpy().reshape(rows, kv_heads, heads // kv_heads, head_dim) * np.float32(head_dim**-0.5)
        parts: dict[int, _Part] = {}

        def attend(indices: Sequence[int]) -> None:
            for index in indices:
                parts[index] = self._shared[index].attend(layer, query)

        def attend_near() -> None:
            parts[-1] = self._attend_slots(layer, query)
            attend(self._near)

        share([attend_near, functools.partial(attend, self._far)] if self._far else [attend_near])
        # Merged in one order, whoever computed a part: rounding does not depend on which thread was faster.
        running = parts[-1]
        for index, stretch in enumerate(self._shared):
            _merge(running, stretch.members, parts[index])
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


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Positions `start` to `stop` of a segment that the decode rows `members` refer to."""

    keys: FloatArray
    values: FloatArray
    start: int
    stop: int
    members: IntArray

    @property
    def length(self) -> int:
        return self.stop - self.start

    def attend(self, layer: int, query: FloatArray) -> _Part:
        positions = slice(self.start, self.stop)
        return _attend_segment(query[self.members], self.keys[layer, :, positions], self.values[layer, :, positions])


def _stretches(decodes: Sequence[DecodeRow]) -> list[_Stretch]:
    """The segments the rows refer to, long ones cut in two so that two threads can have a half each."""
    stretches = []
    for segment, members in _group_by_segment(decodes).items():
        keys, values, length = segment.k.numpy(), segment.v.numpy(), segment.length
        cuts = [0, length // 2, length] if length >= LONG_SEGMENT else [0, length]
        stretches += [_Stretch(keys, values, start, stop, members) for start, stop in itertools.pairwise(cuts)]
    return stretches


def _halves(costs: Sequence[int]) -> tuple[list[int], list[int]]:
    """Indices of costs in two lists of about the same sum; the second is empty where sharing is not worth it."""
    near: list[int] = []
    far: list[int] = []
    left = right = 0
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        if right <= left and costs[index] >= WORTH_SHARING_SCORES:
            far.append(index)
            right += costs[index]
        else:
            near.append(index)
            left += costs[index]
    return near, far


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
