"""Products of few rows: the same numbers whoever computes which half, and no waiting for a thread that is not there."""

from __future__ import annotations

import threading

import pytest
import torch

from harness_adapters.engines.embedded.blas import FEW_ROWS, WORTH_HALVING, Partner, dense


@pytest.mark.parametrize("rows", [1, 2, 7, 16, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("columns", [1, 2, 4097, 16_384])
def test_a_product_is_the_plain_one_for_any_number_of_rows_and_columns(rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(rows * columns)
    x, weight = torch.randn(rows, 288, generator=generator), torch.randn(288, columns, generator=generator)
    torch.testing.assert_close(dense(x, weight), x @ weight, rtol=1e-5, atol=1e-4)
    assert 16 * 288 * 16_384 > WORTH_HALVING > 288 * 4097


def test_work_is_done_once_whoever_gets_to_it_first() -> None:
    partner = Partner()
    done = [0] * 500
    for place in range(len(done)):

        def work(place: int = place) -> None:
            done[place] += 1

        partner.ask(work).finish()
        assert done[place] == 1


def test_a_partner_that_is_held_up_holds_up_nobody() -> None:
    partner = Partner()
    held, begun = threading.Event(), threading.Event()

    def hold_up() -> None:
        begun.set()
        held.wait(30)

    partner.ask(hold_up)
    assert begun.wait(30)
    done: list[str] = []
    partner.ask(lambda: done.append(threading.current_thread().name)).finish()
    assert done == [threading.current_thread().name]
    held.set()


def test_what_the_partner_meets_is_raised_where_it_was_asked_and_the_partner_goes_on() -> None:
    partner = Partner()

    def fail() -> None:
        raise MemoryError("no room for the half")

    for _ in range(20):
        with pytest.raises(MemoryError, match="no room"):
            partner.ask(fail).finish()
    done = threading.Event()
    errand = partner.ask(done.set)
    assert done.wait(30)
    errand.finish()
