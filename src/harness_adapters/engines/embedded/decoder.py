"""From decoding sequences to the tables of one compiled step (`decoding`), and from its logits to tokens.

Invariant: what the tables point into (weights, adapters, segments, slots) is held by the model and by the sequences,
which are running for as long as the step lasts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from collections.abc import Sequence as Ordered

import numpy as np

from harness_adapters.engines.embedded.blas import helpers, share
from harness_adapters.engines.embedded.decoding import Rows, Scratch, decode, new_scratch, phases
from harness_adapters.engines.embedded.kernels import IntArray
from harness_adapters.engines.embedded.kv import Segment, SlotPool
from harness_adapters.engines.embedded.lora import Adapter
from harness_adapters.engines.embedded.model import LlamaModel
from harness_adapters.engines.embedded.sampling import sample_row
from harness_adapters.engines.embedded.sequence import Sequence
from harness_adapters.engines.embedded.team import new_board

BLOCK = 4
"""Rows of a low-rank product that a thread claims at once."""


class Decoder:
    """Takes one token further every sequence whose prompt is whole."""

    def __init__(self, model: LlamaModel, pool: SlotPool) -> None:
        self._model = model
        self._pool = pool
        self._scratch: Scratch | None = None

    def step(self, sequences: Ordered[Sequence]) -> list[tuple[int, float]]:
        """(token, log-prob) for each sequence; their keys and values of the token before are written to their slots."""
        for sequence in sequences:
            sequence.room_in_slot(self._pool)
        # Rows of one adapter stand together.
        order = sorted(range(len(sequences)), key=lambda place: sequences[place].key)
        rows = self._rows([sequences[place] for place in order])
        scratch = self._room(len(sequences), int(rows.ranks.max()))
        network = self._model.network(len(sequences))
        work = functools.partial(decode, network, rows, scratch, new_board(phases(network)))
        share([work] * (helpers().count + 1))
        drawn = {place: sample_row(scratch.logits[row], sequences[place].draw) for row, place in enumerate(order)}
        return [drawn[place] for place in range(len(sequences))]

    def _room(self, rows: int, rank: int) -> Scratch:
        """Arrays of just these many rows, out of ones as large as any step has needed."""
        kept = self._scratch
        if kept is None or len(kept.x) < rows or kept.low.shape[1] < 3 * rank:
            most, widest = (max(rows, len(kept.x)), max(rank, kept.low.shape[1] // 3)) if kept else (rows, rank)
            kept = self._scratch = new_scratch(self._model.network(rows), most, max(widest, 1))
        return Scratch(*(array[:rows] for array in kept))

    def _rows(self, sequences: Ordered[Sequence]) -> Rows:
        cos, sin = self._model.rotary([sequence.position for sequence in sequences])
        pool, parts = self._pool, [part for sequence in sequences for part in sequence.past]
        strides = [_strides(part) for part in parts]
        adapters, runs = _runs(sequences)
        return Rows(
            tokens=_column(sequence.tokens[-1] for sequence in sequences),
            cos=np.ascontiguousarray(cos.numpy()),
            sin=np.ascontiguousarray(sin.numpy()),
            at=_column(sequence.slot_length for sequence in sequences),
            slot_keys=_column(pool.k[0, sequence.slot].data_ptr() for sequence in sequences),
            slot_values=_column(pool.v[0, sequence.slot].data_ptr() for sequence in sequences),
            slot_layer=pool.k.stride(0),
            slot_head=pool.k.stride(2),
            first_part=_column(itertools.accumulate((len(sequence.past) for sequence in sequences), initial=0)),
            part_keys=_column(part.k.data_ptr() for part in parts),
            part_values=_column(part.v.data_ptr() for part in parts),
            part_length=_column(part.length for part in parts),
            part_layer=_column(layer for layer, _ in strides),
            part_head=_column(head for _, head in strides),
            runs=_table(runs),
            blocks=_table(
                [(index, at, min(at + BLOCK, stop)) for index, begin, stop in runs for at in range(begin, stop, BLOCK)]
            ),
            lora=np.stack([adapter.addresses for adapter in adapters] or [np.zeros((0, 7, 2), dtype=np.int64)]),
            ranks=_column([adapter.rank for adapter in adapters] or [0]),
            context=max(_context(sequence) for sequence in sequences),
        )


def _column(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)


def _table(rows: list[tuple[int, int, int]]) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _runs(sequences: Ordered[Sequence]) -> tuple[list[Adapter], list[tuple[int, int, int]]]:
    """The adapters, and (index, first row, row after the last) of each one's rows, which stand together."""
    adapters: list[Adapter] = []
    runs: list[tuple[int, int, int]] = []
    at = 0
    for adapter, group in itertools.groupby(sequences, key=lambda sequence: sequence.adapter):
        count = len(list(group))
        if adapter is not None:
            runs.append((len(adapters), at, at + count))
            adapters.append(adapter)
        at += count
    return adapters, runs


def _strides(part: Segment) -> tuple[int, int]:
    """Floats from layer to layer and from head to head; tokens lie next to each other, keys and values alike."""
    layer, head, token, one = part.k.stride()
    assert part.k.stride() == part.v.stride()
    assert (token, one) == (part.k.shape[3], 1)
    return layer, head


def _context(sequence: Sequence) -> int:
    return sum(part.length for part in sequence.past) + sequence.slot_length + 1
