"""What is held is counted, and growth is told from noise."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.testing.leaks import growth, holdings, whole_subtree


@contextlib.contextmanager
def a_descriptor() -> Iterator[None]:
    with open("/dev/null") as _:
        yield


@contextlib.contextmanager
def a_listener() -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)):
        yield


@contextlib.contextmanager
def a_process() -> Iterator[None]:
    with subprocess.Popen(["sleep", "60"]) as child:
        yield
        child.kill()


@contextlib.contextmanager
def a_process_that_nobody_reaps() -> Iterator[None]:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        yield


@contextlib.contextmanager
def a_process_whose_parent_is_gone() -> Iterator[None]:
    with whole_subtree():
        said = subprocess.run(
            ["sh", "-c", "sleep 60 > /dev/null 2>&1 & echo $!"], capture_output=True, check=True
        ).stdout
        yield
        os.kill(int(said), 9)
        os.waitpid(int(said), 0)


@contextlib.contextmanager
def a_thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


HELD = {
    "descriptors": [a_descriptor],
    "listeners": [a_listener],
    "processes": [a_process, a_process_that_nobody_reaps, a_process_whose_parent_is_gone],
    "threads": [a_thread],
}


@pytest.mark.parametrize(("name", "hold"), [(name, hold) for name, holds in HELD.items() for hold in holds])
def test_what_is_held_is_counted_under_its_name_alone_while_it_is_held(
    name: str, hold: type[contextlib.AbstractContextManager[None]]
) -> None:
    before = holdings()
    with hold():
        lost = holdings().lost_since(before)
        assert len(lost) == 1
        assert lost[0].startswith(f"{name} were")
    assert holdings().lost_since(before) == []


def test_tasks_and_connections_are_counted() -> None:
    async def scenario() -> None:
        before = holdings()
        waiting = asyncio.create_task(asyncio.sleep(60))
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.sleep(0.05)
        now = holdings()
        assert (now.tasks, now.listeners) == (before.tasks + 1, before.listeners + 1)
        assert now.connections == before.connections + 2, "both ends are in this process"
        waiting.cancel()
        writer.close()
        server.close()

    asyncio.run(scenario())


def test_files_are_counted_in_the_folders_that_are_watched(tmp_path: Path) -> None:
    before = holdings([tmp_path])
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    assert holdings([tmp_path]).lost_since(before) == ["files were 0 and are 2"]


def test_memory_is_counted_while_it_is_held_and_given_back_after() -> None:
    before = holdings().memory
    held = [os.urandom(1 << 10) for _ in range(32 << 10)]
    # Some of it may lie in room that the process had and could not give back.
    assert holdings().memory - before > 3 * (len(held) << 10) // 4
    blocks = holdings().blocks
    held.clear()
    after = holdings()
    assert after.memory - before < 8 << 20
    assert blocks - after.blocks > 30_000


@given(st.floats(-10, 10), st.floats(-1e3, 1e3), st.integers(0, 2**32))
def test_growth_is_the_slope_whatever_a_few_wild_samples_say(slope: float, level: float, seed: int) -> None:
    rng = random.Random(seed)
    samples = [(float(x), level + slope * x) for x in range(0, 300, 10)]
    for place in rng.sample(range(10, 30), 4):
        samples[place] = (samples[place][0], samples[place][1] + rng.choice((-1e6, 1e6)))
    assert growth(samples) == pytest.approx(slope * 190, rel=0.3, abs=1e-6)


def test_what_grows_in_the_warm_up_alone_does_not_count() -> None:
    assert growth([(float(x), float(min(x, 100))) for x in range(0, 301, 10)]) == 0
    assert growth([(float(x), float(min(x, 100))) for x in range(0, 301, 10)], warm_up=0) > 0


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="2 samples"):
        growth([(0, 1), (10, 1), (20, 1)], warm_up=0.5)


def test_the_tokenizer_knows_phrases_but_writes_text_byte_by_byte() -> None:
    from harness_adapters.testing import byte_tokenizer

    phrase = "two words\nand é"
    tokenizer = byte_tokenizer([phrase])
    assert tokenizer.decode([256]) == phrase
    assert len(tokenizer.encode(phrase).ids) == len(phrase.encode())
    assert tokenizer.decode(tokenizer.encode(phrase).ids) == phrase
    assert tokenizer.get_vocab_size() == byte_tokenizer().get_vocab_size() + 1
