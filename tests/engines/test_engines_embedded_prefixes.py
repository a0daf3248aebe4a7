"""Prefix reuse: what was computed once is not computed again, is right, is bounded, and goes with its adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engines_embedded_samples import Folders, complete, running, together, tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.engines.embedded import Generation
from harness_adapters.engines.embedded.kv import KVShape, Segment
from harness_adapters.engines.embedded.prefix_cache import LONG, PrefixCache, path_of
from harness_adapters.records import BASE_POLICY
from harness_adapters.testing.tiny_models import save_random_adapter, save_tiny_llama

SHAPE = KVShape(layers=1, kv_heads=1, head_dim=1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    root = tmp_path_factory.mktemp("prefixes")
    base = save_tiny_llama(root / "base")
    return Folders(base, {"a": save_random_adapter(base, root / "a", seed=1)})


def test_sessions_started_at_once_compute_their_common_prefix_once(folders: Folders) -> None:
    prefix = tokens(1, 700)
    asks = [(BASE_POLICY, Generation((*prefix, 90 - i, i), 4, seed=i)) for i in range(8)]
    with running(folders, max_batch=8) as engine:
        answers = together(engine, asks)
    assert sorted(answer.cached_tokens for answer in answers) == [0] + [len(prefix)] * 7


def test_a_sessions_next_request_computes_only_what_is_new(folders: Folders) -> None:
    with running(folders) as engine:
        first = Generation(tokens(2, 400), 6, seed=1)
        answer = complete(engine, "a", first)
        second = Generation(first.prompt + answer.token_ids + tokens(3, 20), 6, seed=1)
        again = complete(engine, "a", second)
        third = Generation(second.prompt[:410] + tokens(4, 50), 6, seed=1)
        branch = complete(engine, "a", third)
    # The last sampled token was never fed back: its keys and values are not known.
    assert again.cached_tokens == len(first.prompt) + len(answer.token_ids) - 1
    assert branch.cached_tokens >= 410


def test_prefixes_are_not_shared_between_adapters(folders: Folders) -> None:
    ask = Generation(tokens(5, 300), 2, seed=1)
    with running(folders) as engine:
        complete(engine, BASE_POLICY, ask)
        assert complete(engine, "a", ask).cached_tokens == 0
        assert complete(engine, "a", ask).cached_tokens == len(ask.prompt) - 1


def test_prefixes_go_with_their_adapter(folders: Folders, tmp_path: Path) -> None:
    """The same name with other weights finds nothing of its predecessor."""
    ask = Generation(tokens(6, 300), 4, seed=1)
    other = save_random_adapter(folders.base, tmp_path / "other", seed=9)
    with running(folders) as engine:
        before = complete(engine, "a", ask)
        engine.unload_adapter("a")
        engine.load_adapter("a", other)
        after = complete(engine, "a", ask)
    assert after.cached_tokens == 0
    assert after.logprobs != before.logprobs


def test_without_a_budget_nothing_is_reused(folders: Folders) -> None:
    ask = Generation(tokens(7, 300), 2, seed=1)
    with running(folders, prefix_cache_mb=0) as engine:
        assert [complete(engine, BASE_POLICY, ask).cached_tokens for _ in range(2)] == [0, 0]


def computed_for(run: tuple[int, ...]) -> Segment:
    """Keys that say which token stands where, values that say at which position."""
    k = torch.tensor(run, dtype=torch.float32).view(1, 1, -1, 1)
    return Segment(k, torch.arange(len(run), dtype=torch.float32).view(1, 1, -1, 1))


def stretched(run: list[int], factor: int) -> tuple[int, ...]:
    return tuple(token for token in run for _ in range(factor))


runs = st.builds(stretched, st.lists(st.integers(0, 2), min_size=1, max_size=6), st.sampled_from((1, 40, LONG)))
steps = st.lists(st.tuples(st.sampled_from(("insert", "match", "release")), runs, st.integers(0, 1)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(steps=steps, budget_tokens=st.sampled_from((0, 100, 1200, 10_000)))
def test_the_cache_returns_what_was_stored_and_keeps_its_bound(
    steps: list[tuple[str, tuple[int, ...], int]], budget_tokens: int
) -> None:
    cache = PrefixCache(SHAPE, budget_tokens * SHAPE.token_bytes)
    cache.open(0)
    cache.open(1)
    pinned = []
    for action, run, key in steps:
        if action == "insert":
            whole = computed_for(run)
            cache.insert(key, run, whole.copy)
        elif action == "match":
            expected = cache.matched(key, run)
            match = cache.match(key, run)
            parts = (*path_of(match.node), *match.pieces)
            assert match.length == expected
            assert [t for part in parts for t in part.k.flatten().tolist()] == list(run[:expected])
            assert [t for part in parts for t in part.v.flatten().tolist()] == list(range(expected))
            pinned.append((match.node, run[: match.referred]))
        elif pinned:
            cache.release(pinned.pop()[0])
        assert 0 <= cache.bytes <= budget_tokens * SHAPE.token_bytes
        for node, prefix in pinned:
            assert [t for part in path_of(node) for t in part.k.flatten().tolist()] == list(prefix)
    for key in (0, 1):
        cache.drop(key)
    assert cache.bytes == 0
