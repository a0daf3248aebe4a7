"""One step of the whole model as one compiled call that several threads go through together (`team`).

A step computes rows: the last token of every decoding sequence and some prompt tokens of the others, all alike. Per
layer: normalise, project, write keys and values, attend, project, and the gated MLP, each phase shared among the
threads by items of columns, rows or heads; then the logits of the rows that were picked. Formulas are Llama's (RMSNorm,
rotary positions in the half-split form, grouped-query attention, SwiGLU). Weights are read where the module keeps them,
adapters where they were loaded: tables of addresses say where.

Invariants
- A row's numbers depend on its own context alone, to the last bit: not on the other rows, nor on which tokens of the
  context were computed in the same step, nor on the number of threads.
- Rows of one adapter stand together, a run: its low-rank products are two small matrices a module, whoever else is in
  the step.
- Arrays that a table points into outlive the call: the model and the sequences hold their owners.
"""

from __future__ import annotations

import numpy as np

from harness_adapters.engines.embedded.compiled import loop
from harness_adapters.engines.embedded.kernels import rms_norm, rotate, score, soften, swiglu, weigh
from harness_adapters.engines.embedded.layout import (
    ATTENTION_NORM,
    DOWN,
    GATE,
    MLP_NORM,
    OUT,
    UP,
    Desk,
    K,
    Network,
    Q,
    Rows,
    Scratch,
    V,
    new_desk,
    new_scratch,
    phases,
)
from harness_adapters.engines.embedded.products import (
    BYTES,
    HALF,
    FloatArray,
    matrix,
    project,
    project_halves,
    widen_numbers,
)
from harness_adapters.engines.embedded.team import Board, claim, done, new_board, wait


@loop
def forward(net: Network, rows: Rows, scratch: Scratch, board: Board, desk: Desk) -> None:
    """Take part in a step until its logits are there. Every thread of the team makes this very call."""
    adapted = len(rows.runs) > 0
    phase = _embed(net, rows, scratch, board, 0)
    for layer in range(net.layers):
        phase = _normalise(net, rows, scratch, board, phase, net.weights[layer, ATTENTION_NORM])
        if adapted:
            phase = _low_rank(net, rows, scratch, board, phase, layer, Q, V, scratch.normed)
        phase = _project_qkv(net, rows, scratch, board, phase, layer, desk)
        phase = _keep(net, rows, scratch, board, phase, layer)
        phase = _attend(net, rows, scratch, board, phase, layer, desk)
        if adapted:
            phase = _low_rank(net, rows, scratch, board, phase, layer, OUT, OUT, scratch.attended)
        phase = _project_back(net, rows, scratch, board, phase, layer, OUT, scratch.attended, desk)
        phase = _normalise(net, rows, scratch, board, phase, net.weights[layer, MLP_NORM])
        if adapted:
            phase = _low_rank(net, rows, scratch, board, phase, layer, GATE, UP, scratch.normed)
        phase = _project_inner(net, rows, scratch, board, phase, layer, desk)
        if adapted:
            phase = _low_rank(net, rows, scratch, board, phase, layer, DOWN, DOWN, scratch.gate)
        phase = _project_back(net, rows, scratch, board, phase, layer, DOWN, scratch.gate, desk)
    _look_up(net, rows, scratch, board, phase, desk)


@loop
def _look_up(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, desk: Desk) -> None:
    """The logits of the picked rows."""
    scale = matrix(net.norm, 1, net.hidden)[0]
    items = len(rows.picked)
    item = claim(board, phase, items)
    while item >= 0:
        rms_norm(scratch.x[rows.picked[item]], scale, net.epsilon, scratch.normed[item])
        done(board, phase)
        item = claim(board, phase, items)
    phase = wait(board, phase, items)
    items = len(net.head_items) if len(rows.picked) else 0
    item = claim(board, phase, items)
    while item >= 0:
        first, last = net.head_items[item, 1], net.head_items[item, 2]
        _product(net, net.head, scratch.normed, len(rows.picked), first, last, scratch.logits, first, False, desk)
        done(board, phase)
        item = claim(board, phase, items)
    wait(board, phase, items)


@loop
def _embed(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int) -> int:
    items = len(rows.tokens)
    row = claim(board, phase, items)
    while row >= 0:
        if net.halves:
            here = net.embedding + HALF * net.hidden * rows.tokens[row]
            widen_numbers(here, net.hidden, scratch.x[row].ctypes.data)
        else:
            scratch.x[row] = matrix(net.embedding, net.vocabulary, net.hidden)[rows.tokens[row]]
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
def _product(
    net: Network,
    weight: int,
    x: FloatArray,
    count: int,
    first: int,
    last: int,
    out: FloatArray,
    at: int,
    add: bool,
    desk: Desk,
) -> None:
    """Columns `first` to `last` of a weight for `count` rows."""
    if net.halves:
        project_halves(x, weight, x.shape[1], 0, count, first, last, out, at, add, desk.wide)
    else:
        project(x, weight, x.shape[1], 0, count, first, last, out, at, add)


@loop
def _columns(
    net: Network,
    rows: Rows,
    scratch: Scratch,
    layer: int,
    module: int,
    place: int,
    x: FloatArray,
    first: int,
    last: int,
    out: FloatArray,
    at: int,
    add: bool,
    desk: Desk,
) -> None:
    """Columns `first` to `last` of a module for all rows, the adapters' parts included."""
    _product(net, net.weights[layer, module], x, len(rows.tokens), first, last, out, at, add, desk)
    for run in range(len(rows.runs)):
        adapter, begin, stop = rows.runs[run, 0], rows.runs[run, 1], rows.runs[run, 2]
        up, rank = rows.lora[adapter, layer, module, 1], rows.ranks[adapter]
        if up != 0:
            low = scratch.low[:, place * rank : (place + 1) * rank]
            project(low, up, rank, begin, stop, first, last, out, at, True)


@loop
def _project_qkv(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, layer: int, desk: Desk) -> int:
    items = len(net.qkv_items)
    query, key = net.heads * net.head_dim, net.kv_heads * net.head_dim
    item = claim(board, phase, items)
    while item >= 0:
        module, first, last = net.qkv_items[item, 0], net.qkv_items[item, 1], net.qkv_items[item, 2]
        start = first if module == Q else query + (module - K) * key + first
        x, out = scratch.normed, scratch.qkv
        _columns(net, rows, scratch, layer, module, module - Q, x, first, last, out, start, False, desk)
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _project_back(
    net: Network,
    rows: Rows,
    scratch: Scratch,
    board: Board,
    phase: int,
    layer: int,
    module: int,
    x: FloatArray,
    desk: Desk,
) -> int:
    """Add a module's output to the residual."""
    items = len(net.out_items)
    item = claim(board, phase, items)
    while item >= 0:
        first, last = net.out_items[item, 1], net.out_items[item, 2]
        _columns(net, rows, scratch, layer, module, 0, x, first, last, scratch.x, first, True, desk)
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _project_inner(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, layer: int, desk: Desk) -> int:
    items = len(net.inner_items)
    item = claim(board, phase, items)
    gate, up, x = scratch.gate, scratch.up, scratch.normed
    while item >= 0:
        first, last = net.inner_items[item, 1], net.inner_items[item, 2]
        _columns(net, rows, scratch, layer, GATE, 0, x, first, last, gate, first, False, desk)
        _columns(net, rows, scratch, layer, UP, 1, x, first, last, up, first, False, desk)
        for row in range(len(rows.tokens)):
            swiglu(gate[row, first:last], up[row, first:last])
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _keep(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, layer: int) -> int:
    """Write each row's keys, rotated, and values to the end of its context."""
    dim, items = net.head_dim, len(rows.tokens)
    row = claim(board, phase, items)
    while row >= 0:
        for kv_head in range(net.kv_heads):
            place = _offset(rows.end_layer[row], rows.end_head[row], layer, kv_head) + BYTES * dim * rows.at[row]
            first = (net.heads + kv_head) * dim
            key = matrix(rows.end_keys[row] + place, 1, dim)[0]
            key[:] = scratch.qkv[row, first : first + dim]
            rotate(key, rows.cos[row], rows.sin[row])
            first += net.kv_heads * dim
            matrix(rows.end_values[row] + place, 1, dim)[0] = scratch.qkv[row, first : first + dim]
        done(board, phase)
        row = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _attend(net: Network, rows: Rows, scratch: Scratch, board: Board, phase: int, layer: int, desk: Desk) -> int:
    """An item is a span's heads of one key head, the spans of a key head one after another."""
    count = len(rows.spans)
    items = net.kv_heads * count
    item = claim(board, phase, items)
    while item >= 0:
        _attend_span(net, rows, scratch, layer, item % count, item // count, desk)
        done(board, phase)
        item = claim(board, phase, items)
    return wait(board, phase, items)


@loop
def _attend_span(net: Network, rows: Rows, scratch: Scratch, layer: int, span: int, kv_head: int, desk: Desk) -> None:
    """Attend with the queries of a span's rows that share a key head: scores of all positions first, part after part,
    then each row's weights of those it sees, then the weighted sums."""
    dim, group = net.head_dim, net.heads // net.kv_heads
    begin, stop, first_part, last_part = rows.spans[span]
    total, head = group * (stop - begin), kv_head * group
    queries, out = desk.queries[:total], desk.out[:total]
    _take_queries(rows, scratch, begin, stop, head, queries, dim)
    out[:] = 0
    past = 0
    for part in range(first_part, last_part):
        keys = rows.part_keys[part] + _offset(rows.part_layer[part], rows.part_head[part], layer, kv_head)
        score(queries, keys, rows.part_length[part], np.float32(1) / np.sqrt(np.float32(dim)), desk.scores, past)
        past += rows.part_length[part]
    end, longest = _offset(rows.end_layer[begin], rows.end_head[begin], layer, kv_head), rows.at[stop - 1] + 1
    keys = rows.end_keys[begin] + end
    score(queries, keys, longest, np.float32(1) / np.sqrt(np.float32(dim)), desk.scores, past)
    visible, totals = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.float32)
    for query in range(total):
        visible[query] = past + rows.at[begin + query // group] + 1
        totals[query] = soften(desk.scores[query, : visible[query]])
    past = 0
    for part in range(first_part, last_part):
        values = rows.part_values[part] + _offset(rows.part_layer[part], rows.part_head[part], layer, kv_head)
        weigh(desk.scores, past, values, rows.part_length[part], visible, out)
        past += rows.part_length[part]
    weigh(desk.scores, past, rows.end_values[begin] + end, longest, visible, out)
    for query in range(total):
        place = dim * (head + query % group)
        for k in range(dim):
            scratch.attended[begin + query // group, place + k] = out[query, k] / totals[query]


@loop
def _take_queries(
    rows: Rows, scratch: Scratch, begin: int, stop: int, head: int, queries: FloatArray, dim: int
) -> None:
    """The queries of some rows from a head on, rotated, a row's after another's."""
    group = len(queries) // (stop - begin)
    for query in range(len(queries)):
        row, place = begin + query // group, dim * (head + query % group)
        queries[query] = scratch.qkv[row, place : place + dim]
        rotate(queries[query], rows.cos[row], rows.sin[row])


@loop
def _offset(layer_stride: int, head_stride: int, layer: int, kv_head: int) -> int:
    """Bytes from layer 0 and head 0 to these."""
    return BYTES * (layer * layer_stride + kv_head * head_stride)


def warm_up() -> None:
    """Have the step compiled, or its compiled code read, by taking one of no rows through no layers."""
    none, table = np.zeros(0, dtype=np.int64), np.zeros((0, 3), dtype=np.int64)
    turns, nowhere = np.zeros((0, 1), dtype=np.float32), np.zeros((0, 9), dtype=np.int64)
    net = Network(0, 0, 1, 1, 1, 0, 0, 1e-5, False, 0, 0, 0, nowhere, table, table, table, table)
    rows = Rows(
        tokens=none,
        cos=turns,
        sin=turns,
        at=none,
        end_keys=none,
        end_values=none,
        end_layer=none,
        end_head=none,
        spans=np.zeros((0, 4), dtype=np.int64),
        part_keys=none,
        part_values=none,
        part_length=none,
        part_layer=none,
        part_head=none,
        runs=table,
        blocks=table,
        lora=np.zeros((0, 0, 7, 2), dtype=np.int64),
        ranks=none,
        picked=none,
        context=1,
    )
    forward(net, rows, new_scratch(net, 0, 0, 0), new_board(phases(net)), new_desk(net, 1))
