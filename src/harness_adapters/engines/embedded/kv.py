"""Where keys and values live: immutable segments, and a pool of slots for the tokens being generated.

A sequence's context is a list of `Segment`s (a shared prompt prefix first) followed by one slot of the `SlotPool`.
Rotary positions are applied before a key is stored, so attention may visit the parts in any order.

Invariants
- A segment that more than one party refers to is never written again.
- A slot has one owner; its length is the number of valid positions from 0.

Asymmetry: segments are exactly as long as their tokens, slots are all as long as the pool's capacity. A sequence that
outgrows its slot turns it into a segment and starts the slot afresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class KVShape:
    """The size of one token's keys (or values): `layers × kv_heads × head_dim` floats."""

    layers: int
    kv_heads: int
    head_dim: int

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of one token in fp32."""
        return 2 * 4 * self.layers * self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Keys and values of a run of tokens, each fp32 `[layers, kv_heads, tokens, head_dim]`; compared by identity."""

    k: Tensor
    v: Tensor

    @property
    def length(self) -> int:
        return int(self.k.shape[2])

    @classmethod
    def empty(cls, shape: KVShape, tokens: int) -> Segment:
        size = (shape.layers, shape.kv_heads, tokens, shape.head_dim)
        return cls(torch.empty(size), torch.empty(size))

    def copy(self, start: int, stop: int) -> Segment:
        """A segment of tokens `start` to `stop` with storage of its own."""
        return Segment(self.k[:, :, start:stop].clone(), self.v[:, :, start:stop].clone())

    def write(self, at: int, source: Segment) -> None:
        """Copy all of `source` to positions from `at` on."""
        self.k[:, :, at : at + source.length] = source.k
        self.v[:, :, at : at + source.length] = source.v


def gather(parts: Sequence[Segment], start: int, stop: int) -> Segment:
    """Tokens `start` to `stop` of the run that `parts` make up; the very part, uncopied, where it is exactly one."""
    pieces: list[tuple[Segment, int, int]] = []
    offset = 0
    for part in parts:
        low, high = max(start - offset, 0), min(stop - offset, part.length)
        if low < high:
            pieces.append((part, low, high))
        offset += part.length
    if len(pieces) == 1:
        part, low, high = pieces[0]
        return part if high - low == part.length else part.copy(low, high)
    return Segment(
        torch.cat([part.k[:, :, low:high] for part, low, high in pieces], dim=2),
        torch.cat([part.v[:, :, low:high] for part, low, high in pieces], dim=2),
    )


class SlotPool:
    """`slots` growing ends of sequences, stored as fp32 `[layers, slots, kv_heads, capacity, head_dim]`.

    Storage is finite wherever nobody writes: positions outside a sequence are masked by a score of minus infinity, and
    only finite values survive a weight of zero.
    """

    def __init__(self, shape: KVShape, slots: int, capacity: int) -> None:
        size = (shape.layers, slots, shape.kv_heads, capacity, shape.head_dim)
        self.k = torch.zeros(size)
        self.v = torch.zeros(size)
        self.capacity = capacity
        self._free = list(range(slots))

    def take(self) -> int:
        """The lowest free slot: used slots stay dense, so that a step reads as few of them as possible."""
        slot = min(self._free)
        self._free.remove(slot)
        return slot

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def clear(self, slot: int) -> None:
        """Forget what a failed sequence wrote: it may not be finite."""
        self.k[:, slot].zero_()
        self.v[:, slot].zero_()

    def view(self, slot: int, length: int) -> Segment:
        """The first `length` positions of a slot, sharing its storage: read it before the slot is written again."""
        return Segment(self.k[:, slot, :, :length], self.v[:, slot, :, :length])
