"""The engine's thread: cancellation, limits, exclusive turns, failures that stay where they happened."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines_embedded_samples import Folders, complete, running, together, tokens, worst
from safetensors.torch import load_file, save_file

from harness_adapters.engines.embedded import EmbeddedEngine, Generation
from harness_adapters.engines.embedded.batcher import Batcher
from harness_adapters.engines.embedded.lean import LeanBackend
from harness_adapters.engines.embedded.prefix_cache import PrefixCache
from harness_adapters.engines.embedded.sequence import Sequence
from harness_adapters.engines.embedded.tables import Forward, Share
from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY
from harness_adapters.testing.tiny_models import save_random_adapter, save_tiny_llama

SHORT = Generation(tokens(1, 10), 4, seed=1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("batching")
    base = save_tiny_llama(root / "base")
    return Folders(base, {"a": save_random_adapter(base, root / "a", seed=1)})


@pytest.fixture
def engine(folders: Folders) -> Iterator[EmbeddedEngine]:
    with running(folders, max_batch=2) as running_engine:
        yield running_engine


def test_a_cancelled_request_makes_room_at_once(engine: EmbeddedEngine) -> None:
    endless = [engine.submit(BASE_POLICY, Generation(tokens(i, 10), 900, seed=i)) for i in range(2)]
    waiting = engine.submit(BASE_POLICY, SHORT)
    for future in endless:
        assert future.cancel()
    assert len(waiting.result(timeout=30).token_ids) == 4


def test_a_prompt_that_cannot_be_answered_is_refused_and_a_long_answer_is_cut(engine: EmbeddedEngine) -> None:
    for length in (0, engine.positions, engine.positions + 1):
        with pytest.raises(EngineError, match="prompt"):
            engine.submit(BASE_POLICY, Generation(tokens(1, length), 1))
    answer = complete(engine, BASE_POLICY, Generation(tokens(1, engine.positions - 3), 50, seed=1))
    assert (len(answer.token_ids), answer.finish_reason) == (3, "length")


def test_an_adapter_without_finite_values_spoils_nobody_elses_answers(folders: Folders, tmp_path: Path) -> None:
    poison = save_random_adapter(folders.base, tmp_path / "poison", seed=2)
    file = poison / "adapter_model.safetensors"
    huge = {
        name: value * (1e30 if "k_proj" in name or "v_proj" in name else 1) for name, value in load_file(file).items()
    }
    save_file(huge, file)
    with running(folders, max_batch=2) as engine:
        engine.load_adapter("poison", poison)
        before = [complete(engine, BASE_POLICY, Generation(tokens(i, 20 * i), 20, seed=i)) for i in range(1, 5)]
        for future in [engine.submit("poison", Generation(tokens(9, 100), 5)) for _ in range(4)]:
            with pytest.raises(EngineError, match="not finite"):
                future.result(timeout=30)
        after = together(engine, [(BASE_POLICY, Generation(tokens(i, 20 * i), 20, seed=i)) for i in range(1, 5)])
        assert [answer.token_ids for answer in after] == [answer.token_ids for answer in before]


def test_nothing_is_computed_while_somebody_holds_the_engine(engine: EmbeddedEngine) -> None:
    with engine.exclusive():
        future = engine.submit(BASE_POLICY, SHORT)
        time.sleep(0.2)
        assert not future.done()
    assert len(future.result(timeout=30).token_ids) == 4


def test_exclusive_turns_never_overlap_and_interrupt_a_long_answer(engine: EmbeddedEngine) -> None:
    long = engine.submit(BASE_POLICY, Generation(tokens(2, 10), 800, seed=2))
    holders: list[int] = []
    inside = 0

    def take_turn(number: int) -> None:
        nonlocal inside
        with engine.exclusive():
            inside += 1
            assert inside == 1
            holders.append(number)
            time.sleep(0.01)
            inside -= 1

    threads = [threading.Thread(target=take_turn, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(holders) == [0, 1, 2, 3]
    assert not long.done()
    assert len(long.result(timeout=60).token_ids) == 800


def test_an_exclusive_turn_that_fails_lets_the_engine_go_on(engine: EmbeddedEngine) -> None:
    with pytest.raises(RuntimeError, match="trainer"), engine.exclusive():
        raise RuntimeError("trainer")
    complete(engine, BASE_POLICY, SHORT)


def test_a_request_in_flight_keeps_an_adapter_that_is_unloaded(engine: EmbeddedEngine, folders: Folders) -> None:
    ask = Generation(tokens(3, 10), 300, seed=4)
    expected = complete(engine, "a", ask)
    flying = engine.submit("a", ask)
    engine.unload_adapter("a")
    with pytest.raises(KeyError):
        engine.submit("a", ask)
    assert worst(flying.result(timeout=60).logprobs, expected.logprobs) < 1e-4


def test_adapters_load_and_unload_while_requests_run(engine: EmbeddedEngine, folders: Folders) -> None:
    long = engine.submit("a", Generation(tokens(4, 10), 500, seed=4))
    for number in range(5):
        engine.load_adapter(f"v{number}", folders.adapters["a"])
        complete(engine, f"v{number}", SHORT)
        engine.unload_adapter(f"v{number}")
    assert engine.models() == [BASE_POLICY, "a"]
    assert len(long.result(timeout=60).token_ids) == 500


def test_a_step_that_fails_fails_its_requests_and_no_others(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Forward.__call__

    def fail_on_poison(self: Forward, shares: list[Share]) -> object:
        if any(96 in share.tokens for share in shares):
            raise RuntimeError("poison")
        return original(self, shares)

    monkeypatch.setattr(Forward, "__call__", fail_on_poison)
    bad = engine.submit(BASE_POLICY, Generation((96, 96), 4, seed=1))
    with pytest.raises(EngineError, match="poison"):
        bad.result(timeout=30)
    clean = tuple(token for token in SHORT.prompt if token != 96)
    assert complete(engine, BASE_POLICY, Generation(clean, 1, seed=1)).token_ids
    assert engine.healthy


@pytest.mark.parametrize("beyond", [-1, 97, 1 << 40])
def test_a_token_outside_the_vocabulary_is_refused(engine: EmbeddedEngine, beyond: int) -> None:
    with pytest.raises(EngineError, match="outside 0 to 96"):
        engine.submit(BASE_POLICY, Generation((3, beyond, 4), 2, seed=1))
    assert complete(engine, BASE_POLICY, SHORT).token_ids


def test_a_request_that_fails_to_start_is_answered(engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PrefixCache, "match", lambda *_: (_ for _ in ()).throw(MemoryError("no room")))
        with pytest.raises(EngineError, match="no room"):
            complete(engine, BASE_POLICY, SHORT)
    assert complete(engine, BASE_POLICY, SHORT).token_ids


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_thread_fails_health_and_every_request(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(folders) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(Batcher, "_enter_step", lambda _: (_ for _ in ()).throw(SystemExit("gone")))
            future = engine.submit(BASE_POLICY, SHORT)
            with pytest.raises(EngineError):
                future.result(timeout=30)
        for _ in range(100):
            if not engine.healthy:
                break
            time.sleep(0.01)
        assert not engine.healthy
        with pytest.raises(EngineError, match="not running"):
            engine.submit(BASE_POLICY, SHORT)
        with engine.exclusive():
            pass


def test_stopping_answers_what_is_in_flight_and_the_engine_starts_again(folders: Folders) -> None:
    with running(folders) as engine:
        future = engine.submit(BASE_POLICY, Generation(tokens(5, 10), 900, seed=1))
        engine.stop()
        with pytest.raises(EngineError):
            future.result(timeout=30)
        engine.start()
        assert complete(engine, BASE_POLICY, SHORT).token_ids


def test_nothing_is_held_after_requests_end(engine: EmbeddedEngine) -> None:
    """Slots and pins come back, whether a request finished, was cancelled in its prompt or while decoding."""
    prefix = tokens(6, 600)
    futures = [engine.submit(BASE_POLICY, Generation((*prefix, i), 40, seed=i)) for i in range(6)]
    futures[0].cancel()
    futures[3].cancel()
    for future in futures:
        if not future.cancelled():
            future.result(timeout=60)
    together(engine, [(BASE_POLICY, SHORT)] * 3)
    backend = engine._backend
    assert isinstance(backend, LeanBackend)
    with engine.exclusive():
        assert not engine._batcher._running
        assert sorted(backend.pool._free) == [0, 1]
        open_nodes = list(backend.cache._roots.values())
        while open_nodes:
            node = open_nodes.pop()
            assert node.pins == 0
            open_nodes += node.children.values()


def test_requests_never_outnumber_the_batch(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = Sequence.begin

    with running(folders, max_batch=3) as engine:

        def begin(self: Sequence, *arguments: object) -> None:
            seen.append(len(engine._batcher._running))
            original(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Sequence, "begin", begin)
        together(engine, [(BASE_POLICY, Generation(tokens(i, 5 + i), 3, seed=i)) for i in range(10)])
    assert max(seen) == 3


def test_a_port_that_is_taken_is_said_so(engine: EmbeddedEngine, folders: Folders) -> None:
    async def run() -> None:
        first = EmbeddedEngine(folders.base, max_batch=1, prefix_cache_mb=0)
        async with first.serve() as url:
            port = int(url.rsplit(":", 1)[1])
            second = EmbeddedEngine(folders.base, max_batch=1, prefix_cache_mb=0)
            with pytest.raises(EngineError, match=f"{port}.*another port"):
                async with second.serve(port=port):
                    pass
            assert not second.healthy

    asyncio.run(run())
