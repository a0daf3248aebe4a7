"""One decoding step of the whole model as one compiled call that several threads go through together (`team`).

A step takes the next token of every decoding sequence to its logits: per layer normalise, project, rotate, write keys
and values, attend, project, and the gated MLP, each phase shared among the threads by items of columns, rows or heads.
Weights are read where the module keeps them, adapters where they were loaded: tables of addresses say where.

Invariants
- Rows of one adapter stand together, a run: its low-rank products are two small matrices a module, whoever else is in
  the batch.
- Arrays that a table points into outlive the call: the model and the sequences hold their owners.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from harness_adapters.engines.embedded.compiled import loop
from harness_adapters.engines.embedded.kernels import (
    FloatArray,
    IntArray,
    matrix,
    project,
    rms_norm,
    rotate,
    score,
    soften,
    swiglu,
    weigh,
)
from harness_adapters.engines.embedded.team import Board, claim, done, new_board, wait

Q, K, V, OUT, GATE, UP, DOWN = range(7)
ATTENTION_NORM, MLP_NORM = 7, 8
"""Columns of the table of a layer's addresses."""

PHASES_PER_LAYER = 11


class Network(NamedTuple):
    """Sizes and addresses of a Llama-type model, fp32 weights `[out, in]` in C order.

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
    embedding: int
    norm: int
    head: int
    weights: IntArray
    qkv_items: IntArray
    out_items: IntArray
    inner_items: IntArray
    head_items: IntArray


class Rows(NamedTuple):
    """The rows of a step. Row r writes to position `at[r]` of its slot and attends to it and to the parts from
    `first_part[r]` to `first_part[r + 1]`.

    `runs` is int64 `[runs, 3]`: an adapter's index in the tables, its first row and the row after its last; rows of the
    base are in none. `blocks` are the same runs in pieces of few rows. Addresses and strides (in floats) of keys and
    values are those of layer 0 and head 0. `lora` is int64 `[adapters, layers, 7, 2]`, the addresses of A `[rank, in]`
    and of B `[out, rank]`, 0 where there is none.
    """

    tokens: IntArray
    cos: FloatArray
    sin: FloatArray
    at: IntArray
    slot_keys: IntArray
    slot_values: IntArray
    slot_layer: int
    slot_head: int
    first_part: IntArray
    part_keys: IntArray
    part_values: IntArray
    part_length: IntArray
    part_layer: IntArray
    part_head: IntArray
    runs: IntArray
    blocks: IntArray
    lora: IntArray
    ranks: IntArray
    context: int


class Scratch(NamedTuple):
    """Where a step computes, fp32 with one row a row: residual, normed, q k v, attended, gate, up, low-rank, logits."""

    x: FloatArray
    normed: FloatArray
    qkv: FloatArray
    attended: FloatArray
    gate: FloatArray
    up: FloatArray
    low: FloatArray
    logits: FloatArray


@loop
def decode(net: Network, rows: Rows, scratch: Scratch, board: Board) -> None:
    """Take part in a step until its logits are there. Every thread of the team makes this very call."""
    scores = np.empty((net.heads // net.kv_heads, rows.context), dtype=np.float32)
    total = len(rows.tokens)
    adapted = len(rows.runs) > 0
    phase = _embed(net, rows, scratch, board, 0)
    for layer in range(net.layers):
        phase = _normalise(net, rows, scratch, board, phase, net.weights[layer, ATTENTION_NORM])
        if adapted:
            phase = _low_rank(net, rows, scratch, board, phase, layer, Q, V, scratch.normed)
        phase = _project_qkv(net, rows, scratch, board, phase, layer)
        phase = _attend(net, rows, scratch, board, phase, layer, scores)
        if adapted:
            phase = _low_rank(net, rows, scratch, board, phase, layer, OUT, OUT, scratch.attended)
        phase = _project_back(net, rows, scratch, board, phase, layer, OUT, scratch.attended)
        phase = _normalise(net, rows, scratch, board, phase, net.weights[layer, MLP_NORM])
        if adapted:
            phase = _low_rank(net, rows, scratch, board, phase, layer, GATE, UP, scratch.normed)
        phase = _project_inner(net, rows, scratch, board, phase, layer)
        if adapted:
            phase = _low_rank(net, rows, scratch, board, phase, layer, DOWN, DOWN, scratch.gate)
        phase = _project_back(net, rows, scratch, board, phase, layer, DOWN, scratch.gate)
    phase = _normalise(net, rows, scratch, board, phase, net.norm)
    items = len(net.head_items)
    item = claim(board, phase, items)
    while item >= 0:
        first, last = net.head_items[item, 1], net.head_items[item, 2]
        project(scratch.normed, net.head, net.hidden, 0, total, first, last, scratch.logits, first, False)
        done(board, phase)
        item = claim(board, phase, items)
    wait(board, phase, items)


@loop
def _embed(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int) -> int:
    embedding = matrix(net.embedding, net.vocabulary, net.hidden)
    items = len(rows.tokens)
    row = claim(board, phase, items)
    while row >= 0:
        scratch.x[row] = embedding[rows.tokens[row]]
        done(board, phase)
        row = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _normalise(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, weight: int) -> int:
    """Normalise the residual by the weight at an address."""
    scale = matrix(weight, 1, net.hidden)[0]
    items = len(rows.tokens)
    row = claim(board, phase, items)
    while row >= 0:
        rms_norm(scratch.x[row], scale, net.epsilon, scratch.normed[row])
        done(board, phase)
        row = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _low_rank(
    net: Network,
    rows: Rows,
    scratch: Scratch,
    board: Board,
    phase: int,
    layer: int,
    first: int,
    last: int,
    x: FloatArray,
) -> int:
    """`A x` of the modules from `first` to `last`, which read `x`, side by side in the rows' low-rank numbers."""
    modules = last + 1 - first
    items = len(rows.blocks) * modules
    item = claim(board, phase, items)
    while item >= 0:
        block, place = item // modules, item % modules
        adapter, begin, stop = rows.blocks[block, 0], rows.blocks[block, 1], rows.blocks[block, 2]
        address, rank = rows.lora[adapter, layer, first + place, 0], rows.ranks[adapter]
        if address != 0:
            project(x, address, x.shape[1], begin, stop, 0, rank, scratch.low, place * rank, False)
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _columns(
    rows: Rows,
    scratch: Scratch,
    weight: int,
    layer: int,
    module: int,
    place: int,
    x: FloatArray,
    first: int,
    last: int,
    out: FloatArray,
    at: int,
    add: bool,
) -> None:
    """Columns `first` to `last` of a module for all rows, the adapters' parts included."""
    project(x, weight, x.shape[1], 0, len(rows.tokens), first, last, out, at, add)
    for run in range(len(rows.runs)):
        adapter, begin, stop = rows.runs[run, 0], rows.runs[run, 1], rows.runs[run, 2]
        up, rank = rows.lora[adapter, layer, module, 1], rows.ranks[adapter]
        if up != 0:
            low = scratch.low[:, place * rank : (place + 1) * rank]
            project(low, up, rank, begin, stop, first, last, out, at, True)


@loop
def _project_qkv(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, layer: int) -> int:
    items = len(net.qkv_items)
    query, key = net.heads * net.head_dim, net.kv_heads * net.head_dim
    item = claim(board, phase, items)
    while item >= 0:
        module, first, last = net.qkv_items[item, 0], net.qkv_items[item, 1], net.qkv_items[item, 2]
        start = first if module == Q else query + (module - K) * key + first
        weight = net.weights[layer, module]
        _columns(
            rows, scratch, weight, layer, module, module - Q, scratch.normed, first, last, scratch.qkv, start, False
        )
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _project_back(
    net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, layer: int, module: int, x: FloatArray
) -> int:
    """Add a module's output to the residual."""
    items = len(net.out_items)
    item = claim(board, phase, items)
    while item >= 0:
        first, last = net.out_items[item, 1], net.out_items[item, 2]
        _columns(rows, scratch, net.weights[layer, module], layer, module, 0, x, first, last, scratch.x, first, True)
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _project_inner(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, layer: int) -> int:
    items = len(net.inner_items)
    item = claim(board, phase, items)
    gate, up, x = scratch.gate, scratch.up, scratch.normed
    while item >= 0:
        first, last = net.inner_items[item, 1], net.inner_items[item, 2]
        _columns(rows, scratch, net.weights[layer, GATE], layer, GATE, 0, x, first, last, gate, first, False)
        _columns(rows, scratch, net.weights[layer, UP], layer, UP, 1, x, first, last, up, first, False)
        for row in range(len(rows.tokens)):
            swiglu(gate[row, first:last], up[row, first:last])
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _attend(
    net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, layer: int, scores: FloatArray
) -> int:
    """Rotate, write and attend; an item is a row's heads of one key head, the rows of a key head one after another."""
    count = len(rows.tokens)
    items = net.kv_heads * count
    item = claim(board, phase, items)
    while item >= 0:
        _attend_head(net, rows, scratch, layer, item % count, item // count, scores)
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _attend_head(
    net: Network, rows: Rows, scratch: Scratch, layer: int, row: int, kv_head: int, scores: FloatArray
) -> None:
    """Attend to a row's whole context with the queries that share a key head: scores of all positions first, part
    after part, then their weights, then the weighted sum."""
    dim, group = net.head_dim, net.heads // net.kv_heads
    own_keys, own_values = _extend(net, rows, scratch, layer, row, kv_head)
    first = kv_head * group * dim
    queries = scratch.qkv[row, first : first + group * dim].reshape(group, dim)
    out = scratch.attended[row, first : first + group * dim].reshape(group, dim)
    for member in range(group):
        rotate(queries[member], rows.cos[row], rows.sin[row])
    out[:] = 0
    tops = np.full(group, -np.inf, dtype=np.float32)
    scale = np.float32(1) / np.sqrt(np.float32(dim))
    context = 0
    for part in range(rows.first_part[row], rows.first_part[row + 1]):
        keys = rows.part_keys[part] + _offset(rows.part_layer[part], rows.part_head[part], layer, kv_head)
        score(queries, keys, rows.part_length[part], scale, scores, context, tops)
        context += rows.part_length[part]
    score(queries, own_keys, rows.at[row] + 1, scale, scores, context, tops)
    totals = np.empty(group, dtype=np.float32)
    for member in range(group):
        totals[member] = soften(scores[member, : context + rows.at[row] + 1], tops[member])
    context = 0
    for part in range(rows.first_part[row], rows.first_part[row + 1]):
        values = rows.part_values[part] + _offset(rows.part_layer[part], rows.part_head[part], layer, kv_head)
        weigh(scores, context, values, rows.part_length[part], out)
        context += rows.part_length[part]
    weigh(scores, context, own_values, rows.at[row] + 1, out)
    for member in range(group):
        out[member] /= totals[member]


@loop
def _offset(layer_stride: int, head_stride: int, layer: int, kv_head: int) -> int:
    """Bytes from layer 0 and head 0 to these."""
    return 4 * (layer * layer_stride + kv_head * head_stride)


@loop
def _extend(net: Network, rows: Rows, scratch: Scratch, layer: int, row: int, kv_head: int) -> Any:
    """Write the row's key, rotated, and value to its slot; the addresses of the slot's keys and values."""
    dim, last = net.head_dim, rows.at[row]
    place = _offset(rows.slot_layer, rows.slot_head, layer, kv_head)
    keys, values = rows.slot_keys[row] + place, rows.slot_values[row] + place
    new_key = (net.heads + kv_head) * dim
    new_value = new_key + net.kv_heads * dim
    key = matrix(keys, last + 1, dim)[last]
    key[:] = scratch.qkv[row, new_key : new_key + dim]
    rotate(key, rows.cos[row], rows.sin[row])
    matrix(values, last + 1, dim)[last] = scratch.qkv[row, new_value : new_value + dim]
    return keys, values


def column_items(modules: list[tuple[int, int]], size: int) -> IntArray:
    """Items of about `size` columns of each (module, columns): int64 `[items, 3]`."""
    rows: list[tuple[int, int, int]] = []
    for module, columns in modules:
        rows += [(module, first, min(first + size, columns)) for first in range(0, columns, size)]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def phases(net: Network) -> int:
    """Phases of a step, at most."""
    return 3 + PHASES_PER_LAYER * net.layers


def new_scratch(net: Network, rows: int, rank: int) -> Scratch:
    """Room for `rows` rows and adapters of up to `rank`."""

    def room(width: int) -> Any:
        return np.zeros((rows, width), dtype=np.float32)

    query, key = net.heads * net.head_dim, net.kv_heads * net.head_dim
    return Scratch(
        x=room(net.hidden),
        normed=room(net.hidden),
        qkv=room(query + 2 * key),
        attended=room(query),
        gate=room(net.inner),
        up=room(net.inner),
        low=room(3 * rank),
        logits=room(net.vocabulary),
    )


def warm_up() -> None:
    """Have the step compiled, or its compiled code read, by taking one of no rows through no layers."""
    none, table = np.zeros(0, dtype=np.int64), np.zeros((0, 3), dtype=np.int64)
    turns = np.zeros((0, 1), dtype=np.float32)
    nowhere = np.zeros((0, 9), dtype=np.int64)
    net = Network(0, 0, 1, 1, 1, 0, 0, 1e-5, 0, 0, 0, nowhere, table, table, table, table)
    lora = np.zeros((0, 0, 7, 2), dtype=np.int64)
    at = np.zeros(1, dtype=np.int64)
    rows = Rows(
        none, turns, turns, none, none, none, 0, 0, at, none, none, none, none, none, table, table, lora, none, 1
    )
    decode(net, rows, new_scratch(net, 0, 0), new_board(phases(net)))
