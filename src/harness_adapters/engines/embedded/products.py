"""Products of rows with the columns of a weight: dot products in vectors, several at a time.

Invariant: a product's bits depend on its row and its column alone. It sums lane by lane in the order of its length,
then the lanes in one order, then what is left over, whichever of the functions here computes it, with how many others
at a time, and whether its weights are stored as fp32 or as bf16: those are widened first, which rounds nothing.

Asymmetry: what is read and written in vectors is named by address (bytes); what is not, by array.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from harness_adapters.engines.embedded.compiled import (
    LANES,
    floats_at,
    fuse,
    load,
    loop,
    prefetch,
    spread,
    store,
    strict,
    totals,
    widen,
)

FloatArray: TypeAlias = npt.NDArray[np.float32]

BYTES = 4
HALF = 2

TILE = 8
"""Columns whose weights stay in the first cache while rows pass."""

ROWS_IN_REACH = 64
"""Rows that stay in the second cache while columns pass."""

WIDENED_COLUMNS = 32
"""Columns that are widened at once for more rows than those; for fewer it is a tile."""

FEW_ROWS = 4
"""Rows below which widening ahead is not worth it: each weight is used once or twice."""

_F: Any = np.float32


@loop
def matrix(address: int, rows: int, columns: int) -> Any:
    """The fp32 matrix at an address, in C order."""
    return numba.carray(floats_at(address), (rows, columns))


@strict
def dot_four(one: int, a: int, b: int, c: int, d: int, width: int, out: int) -> None:
    """Products of the `width` numbers at `one` with those at four other addresses, written to `out`."""
    s = t = u = v = spread(_F(0))
    whole = width // LANES * LANES
    for byte in range(0, BYTES * whole, BYTES * LANES):
        x = load(one + byte)
        s = fuse(x, load(a + byte), s)
        t = fuse(x, load(b + byte), t)
        u = fuse(x, load(c + byte), u)
        v = fuse(x, load(d + byte), v)
    totals(out, s, t, u, v)
    if whole < width:
        _add_rest(one, a, b, c, d, whole, width, out)


@strict
def _dot_four_halves(one: int, a: int, b: int, c: int, d: int, width: int, out: int) -> None:
    """`dot_four` with bf16 numbers at the four addresses; `width` is a multiple of `LANES`."""
    s = t = u = v = spread(_F(0))
    for byte in range(0, HALF * width, HALF * LANES):
        x = load(one + 2 * byte)
        s = fuse(x, widen(a + byte), s)
        t = fuse(x, widen(b + byte), t)
        u = fuse(x, widen(c + byte), u)
        v = fuse(x, widen(d + byte), v)
    totals(out, s, t, u, v)


@strict
def dot_eight(one: int, two: int, a: int, b: int, c: int, d: int, width: int, out: int) -> None:
    """`dot_four` of `one`, then of `two`: eight sums in registers."""
    s = t = u = v = p = q = r = w = spread(_F(0))
    whole = width // LANES * LANES
    for byte in range(0, BYTES * whole, BYTES * LANES):
        x, y = load(one + byte), load(two + byte)
        e, f, g, h = load(a + byte), load(b + byte), load(c + byte), load(d + byte)
        s, t, u, v = fuse(x, e, s), fuse(x, f, t), fuse(x, g, u), fuse(x, h, v)
        p, q, r, w = fuse(y, e, p), fuse(y, f, q), fuse(y, g, r), fuse(y, h, w)
    totals(out, s, t, u, v)
    totals(out + 4 * BYTES, p, q, r, w)
    if whole < width:
        _add_rest(one, a, b, c, d, whole, width, out)
        _add_rest(two, a, b, c, d, whole, width, out + 4 * BYTES)


@strict
def dot_sixteen(
    one: int, two: int, three: int, four: int, a: int, b: int, c: int, d: int, width: int, out: int
) -> None:
    """`dot_four` of four addresses, one after another: sixteen sums, in registers where the processor has so many."""
    if LANES < 16:
        dot_eight(one, two, a, b, c, d, width, out)
        dot_eight(three, four, a, b, c, d, width, out + 8 * BYTES)
        return
    i = j = k = m = n = o = p = q = s = t = u = v = e = f = g = h = spread(_F(0))
    whole = width // LANES * LANES
    for byte in range(0, BYTES * whole, BYTES * LANES):
        w, x, y, z = load(one + byte), load(two + byte), load(three + byte), load(four + byte)
        r = load(a + byte)
        i, m, s, e = fuse(w, r, i), fuse(x, r, m), fuse(y, r, s), fuse(z, r, e)
        r = load(b + byte)
        j, n, t, f = fuse(w, r, j), fuse(x, r, n), fuse(y, r, t), fuse(z, r, f)
        r = load(c + byte)
        k, o, u, g = fuse(w, r, k), fuse(x, r, o), fuse(y, r, u), fuse(z, r, g)
        r = load(d + byte)
        p, q, v, h = fuse(w, r, p), fuse(x, r, q), fuse(y, r, v), fuse(z, r, h)
    totals(out, i, j, k, p)
    totals(out + 4 * BYTES, m, n, o, q)
    totals(out + 8 * BYTES, s, t, u, v)
    totals(out + 12 * BYTES, e, f, g, h)
    if whole < width:
        _add_rest(one, a, b, c, d, whole, width, out)
        _add_rest(two, a, b, c, d, whole, width, out + 4 * BYTES)
        _add_rest(three, a, b, c, d, whole, width, out + 8 * BYTES)
        _add_rest(four, a, b, c, d, whole, width, out + 12 * BYTES)


@strict
def _add_rest(one: int, a: int, b: int, c: int, d: int, whole: int, width: int, out: int) -> None:
    """Add the products from `whole` on, which fill no vector."""
    sums, x = matrix(out, 1, 4)[0], matrix(one, 1, width)[0]
    e, f, g, h = matrix(a, 1, width)[0], matrix(b, 1, width)[0], matrix(c, 1, width)[0], matrix(d, 1, width)[0]
    for k in range(whole, width):
        sums[0] += x[k] * e[k]
        sums[1] += x[k] * f[k]
        sums[2] += x[k] * g[k]
        sums[3] += x[k] * h[k]


@strict
def project(
    x: FloatArray,
    weight: int,
    width: int,
    begin: int,
    stop: int,
    first: int,
    last: int,
    out: FloatArray,
    at: int,
    add: bool,
) -> None:
    """`out[r, at + n - first] = x[r] · weight[n]` for rows r from `begin` to `stop` and columns n from `first` to
    `last`; with `add`, added to what is there. `weight` is the address of fp32 `[columns, width]`."""
    sums = np.empty(16, dtype=np.float32)
    column, ahead = BYTES * width, stop - begin <= TILE
    for block in range(begin, stop, ROWS_IN_REACH):
        until = min(block + ROWS_IN_REACH, stop)
        for tile in range(first, last, TILE):
            end = min(tile + TILE, last)
            if ahead:
                _prefetch(weight + column * end, column * (min(end + TILE, last) - end))
            row = block
            while row + 4 <= until:
                for left in range(tile, end, 4):
                    _four_rows(x, weight, width, row, left, end, sums)
                    _write(sums, row, 4, left, end, out, at - first, add)
                row += 4
            while row < until:
                for left in range(tile, end, 4):
                    _one_row(x, weight, width, row, left, end, sums)
                    _write(sums, row, 1, left, end, out, at - first, add)
                row += 1


@strict
def project_halves(
    x: FloatArray,
    weight: int,
    width: int,
    begin: int,
    stop: int,
    first: int,
    last: int,
    out: FloatArray,
    at: int,
    add: bool,
    wide: FloatArray,
) -> None:
    """`project` with bf16 weights; `wide` has room for `WIDENED_COLUMNS` columns of them in fp32."""
    column = HALF * width
    if stop - begin < FEW_ROWS and width % LANES == 0:
        sums = np.empty(16, dtype=np.float32)
        for tile in range(first, last, TILE):
            end = min(tile + TILE, last)
            _prefetch(weight + column * end, column * (min(end + TILE, last) - end))
            for row in range(begin, stop):
                here = x.ctypes.data + row * x.strides[0]
                for left in range(tile, end, 4):
                    a, b, c, d = _four_columns(weight, column, left, end)
                    _dot_four_halves(here, a, b, c, d, width, sums.ctypes.data)
                    _write(sums, row, 1, left, end, out, at - first, add)
        return
    columns = WIDENED_COLUMNS if stop - begin > ROWS_IN_REACH else TILE
    for tile in range(first, last, columns):
        end = min(tile + columns, last)
        _prefetch(weight + column * end, column * (min(end + TILE, last) - end))
        widen_numbers(weight + column * tile, (end - tile) * width, wide.ctypes.data)
        project(x, wide.ctypes.data, width, begin, stop, 0, end - tile, out, at + tile - first, add)


@loop
def _prefetch(address: int, size: int) -> None:
    for byte in range(0, size, 64):
        prefetch(address + byte)


@strict
def widen_numbers(source: int, count: int, out: int) -> None:
    """Write `count` bf16 numbers at an address as fp32 to another."""
    whole = count // LANES * LANES
    for place in range(0, whole, LANES):
        store(out + BYTES * place, widen(source + HALF * place))
    if whole < count:
        halves = numba.carray(floats_at(source), ((count + 1) // 2,)).view(np.uint16)
        numbers = numba.carray(floats_at(out), (count,)).view(np.uint32)
        for place in range(whole, count):
            numbers[place] = np.uint32(halves[place]) << np.uint32(16)


@strict
def _four_columns(weight: int, column: int, left: int, end: int) -> Any:
    """Addresses of the columns from `left` on, the last one before `end` again for those that are missing."""
    b, c, d = min(left + 1, end - 1), min(left + 2, end - 1), min(left + 3, end - 1)
    return weight + column * left, weight + column * b, weight + column * c, weight + column * d


@strict
def _four_rows(x: FloatArray, weight: int, width: int, row: int, left: int, end: int, sums: FloatArray) -> None:
    step, here = x.strides[0], x.ctypes.data + row * x.strides[0]
    a, b, c, d = _four_columns(weight, BYTES * width, left, end)
    dot_sixteen(here, here + step, here + 2 * step, here + 3 * step, a, b, c, d, width, sums.ctypes.data)


@strict
def _one_row(x: FloatArray, weight: int, width: int, row: int, left: int, end: int, sums: FloatArray) -> None:
    a, b, c, d = _four_columns(weight, BYTES * width, left, end)
    dot_four(x.ctypes.data + row * x.strides[0], a, b, c, d, width, sums.ctypes.data)


@strict
def _write(sums: FloatArray, row: int, rows: int, left: int, end: int, out: FloatArray, shift: int, add: bool) -> None:
    """Write, or add, the sums of four columns for each of some rows to where they belong."""
    columns = min(4, end - left)
    for r in range(rows):
        into = out[row + r, left + shift : left + shift + columns]
        if add:
            for place in range(columns):
                into[place] += sums[4 * r + place]
        else:
            for place in range(columns):
                into[place] = sums[4 * r + place]
