"""Products in shared pieces: the same numbers whoever computes which piece, and no waiting for a thread held up."""

from __future__ import annotations

import threading

import pytest
import torch

from harness_adapters.engines.embedded.blas import WHOLE, WORTH_SHARING, Errand, Helpers, dense, share


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 65, 200])
@pytest.mark.parametrize("columns", [1, 2, 4097, 16_384])
def test_products_are_the_plain_ones_for_any_number_of_rows_and_columns(rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(rows * columns)
    x = torch.randn(rows, 288, generator=generator)
    weights = [torch.randn(wide, 288, generator=generator) for wide in (columns, 3)]
    product = dense(x, *weights)
    torch.testing.assert_close(product, x @ torch.cat(weights).t(), rtol=1e-5, atol=1e-4)
    assert all(torch.equal(dense(x, *weights), product) for _ in range(5)), "depends on who was faster"
    assert 16 * 288 * 16_384 > WORTH_SHARING > 288 * 4097


@pytest.mark.parametrize("width", [32, 64, 100, 576, 1536])
@pytest.mark.parametrize("columns", [1, 8, 31, 32, 33, 65, 192, 576])
def test_a_row_has_the_same_bits_in_any_company_of_whole_blocks(width: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(width * columns)
    x, weight = torch.randn(256, width, generator=generator), torch.randn(columns, width, generator=generator)
    whole = dense(x, weight)
    for rows in range(WHOLE, 256, WHOLE):
        assert torch.equal(dense(x[:rows], weight), whole[:rows])
        assert torch.equal(dense(x[-rows:], weight), whole[-rows:])


def test_work_is_done_once_whoever_gets_to_it_first() -> None:
    helper = Helpers(1)
    done = [0] * 500
    for place in range(len(done)):

        def work(place: int = place) -> None:
            done[place] += 1

        errand = Errand(work)
        helper.ask(errand)
        errand.wait()
        assert done[place] == 1


def test_a_helper_that_is_held_up_holds_up_nobody() -> None:
    helper = Helpers(1)
    held, begun = threading.Event(), threading.Event()

    def hold_up() -> None:
        begun.set()
        held.wait(30)

    helper.ask(Errand(hold_up))
    assert begun.wait(30)
    done: list[str] = []
    errand = Errand(lambda: done.append(threading.current_thread().name))
    helper.ask(errand)
    errand.wait()
    assert done == [threading.current_thread().name]
    held.set()


def test_what_the_helper_meets_is_raised_where_it_was_asked_and_the_helper_goes_on() -> None:
    helper = Helpers(1)

    def fail() -> None:
        raise MemoryError("no room for the half")

    for _ in range(20):
        failing = Errand(fail)
        helper.ask(failing)
        failing.wait()
        with pytest.raises(MemoryError, match="no room"):
            failing.check()
    done = threading.Event()
    errand = Errand(done.set)
    helper.ask(errand)
    assert done.wait(30)
    errand.wait()
    errand.check()


def test_all_pieces_are_done_when_sharing_returns_and_an_error_waits_for_the_others() -> None:
    done: list[int] = []

    def piece(number: int) -> None:
        if number == 0:
            raise MemoryError("the first piece")
        done.append(number)

    with pytest.raises(MemoryError, match="the first piece"):
        share([lambda number=number: piece(number) for number in range(50)])  # type: ignore[misc]
    assert sorted(done) == list(range(1, 50))
