"""From what sequences want computed in a step to the tables of one compiled call (`forward`), and its logits.

Invariant: what the tables point into (weights, adapters, segments, slots) is held by the model and by the sequences,
which are running for as long as the step lasts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass

import numpy as np

from harness_adapters.engines.embedded.forward import forward
from harness_adapters.engines.embedded.helpers import helpers, share
from harness_adapters.engines.embedded.kernels import IntArray
from harness_adapters.engines.embedded.kv import Segment, SlotPool
from harness_adapters.engines.embedded.layout import (
    SPAN,
    Desk,
    Network,
    Rows,
    Scratch,
    new_desk,
    new_scratch,
    phases,
)
from harness_adapters.engines.embedded.lora import Adapter
from harness_adapters.engines.embedded.model import FEW_ROWS, LlamaModel
from harness_adapters.engines.embedded.products import FloatArray
from harness_adapters.engines.embedded.sequence import Sequence
from harness_adapters.engines.embedded.team import Board, new_board

BLOCKS = (4, 32)
"""Rows of a low-rank product that a thread claims at once, for few rows and for many."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a sequence gets computed in a step: its next tokens; the logits after the last `picked` of them."""

    sequence: Sequence
    tokens: Ordered[int]
    picked: int


class Forward:
    """Computes shares over one model and slot pool."""

    def __init__(self, model: LlamaModel, pool: SlotPool) -> None:
        self._model = model
        self._pool = pool
        self._scratch: Scratch | None = None
        self._desks: list[Desk] = []

    def __call__(self, shares: Ordered[Share]) -> list[FloatArray]:
        """Logits fp32 `[picked, vocabulary]` of each share, to be read before the next step; keys and values of all
        tokens are written to where the sequences keep them."""
        # Rows of one adapter stand together.
        order = sorted(range(len(shares)), key=lambda place: shares[place].sequence.key)
        rows = _tables(self._model, self._pool, [shares[place] for place in order])
        network = self._model.network(len(rows.tokens))
        scratch, desks = self._room(rows), self._desks_for(rows.context)
        board = new_board(phases(network))
        share([functools.partial(_take_part, (network, rows, scratch, board), desk) for desk in desks])
        ends = itertools.accumulate(shares[place].picked for place in order)
        logits = {
            place: scratch.logits[end - shares[place].picked : end] for place, end in zip(order, ends, strict=True)
        }
        return [logits[place] for place in range(len(shares))]

    def _room(self, rows: Rows) -> Scratch:
        """Arrays as large as any step has needed; the numbers of rows are those of this one."""
        count, picked, rank = len(rows.tokens), len(rows.picked), int(rows.ranks.max())
        kept = self._scratch
        if kept is None or len(kept.x) < count or len(kept.logits) < picked or kept.low.shape[1] < 3 * rank:
            most = (len(kept.x), len(kept.logits), kept.low.shape[1] // 3) if kept else (1, 1, 1)
            sizes = (max(pair) for pair in zip(most, (count, picked, rank), strict=True))
            self._scratch = kept = new_scratch(self._model.network(count), *sizes)
        return Scratch(*(array[:count] for array in kept))._replace(logits=kept.logits[:picked])

    def _desks_for(self, context: int) -> list[Desk]:
        """A desk a thread, with room for a context; grown by half as much again, so that few are made."""
        if not self._desks or self._desks[0].scores.shape[1] < context:
            room = min(context + context // 2, max(self._model.positions, context))
            self._desks = [new_desk(self._model.network(1), room) for _ in range(helpers().count + 1)]
        return self._desks


def _take_part(step: tuple[Network, Rows, Scratch, Board], desk: Desk) -> None:
    network, rows, scratch, board = step
    forward(network, rows, scratch, board, desk)


def _tables(model: LlamaModel, pool: SlotPool, shares: Ordered[Share]) -> Rows:
    counts = [len(share.tokens) for share in shares]
    starts = [0, *itertools.accumulate(counts)]
    pasts = [share.sequence.past for share in shares]
    first_parts = [0, *itertools.accumulate(len(past) for past in pasts)]
    parts = [part for past in pasts for part in past]
    ends = [share.sequence.end(pool) for share in shares]
    positions = [share.sequence.position for share in shares]
    cos, sin = model.rotary(
        [place for first, n in zip(positions, counts, strict=True) for place in range(first, first + n)]
    )
    adapters, runs = _runs(shares, starts)
    block = BLOCKS[starts[-1] > FEW_ROWS]
    return Rows(
        tokens=_column(token for share in shares for token in share.tokens),
        cos=np.ascontiguousarray(cos.numpy()),
        sin=np.ascontiguousarray(sin.numpy()),
        at=_column(at + place for (_, at), n in zip(ends, counts, strict=True) for place in range(n)),
        end_keys=np.repeat(_column(end.k.data_ptr() for end, _ in ends), counts),
        end_values=np.repeat(_column(end.v.data_ptr() for end, _ in ends), counts),
        end_layer=np.repeat(_column(_strides(end)[0] for end, _ in ends), counts),
        end_head=np.repeat(_column(_strides(end)[1] for end, _ in ends), counts),
        spans=_table(
            4,
            [
                (row, min(row + SPAN, starts[place + 1]), first_parts[place], first_parts[place + 1])
                for place in range(len(shares))
                for row in range(starts[place], starts[place + 1], SPAN)
            ],
        ),
        part_keys=_column(part.k.data_ptr() for part in parts),
        part_values=_column(part.v.data_ptr() for part in parts),
        part_length=_column(part.length for part in parts),
        part_layer=_column(_strides(part)[0] for part in parts),
        part_head=_column(_strides(part)[1] for part in parts),
        runs=_table(3, runs),
        blocks=_table(
            3, [(index, at, min(at + block, stop)) for index, begin, stop in runs for at in range(begin, stop, block)]
        ),
        lora=np.stack([adapter.addresses for adapter in adapters] or [np.zeros((0, 7, 2), dtype=np.int64)]),
        ranks=_column([adapter.rank for adapter in adapters] or [0]),
        picked=_column(
            row for share, stop in zip(shares, starts[1:], strict=True) for row in range(stop - share.picked, stop)
        ),
        context=max(first + n for first, n in zip(positions, counts, strict=True)),
    )


def _column(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)


def _table(width: int, rows: list[tuple[int, ...]]) -> IntArray:
    return np.array(rows, dtype=np.int64).reshape(-1, width)


def _runs(shares: Ordered[Share], starts: Ordered[int]) -> tuple[list[Adapter], list[tuple[int, ...]]]:
    """The adapters, and (index, first row, row after the last) of each one's rows, which stand together."""
    adapters: list[Adapter] = []
    runs: list[tuple[int, ...]] = []
    at = 0
    for adapter, group in itertools.groupby(shares, key=lambda share: share.sequence.adapter):
        after = at + len(list(group))
        if adapter is not None:
            runs.append((len(adapters), starts[at], starts[after]))
            adapters.append(adapter)
        at = after
    return adapters, runs


def _strides(part: Segment) -> tuple[int, int]:
    """Floats from layer to layer and from head to head; tokens lie next to each other, keys and values alike."""
    layer, head, token, one = part.k.stride()
    assert part.k.stride() == part.v.stride()
    assert (token, one) == (part.k.shape[3], 1)
    return layer, head
