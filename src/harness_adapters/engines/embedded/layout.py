"""What a step of the whole model (`forward`) is given: sizes, tables of addresses, and arrays to compute in.

All are named tuples of numbers and arrays, which compiled code reads as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from harness_adapters.engines.embedded.kernels import IntArray
from harness_adapters.engines.embedded.products import WIDENED_COLUMNS, FloatArray

Q, K, V, OUT, GATE, UP, DOWN = range(7)
ATTENTION_NORM, MLP_NORM = 7, 8
"""Columns of the table of a layer's addresses."""

PHASES_PER_LAYER = 12

SPAN = 4
"""Rows of a sequence that attend together, reading each key and value once."""


class Network(NamedTuple):
    """Sizes and addresses of a Llama-type model. Weights are `[out, in]` in C order, bf16 with `halves`, else fp32;
    norms are fp32.

    `weights` is int64 `[layers, 9]`; the `…_items` are int64 `[items, 3]`: module, first and last column.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int
    epsilon: float
    halves: bool
    embedding: int
    norm: int
    head: int
    weights: IntArray
    qkv_items: IntArray
    out_items: IntArray
    inner_items: IntArray
    head_items: IntArray


class Rows(NamedTuple):
    """The rows of a step. Row r writes its key and value to position `at[r]` of the end of its sequence's context.

    `spans` is int64 `[spans, 4]`: up to `SPAN` rows of one sequence, the first and the one after the last, that attend
    to the parts from the third number to the fourth, and to the end up to themselves. `runs` is int64 `[runs, 3]`: an
    adapter's index in the tables, its first row and the row after its last; rows of the base are in none. `blocks` are
    the same runs in pieces of few rows. `picked` are the rows whose logits are wanted. Addresses and strides (in
    floats) of keys and values are those of layer 0 and head 0. `lora` is int64 `[adapters, layers, 7, 2]`, the
    addresses of A `[rank, in]` and B `[out, rank]`, 0 for none. `context` is the longest context, its own row included.
    """

    tokens: IntArray
    cos: FloatArray
    sin: FloatArray
    at: IntArray
    end_keys: IntArray
    end_values: IntArray
    end_layer: IntArray
    end_head: IntArray
    spans: IntArray
    part_keys: IntArray
    part_values: IntArray
    part_length: IntArray
    part_layer: IntArray
    part_head: IntArray
    runs: IntArray
    blocks: IntArray
    lora: IntArray
    ranks: IntArray
    picked: IntArray
    context: int


class Scratch(NamedTuple):
    """Where a step computes, fp32 with one row a row: residual, normed, q k v, attended, gate, up, low-rank. Logits
    have a row for each that was picked."""

    x: FloatArray
    normed: FloatArray
    qkv: FloatArray
    attended: FloatArray
    gate: FloatArray
    up: FloatArray
    low: FloatArray
    logits: FloatArray


class Desk(NamedTuple):
    """What one thread computes with: widened weights, and the queries, outputs and scores of a span's heads."""

    wide: FloatArray
    queries: FloatArray
    out: FloatArray
    scores: FloatArray


def column_items(modules: list[tuple[int, int]], size: int) -> IntArray:
    """Items of about `size` columns of each (module, columns): int64 `[items, 3]`."""
    rows: list[tuple[int, int, int]] = []
    for module, columns in modules:
        rows += [(module, first, min(first + size, columns)) for first in range(0, columns, size)]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def phases(net: Network) -> int:
    """Phases of a step, at most."""
    return 3 + PHASES_PER_LAYER * net.layers


def new_scratch(net: Network, rows: int, picked: int, rank: int) -> Scratch:
    """Room for `rows` rows, `picked` rows of logits and adapters of up to `rank`."""
    query, key = net.heads * net.head_dim, net.kv_heads * net.head_dim
    return Scratch(
        x=_room(rows, net.hidden),
        normed=_room(rows, net.hidden),
        qkv=_room(rows, query + 2 * key),
        attended=_room(rows, query),
        gate=_room(rows, net.inner),
        up=_room(rows, net.inner),
        low=_room(rows, 3 * rank),
        logits=_room(picked, net.vocabulary),
    )


def new_desk(net: Network, context: int) -> Desk:
    """Room for one thread and contexts of up to `context` positions."""
    queries, widest = SPAN * net.heads // net.kv_heads, max(net.hidden, net.inner, net.heads * net.head_dim)
    return Desk(
        wide=_room(1, WIDENED_COLUMNS * widest)[0],
        queries=_room(queries, net.head_dim),
        out=_room(queries, net.head_dim),
        scores=_room(queries, context),
    )


def _room(rows: int, width: int) -> FloatArray:
    """Noughts fp32 `[rows, width]`, on a boundary that vectors like: torch's memory begins on one."""
    numbers: FloatArray = torch.zeros(rows, width).numpy()
    return numbers
