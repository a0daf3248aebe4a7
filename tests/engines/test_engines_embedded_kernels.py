"""The compiled arithmetic equals torch's, and a number never depends on what is computed beside it: bit for bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.engines.embedded.compiled import loop
from harness_adapters.engines.embedded.kernels import exponential, score, soften, swiglu, weigh
from harness_adapters.engines.embedded.products import WIDENED_COLUMNS, project, project_halves
from harness_adapters.engines.embedded.team import claim, done, new_board, wait


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


WIDTHS = (1, 4, 7, 8, 16, 31, 64, 97)


def bf16(*shape: int, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """Random bf16 numbers, and the same as fp32."""
    halves = torch.from_numpy(random(*shape, seed=seed)).bfloat16()
    return halves, halves.float().numpy()


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 140), st.integers(1, 40), st.sampled_from(WIDTHS), st.booleans(), st.data())
def test_a_product_is_the_same_bits_in_any_company_and_with_weights_stored_either_way(
    rows: int, columns: int, width: int, add: bool, data: st.DataObject
) -> None:
    halves, weight = bf16(columns, width, seed=1)
    x, out, wide = random(rows, width), random(rows, columns, seed=2), np.empty(WIDENED_COLUMNS * width, np.float32)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64) + (out if add else 0)
    whole, stored = out.copy(), out.copy()
    project(x, weight.ctypes.data, width, 0, rows, 0, columns, whole, 0, add)
    np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-4)
    project_halves(x, halves.data_ptr(), width, 0, rows, 0, columns, stored, 0, add, wide)
    assert stored.tobytes() == whole.tobytes()
    first = data.draw(st.integers(0, columns - 1))
    last = data.draw(st.integers(first + 1, columns))
    row = data.draw(st.integers(0, rows - 1))
    until = data.draw(st.integers(row + 1, min(rows, row + 6)))
    for half in (False, True):
        part = out.copy()
        if half:
            project_halves(x, halves.data_ptr(), width, row, until, first, last, part, first, add, wide)
        else:
            project(x, weight.ctypes.data, width, row, until, first, last, part, first, add)
        assert part[row:until, first:last].tobytes() == whole[row:until, first:last].tobytes()
        part[row:until, first:last] = out[row:until, first:last]
        assert part.tobytes() == out.tobytes(), "wrote outside its rows and columns"


def attend(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, visible: list[int], cuts: list[int]
) -> np.ndarray:
    """Attention of queries that see the first `visible` positions each, the context in parts that begin at `cuts`."""
    count = max(visible)
    scores, out = np.zeros((len(queries), count), dtype=np.float32), np.zeros_like(queries)
    parts = list(zip([0, *cuts], [*cuts, count], strict=True))
    for first, last in parts:
        score(queries, keys[first:].ctypes.data, last - first, np.float32(0.3), scores, first)
    totals = [soften(row[:seen]) for row, seen in zip(scores, visible, strict=True)]
    for first, last in parts:
        weigh(scores, first, values[first:].ctypes.data, last - first, np.array(visible), out)
    result: np.ndarray = out / np.array(totals, dtype=np.float32)[:, None]
    return result


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 300), st.sampled_from((4, 12, 64, 80, 128)), st.data())
def test_attention_is_the_same_bits_however_the_context_is_cut_and_whoever_attends_beside(
    group: int, count: int, width: int, data: st.DataObject
) -> None:
    queries, keys, values = random(group, width), random(count, width, seed=1), random(count, width, seed=2)
    visible = [data.draw(st.integers(max(1, count - 5), count)) for _ in range(group)]
    cut = data.draw(st.integers(0, max(visible)))
    whole = attend(queries, keys, values, visible, [])
    assert attend(queries, keys, values, visible, [cut]).tobytes() == whole.tobytes()
    for query, seen in enumerate(visible):
        weights = torch.softmax(torch.from_numpy(keys[:seen] @ queries[query] * np.float32(0.3)).double(), -1)
        expected = (weights @ torch.from_numpy(values[:seen]).double()).numpy()
        np.testing.assert_allclose(whole[query], expected, rtol=1e-4, atol=1e-5)
        alone = attend(queries[query : query + 1], keys, values, [seen], [min(cut, seen)])
        assert alone.tobytes() == whole[query : query + 1].tobytes()


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


def test_a_score_that_is_not_a_number_makes_all_of_its_row_none() -> None:
    for value in (np.nan, -np.nan, np.inf):
        scores = random(20)
        scores[7] = value
        soften(scores)
        assert np.isnan(scores[7])


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
