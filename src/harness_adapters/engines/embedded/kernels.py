"""The arithmetic of a step between its products: norms, activation, rotary positions, attention; fp32.

Invariant: a row's numbers depend on that row alone. Attention takes positions in their order, wherever their keys and
values are stored, and whoever attends beside it.

Asymmetry: what is read and written in vectors is named by address (bytes); what is not, by array.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from harness_adapters.engines.embedded.compiled import LANES, as_float, fuse, load, loop, spread, store, strict
from harness_adapters.engines.embedded.products import BYTES, FloatArray, dot_four, dot_sixteen, matrix

IntArray: TypeAlias = npt.NDArray[np.int64]
Number: TypeAlias = Any
"""An fp32 number inside compiled code."""

STRETCH = 64
"""Positions whose keys, or values, stay in the first cache while the queries that share them pass."""

WIDE = 4 * LANES
"""Numbers of a head that are summed in registers at once, for two queries."""

_F: Any = np.float32


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
def score(queries: FloatArray, keys: int, count: int, scale: Number, out: FloatArray, at: int) -> None:
    """`out[g, at + i] = scale * queries[g] · keys[i]` for `count` keys; `queries` is in C order."""
    sums = np.empty(16, dtype=np.float32)
    total, width = queries.shape
    step = BYTES * width
    for stretch in range(0, count, STRETCH):
        end = min(stretch + STRETCH, count)
        for g in range(0, total, 4):
            group = min(4, total - g)
            one = queries.ctypes.data + g * step
            two, three = one + min(1, group - 1) * step, one + min(2, group - 1) * step
            for i in range(stretch, end, 4):
                a = keys + i * step
                b, c = keys + min(i + 1, end - 1) * step, keys + min(i + 2, end - 1) * step
                d = keys + min(i + 3, end - 1) * step
                if group == 1:
                    dot_four(one, a, b, c, d, width, sums.ctypes.data)
                else:
                    last = one + (group - 1) * step
                    dot_sixteen(one, two, three, last, a, b, c, d, width, sums.ctypes.data)
                for place in range(min(4, end - i)):
                    for member in range(group):
                        out[g + member, at + i + place] = sums[4 * member + place] * scale


@loop
def soften(scores: FloatArray) -> Number:
    """`scores = exp(scores - max)` in place; their sum."""
    _exponentials(scores, _top(scores))
    total = _F(0)
    for i in range(len(scores)):
        total += scores[i]
    return total


@loop
def _top(scores: FloatArray) -> Number:
    """The largest score. Compared as integers, which order as the numbers do once the negative ones are turned round:
    the compiler then compares many at a time."""
    bits, most = scores.view(np.int32), np.int32(-(2**31))
    for i in range(len(bits)):
        most = max(most, bits[i] ^ ((bits[i] >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    return as_float(most ^ ((most >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@strict
def _exponentials(scores: FloatArray, top: Number) -> None:
    for i in range(len(scores)):
        scores[i] = exponential(scores[i] - top)


@strict
def weigh(weights: FloatArray, at: int, values: int, count: int, visible: IntArray, out: FloatArray) -> None:
    """Add `weights[g, at + i] * values[i]` to `out[g]` for `count` values, position after position, as far as
    `at + i < visible[g]`; `out` is in C order."""
    step = BYTES * out.shape[1]
    for stretch in range(0, count, STRETCH):
        length = min(STRETCH, count - stretch)
        here, first = values + stretch * step, at + stretch
        for g in range(0, len(out), 2):
            h = min(g + 1, len(out) - 1)
            of_g = max(0, min(length, visible[g] - first))
            of_h = max(0, min(length, visible[h] - first)) if h != g else 0
            both = min(of_g, of_h)
            if both > 0:
                _weigh_two(weights[g, first : first + both], weights[h, first : first + both], here, out[g], out[h])
            if of_g > both:
                _weigh_one(weights[g, first + both : first + of_g], here + both * step, out[g])
            if of_h > both:
                _weigh_one(weights[h, first + both : first + of_h], here + both * step, out[h])


@strict
def _weigh_one(weights: FloatArray, values: int, out: FloatArray) -> None:
    width, into = len(out), out.ctypes.data
    done = 0
    while done + WIDE <= width:
        _wide(weights, values + BYTES * done, BYTES * width, into + BYTES * done)
        done += WIDE
    _narrow(weights, values, done, out)


@strict
def _weigh_two(weights: FloatArray, others: FloatArray, values: int, out: FloatArray, other: FloatArray) -> None:
    width, into, beside = len(out), out.ctypes.data, other.ctypes.data
    done = 0
    while done + WIDE <= width:
        place = BYTES * done
        _wide_pair(weights, others, values + place, BYTES * width, into + place, beside + place)
        done += WIDE
    _narrow(weights, values, done, out)
    _narrow(others, values, done, other)


@strict
def _narrow(weights: FloatArray, values: int, done: int, out: FloatArray) -> None:
    """The numbers of a head from `done` on, a vector at a time and then one by one."""
    width, into = len(out), out.ctypes.data
    while done + LANES <= width:
        a = load(into + BYTES * done)
        for i in range(len(weights)):
            a = fuse(spread(weights[i]), load(values + BYTES * (i * width + done)), a)
        store(into + BYTES * done, a)
        done += LANES
    rest = matrix(values, len(weights), width)
    for k in range(done, width):
        for i in range(len(weights)):
            out[k] += weights[i] * rest[i, k]


@strict
def _wide(weights: FloatArray, values: int, step: int, out: int) -> None:
    v = BYTES * LANES
    a, b, c, d = load(out), load(out + v), load(out + 2 * v), load(out + 3 * v)
    for i in range(len(weights)):
        p, at = spread(weights[i]), values + i * step
        a, b = fuse(p, load(at), a), fuse(p, load(at + v), b)
        c, d = fuse(p, load(at + 2 * v), c), fuse(p, load(at + 3 * v), d)
    store(out, a)
    store(out + v, b)
    store(out + 2 * v, c)
    store(out + 3 * v, d)


@strict
def _wide_pair(weights: FloatArray, others: FloatArray, values: int, step: int, out: int, other: int) -> None:
    v = BYTES * LANES
    a, b, c, d = load(out), load(out + v), load(out + 2 * v), load(out + 3 * v)
    e, f, g, h = load(other), load(other + v), load(other + 2 * v), load(other + 3 * v)
    for i in range(len(weights)):
        p, q, at = spread(weights[i]), spread(others[i]), values + i * step
        w, x, y, z = load(at), load(at + v), load(at + 2 * v), load(at + 3 * v)
        a, b, c, d = fuse(p, w, a), fuse(p, x, b), fuse(p, y, c), fuse(p, z, d)
        e, f, g, h = fuse(q, w, e), fuse(q, x, f), fuse(q, y, g), fuse(q, z, h)
    store(out, a)
    store(out + v, b)
    store(out + 2 * v, c)
    store(out + 3 * v, d)
    store(other, e)
    store(other + v, f)
    store(other + 2 * v, g)
    store(other + 3 * v, h)
