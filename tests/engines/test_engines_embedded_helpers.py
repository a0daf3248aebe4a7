"""Work shared with helpers: done once, whoever gets to it first, and no waiting for a thread held up."""

from __future__ import annotations

import threading

import pytest

from harness_adapters.engines.embedded.helpers import Errand, Helpers, share


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
