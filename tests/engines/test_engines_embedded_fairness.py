"""Nobody waits for a crowd: prompts share a step, adapters take turns at admission."""

from __future__ import annotations

import pytest
from engines_embedded_samples import Folders, complete, running, tokens
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.engines.embedded import Generation
from harness_adapters.engines.embedded.step import prompt_shares
from harness_adapters.records import BASE_POLICY
from harness_adapters.testing.tiny_models import save_random_adapter, save_tiny_llama


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("fair")
    base = save_tiny_llama(root / "base", max_position_embeddings=4096)
    return Folders(base, {"a": save_random_adapter(base, root / "a", seed=1)})


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=12), st.integers(1, 600))
def test_a_steps_tokens_are_all_given_out_and_nobody_with_less_left_gets_less(left: list[int], budget: int) -> None:
    shares = prompt_shares(left, budget)
    assert sum(shares) == min(budget, sum(left))
    assert all(0 <= share <= most for share, most in zip(shares, left, strict=True))
    unfinished = [share for share, most in zip(shares, left, strict=True) if share < most]
    if unfinished:
        assert max(unfinished) - min(unfinished) <= 1
        assert all(
            s >= min(unfinished) - 1 for s, m in zip(shares, left, strict=True) if s == m and m > max(unfinished)
        )


def test_a_short_prompt_is_answered_while_a_long_one_is_filled_in(folders: Folders) -> None:
    with running(folders, max_batch=4, prefix_cache_mb=0) as engine:
        with engine.exclusive():
            long = engine.submit(BASE_POLICY, Generation(tokens(1, 4000), 1, seed=1))
            short = engine.submit(BASE_POLICY, Generation(tokens(2, 20), 1, seed=1))
        short.result(timeout=60)
        assert not long.done()
        long.result(timeout=60)


def test_a_crowd_at_one_adapter_does_not_keep_another_one_waiting(folders: Folders) -> None:
    with running(folders, max_batch=2) as engine:
        with engine.exclusive():
            crowd = [engine.submit(BASE_POLICY, Generation(tokens(i, 10), 200, seed=i)) for i in range(8)]
            late = engine.submit("a", Generation(tokens(9, 10), 5, seed=9))
        late.result(timeout=60)
        assert not any(future.done() for future in crowd)
        for future in crowd:
            future.cancel()
        complete(engine, BASE_POLICY, Generation(tokens(1, 5), 1, seed=1))
