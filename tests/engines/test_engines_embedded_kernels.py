"""The compiled arithmetic equals torch's, and a number never depends on what is computed beside it: bit for bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.engines.embedded.compiled import loop
from harness_adapters.engines.embedded.kernels import exponential, project, score, soften, swiglu, weigh
from harness_adapters.engines.embedded.team import claim, done, new_board, wait


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 13), st.integers(1, 40), st.sampled_from((1, 4, 7, 8, 31, 64, 97)), st.booleans(), st.data())
def test_a_product_is_the_same_bits_in_any_company(
    rows: int, columns: int, width: int, add: bool, data: st.DataObject
) -> None:
    x, weight, out = random(rows, width), random(columns, width, seed=1), random(rows, columns, seed=2)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64) + (out if add else 0)
    whole = out.copy()
    project(x, weight.ctypes.data, width, 0, rows, 0, columns, whole, 0, add)
    np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-4)
    row = data.draw(st.integers(0, rows - 1))
    first = data.draw(st.integers(0, columns - 1))
    last = data.draw(st.integers(first + 1, columns))
    part = out.copy()
    project(x, weight.ctypes.data, width, row, row + 1, first, last, part, first, add)
    assert part[row, first:last].tobytes() == whole[row, first:last].tobytes()
    part[row, first:last] = out[row, first:last]
    assert part.tobytes() == out.tobytes(), "wrote outside its rows and columns"


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 300), st.sampled_from((4, 12, 64, 80, 128)), st.data())
def test_attention_is_the_same_bits_however_the_context_is_cut(
    group: int, count: int, width: int, data: st.DataObject
) -> None:
    queries, keys, values = random(group, width), random(count, width, seed=1), random(count, width, seed=2)
    cut = data.draw(st.integers(0, count))

    def attend(cuts: list[int]) -> np.ndarray:
        scores, tops = np.zeros((group, count), dtype=np.float32), np.full(group, -np.inf, dtype=np.float32)
        out = np.zeros((group, width), dtype=np.float32)
        for first, last in zip([0, *cuts], [*cuts, count], strict=True):
            score(queries, keys[first:].ctypes.data, last - first, np.float32(0.3), scores, first, tops)
        totals = [soften(scores[g], tops[g]) for g in range(group)]
        for first, last in zip([0, *cuts], [*cuts, count], strict=True):
            weigh(scores, first, values[first:].ctypes.data, last - first, out)
        return out / np.array(totals, dtype=np.float32)[:, None]

    whole = attend([])
    weights = torch.softmax(torch.from_numpy(queries @ keys.T * np.float32(0.3)).double(), -1)
    np.testing.assert_allclose(whole, weights @ torch.from_numpy(values).double(), rtol=1e-4, atol=1e-5)
    assert attend([cut]).tobytes() == whole.tobytes()


def test_the_exponential_is_right_over_its_range_and_keeps_what_is_not_a_number() -> None:
    for x in np.linspace(-86.9, 86.9, 2001, dtype=np.float32):
        assert exponential(x) == pytest.approx(float(np.exp(np.float64(x))), rel=3e-7)
    assert exponential(np.float32(0)) == 1
    assert exponential(np.float32(-np.inf)) < 1e-37
    assert np.isnan(exponential(np.float32(np.nan)))
    gate, up = random(33), random(33, seed=1)
    expected = torch.nn.functional.silu(torch.from_numpy(gate)) * torch.from_numpy(up)
    swiglu(gate, up)
    torch.testing.assert_close(torch.from_numpy(gate), expected, rtol=1e-5, atol=1e-6)


@loop
def take_part(board: np.ndarray, items: np.ndarray, rounds: int) -> None:
    """Each round adds to each item what the round before left in its neighbour."""
    for number in range(rounds):
        item = claim(board, number, len(items))
        while item >= 0:
            items[item, number + 1] = items[item - 1, number] + items[item, number]
            done(board, number)
            item = claim(board, number, len(items))
        wait(board, number, len(items))


def test_a_phase_begins_when_the_last_is_whole_whoever_comes_late() -> None:
    rounds, expected = 200, np.zeros((7, 201), dtype=np.int64)
    expected[:, 0] = range(7)
    items = expected.copy()
    for number in range(rounds):
        expected[:, number + 1] = np.roll(expected[:, number], 1) + expected[:, number]
    board = new_board(rounds)
    take_part(new_board(1), items.copy(), 1)
    late = threading.Event()
    threads = [threading.Thread(target=take_part, args=(board, items, rounds)) for _ in range(3)]
    latecomer = threading.Thread(target=lambda: (late.wait(30), take_part(board, items, rounds)))
    for thread in (*threads, latecomer):
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert (items == expected).all()
    late.set()
    latecomer.join(timeout=60)
    assert (items == expected).all()
