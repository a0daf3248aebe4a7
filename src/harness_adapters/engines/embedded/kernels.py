"""The arithmetic of a decoding step in fp32: dot products in vectors of eight, and what stands between them.

Invariant: a row's numbers depend on that row alone. A dot product sums lane by lane in the order of its length, then
the lanes in one order, then what is left over, whichever of the functions here computes it and with how many others at
a time; attention sums positions in their order, wherever their keys and values are stored.

Asymmetry: what is read and written in vectors is named by address (bytes); what is not, by array.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from harness_adapters.engines.embedded.compiled import (
    LANES,
    as_float,
    floats_at,
    fuse,
    load,
    loop,
    prefetch,
    spread,
    store,
    strict,
    totals,
)

FloatArray: TypeAlias = npt.NDArray[np.float32]
IntArray: TypeAlias = npt.NDArray[np.int64]
Number: TypeAlias = Any
"""An fp32 number inside compiled code."""

TILE = 8
"""Columns whose weights stay in the first cache while all rows pass."""

STRETCH = 64
"""Positions whose keys, or values, stay in the first cache while the queries that share them pass."""

WIDE = 8 * LANES
"""Numbers of a head that are summed in registers at once."""

_F: Any = np.float32
_BYTES = 4


@loop
def matrix(address: int, rows: int, columns: int) -> Any:
    """The fp32 matrix at an address, in C order."""
    return numba.carray(floats_at(address), (rows, columns))


@strict
def dot_four(one: int, a: int, b: int, c: int, d: int, width: int, out: int) -> None:
    """Products of the `width` numbers at `one` with those at four other addresses, written to `out`."""
    s = t = u = v = spread(_F(0))
    whole = width // LANES * LANES
    for byte in range(0, _BYTES * whole, _BYTES * LANES):
        x = load(one + byte)
        s = fuse(x, load(a + byte), s)
        t = fuse(x, load(b + byte), t)
        u = fuse(x, load(c + byte), u)
        v = fuse(x, load(d + byte), v)
    totals(out, s, t, u, v)
    if whole < width:
        _add_rest(one, a, b, c, d, whole, width, out)


@strict
def dot_eight(one: int, two: int, a: int, b: int, c: int, d: int, width: int, out: int) -> None:
    """`dot_four` of `one`, then of `two`: eight sums in registers."""
    s = t = u = v = p = q = r = w = spread(_F(0))
    whole = width // LANES * LANES
    for byte in range(0, _BYTES * whole, _BYTES * LANES):
        x, y = load(one + byte), load(two + byte)
        e, f, g, h = load(a + byte), load(b + byte), load(c + byte), load(d + byte)
        s = fuse(x, e, s)
        t = fuse(x, f, t)
        u = fuse(x, g, u)
        v = fuse(x, h, v)
        p = fuse(y, e, p)
        q = fuse(y, f, q)
        r = fuse(y, g, r)
        w = fuse(y, h, w)
    totals(out, s, t, u, v)
    totals(out + 4 * _BYTES, p, q, r, w)
    if whole < width:
        _add_rest(one, a, b, c, d, whole, width, out)
        _add_rest(two, a, b, c, d, whole, width, out + 4 * _BYTES)


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
    `last`; with `add`, added to what is there. `weight` is the address of `[columns, width]`."""
    sums = np.empty(8, dtype=np.float32)
    column = _BYTES * width
    for tile in range(first, last, TILE):
        end = min(tile + TILE, last)
        for byte in range(column * (tile + TILE), column * (end + TILE), 64):
            prefetch(weight + byte)
        row = begin
        while row + 4 <= stop:
            _project_four(x, weight, width, row, tile, end, out, at - first, add, sums)
            row += 4
        while row < stop:
            _project_one(x, weight, width, row, tile, end, out, at - first, add, sums)
            row += 1


@strict
def _project_four(
    x: FloatArray,
    weight: int,
    width: int,
    row: int,
    first: int,
    last: int,
    out: FloatArray,
    shift: int,
    add: bool,
    sums: FloatArray,
) -> None:
    step, here = x.strides[0], x.ctypes.data + row * x.strides[0]
    for left in range(first, last, 2):
        right = min(left + 1, last - 1)
        dot_eight(
            weight + _BYTES * width * left,
            weight + _BYTES * width * right,
            here,
            here + step,
            here + 2 * step,
            here + 3 * step,
            width,
            sums.ctypes.data,
        )
        for place in range(4):
            if add:
                if right != left:
                    out[row + place, right + shift] += sums[4 + place]
                out[row + place, left + shift] += sums[place]
            else:
                out[row + place, right + shift] = sums[4 + place]
                out[row + place, left + shift] = sums[place]


@strict
def _project_one(
    x: FloatArray,
    weight: int,
    width: int,
    row: int,
    first: int,
    last: int,
    out: FloatArray,
    shift: int,
    add: bool,
    sums: FloatArray,
) -> None:
    column = _BYTES * width
    for left in range(first, last, 4):
        b, c, d = min(left + 1, last - 1), min(left + 2, last - 1), min(left + 3, last - 1)
        dot_four(
            x.ctypes.data + row * x.strides[0],
            weight + column * left,
            weight + column * b,
            weight + column * c,
            weight + column * d,
            width,
            sums.ctypes.data,
        )
        for place in range(min(4, last - left)):
            if add:
                out[row, left + place + shift] += sums[place]
            else:
                out[row, left + place + shift] = sums[place]


@loop
def rms_norm(x: FloatArray, weight: FloatArray, epsilon: float, out: FloatArray) -> None:
    """Root mean square normalisation of one row (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    total = _F(0)
    for k in range(len(x)):
        total += x[k] * x[k]
    scale = _F(1) / np.sqrt(total / _F(len(x)) + _F(epsilon))
    for k in range(len(x)):
        out[k] = x[k] * scale * weight[k]


@strict
def exponential(x: Number) -> Number:
    """e to the x in fp32, to one unit in the last place or so; x beyond ±87 is taken as ±87, NaN stays NaN.

    Cephes' `expf` (Moshier 1992): x = n ln 2 + r, then a polynomial in r, then 2 to the n through the exponent's bits.
    """
    x = _F(-87) if x < _F(-87) else x
    x = _F(87) if x > _F(87) else x
    n = np.floor(x * _F(1.4426950408889634) + _F(0.5))
    r = x - n * _F(0.693359375)
    r = r - n * _F(-2.12194440e-4)
    p = _F(1.9875691500e-4)
    p = p * r + _F(1.3981999507e-3)
    p = p * r + _F(8.3334519073e-3)
    p = p * r + _F(4.1665795894e-2)
    p = p * r + _F(1.6666665459e-1)
    p = p * r + _F(5.0000001201e-1)
    p = p * r * r + r + _F(1)
    return p * as_float((np.int32(n) + np.int32(127)) << np.int32(23))


@loop
def swiglu(gate: FloatArray, up: FloatArray) -> None:
    """`gate = silu(gate) * up` of one row, in place (Shazeer 2020, arXiv 2002.05202)."""
    for k in range(len(gate)):
        gate[k] = gate[k] / (_F(1) + exponential(-gate[k])) * up[k]


@strict
def rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> None:
    """Turn one head by its position, in place, halves paired (Su et al. 2021, arXiv 2104.09864)."""
    half = len(cos)
    for k in range(half):
        first, second = x[k], x[k + half]
        x[k] = first * cos[k] - second * sin[k]
        x[k + half] = second * cos[k] + first * sin[k]


@strict
def score(
    queries: FloatArray, keys: int, count: int, scale: Number, out: FloatArray, at: int, tops: FloatArray
) -> None:
    """`out[g, at + i] = scale * queries[g] · keys[i]` for `count` keys, and `tops[g]` raised to the largest of them."""
    sums = np.empty(8, dtype=np.float32)
    group, width = queries.shape
    step = _BYTES * width
    for stretch in range(0, count, STRETCH):
        end = min(stretch + STRETCH, count)
        for g in range(0, group, 2):
            h = min(g + 1, group - 1)
            one, two = queries.ctypes.data + g * step, queries.ctypes.data + h * step
            for i in range(stretch, end, 4):
                a = keys + i * step
                b, c = keys + min(i + 1, end - 1) * step, keys + min(i + 2, end - 1) * step
                d = keys + min(i + 3, end - 1) * step
                if h == g:
                    dot_four(one, a, b, c, d, width, sums.ctypes.data)
                else:
                    dot_eight(one, two, a, b, c, d, width, sums.ctypes.data)
                for place in range(min(4, end - i)):
                    value = sums[place] * scale
                    out[g, at + i + place] = value
                    tops[g] = max(tops[g], value)
                    if h != g:
                        value = sums[4 + place] * scale
                        out[h, at + i + place] = value
                        tops[h] = max(tops[h], value)


@strict
def soften(scores: FloatArray, top: Number) -> Number:
    """`scores = exp(scores - top)` in place; their sum."""
    for i in range(len(scores)):
        scores[i] = exponential(scores[i] - top)
    return _sum(scores)


@loop
def _sum(numbers: FloatArray) -> Number:
    total = _F(0)
    for i in range(len(numbers)):
        total += numbers[i]
    return total


@strict
def weigh(weights: FloatArray, at: int, values: int, count: int, out: FloatArray) -> None:
    """Add `weights[g, at + i] * values[i]` to `out[g]` for `count` values, position after position."""
    group, width = out.shape
    step = _BYTES * width
    for stretch in range(0, count, STRETCH):
        length = min(STRETCH, count - stretch)
        here = values + stretch * step
        for g in range(group):
            row = weights[g, at + stretch : at + stretch + length]
            into = out.ctypes.data + g * step
            done = 0
            while done + WIDE <= width:
                _weigh_wide(row, here + _BYTES * done, step, into + _BYTES * done)
                done += WIDE
            while done + LANES <= width:
                _weigh_lanes(row, here + _BYTES * done, step, into + _BYTES * done)
                done += LANES
            rest = matrix(here, length, width)
            for k in range(done, width):
                for i in range(length):
                    out[g, k] += row[i] * rest[i, k]


@strict
def _weigh_lanes(weights: FloatArray, values: int, step: int, out: int) -> None:
    a = load(out)
    for i in range(len(weights)):
        a = fuse(spread(weights[i]), load(values + i * step), a)
    store(out, a)


@strict
def _weigh_wide(weights: FloatArray, values: int, step: int, out: int) -> None:
    """Eight vectors of a head at once: as many sums as keep the processor's adders busy."""
    v = _BYTES * LANES
    a, b, c, d = load(out), load(out + v), load(out + 2 * v), load(out + 3 * v)
    e, f, g, h = load(out + 4 * v), load(out + 5 * v), load(out + 6 * v), load(out + 7 * v)
    for i in range(len(weights)):
        p, at = spread(weights[i]), values + i * step
        a = fuse(p, load(at), a)
        b = fuse(p, load(at + v), b)
        c = fuse(p, load(at + 2 * v), c)
        d = fuse(p, load(at + 3 * v), d)
        e = fuse(p, load(at + 4 * v), e)
        f = fuse(p, load(at + 5 * v), f)
        g = fuse(p, load(at + 6 * v), g)
        h = fuse(p, load(at + 7 * v), h)
    store(out, a)
    store(out + v, b)
    store(out + 2 * v, c)
    store(out + 3 * v, d)
    store(out + 4 * v, e)
    store(out + 5 * v, f)
    store(out + 6 * v, g)
    store(out + 7 * v, h)
