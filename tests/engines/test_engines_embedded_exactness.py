"""The embedded engine computes what transformers and PEFT compute: any batch, any prefix, any adapter, to 1e-4 nats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engines_embedded_samples import TOLERANCE, Folders, Reference, complete, running, together, tokens, worst
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness_adapters.engines.embedded import Answer, EmbeddedEngine, Generation
from harness_adapters.records import BASE_POLICY
from harness_adapters.testing.tiny_models import save_random_adapter, save_tiny_llama

NAMES = (BASE_POLICY, "a", "b")
PREFIXES = {length: tokens(length, length) for length in (0, 5, 70, 300)}


@pytest.fixture(scope="module", params=[False, True], ids=["fp32", "bf16"])
def folders(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Folders:
    root = tmp_path_factory.mktemp("exact")
    base = save_tiny_llama(root / "base", halves=request.param)
    return Folders(base, {name: save_random_adapter(base, root / name, seed=i) for i, name in enumerate("ab", 1)})


@pytest.fixture(scope="module")
def reference(folders: Folders) -> Reference:
    return Reference(folders)


@pytest.fixture(scope="module")
def crowded(folders: Folders) -> Any:
    """One engine for many examples, with a prefix cache so small that it evicts all the time."""
    with running(folders, max_batch=3, prefix_cache_mb=1) as engine:
        yield engine


def assert_exact(reference: Reference, name: str, request: Generation, answer: Answer) -> None:
    start = len(request.prompt)
    expected = reference.logprobs(name, request.prompt + answer.token_ids, request.temperature)[start - 1 :]
    assert worst(answer.logprobs, expected) < TOLERANCE
    if answer.prompt_logprobs is not None:
        assert answer.prompt_logprobs[0] is None
        scores = [score for score in answer.prompt_logprobs[1:] if score is not None]
        if start > 1:
            assert worst(scores, reference.logprobs(name, request.prompt)) < TOLERANCE


requests = st.builds(
    Generation,
    prompt=st.builds(
        lambda prefix, seed, length: PREFIXES[prefix] + tokens(100 * seed + length, length),
        st.sampled_from(sorted(PREFIXES)),
        st.integers(0, 3),
        st.integers(1, 30),
    ),
    max_tokens=st.integers(1, 8),
    temperature=st.sampled_from((0.5, 1.0, 1.7)),
    seed=st.integers(0, 5),
    prompt_logprobs=st.booleans(),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asks=st.lists(st.tuples(st.sampled_from(NAMES), requests), min_size=1, max_size=7))
def test_any_batch_equals_plain_forwards(
    asks: list[tuple[str, Generation]], crowded: EmbeddedEngine, reference: Reference
) -> None:
    for (name, request), answer in zip(asks, together(crowded, asks), strict=True):
        assert_exact(reference, name, request, answer)


@pytest.fixture(scope="module")
def alone(folders: Folders) -> Any:
    """An engine that keeps nothing; requests are put to it one at a time."""
    with running(folders, max_batch=1, prefix_cache_mb=0) as engine:
        yield engine


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asks=st.lists(st.tuples(st.sampled_from(NAMES), requests), min_size=1, max_size=7))
def test_an_answer_has_the_same_bits_in_any_company_and_with_any_prefix_kept(
    asks: list[tuple[str, Generation]], folders: Folders, alone: EmbeddedEngine
) -> None:
    """Prompts that go on from a kept answer included: a token's keys are the same, drawn or read."""
    with running(folders, max_batch=3, prefix_cache_mb=1) as engine:
        answers = together(engine, asks)
        further = [
            (name, replace(request, prompt=request.prompt + answer.token_ids + tokens(number, 3)))
            for number, ((name, request), answer) in enumerate(zip(asks, answers, strict=True))
        ]
        answers += together(engine, asks + further)
    for ask, answer in zip([*asks, *asks, *further], answers, strict=True):
        single = complete(alone, *ask)
        assert answer.token_ids == single.token_ids
        assert answer.logprobs == single.logprobs
        assert answer.prompt_logprobs == single.prompt_logprobs


@pytest.mark.parametrize(
    ("model", "adapter"),
    [
        ({"tie_word_embeddings": True}, {}),
        ({"tie_word_embeddings": True, "halves": True}, {}),
        ({"num_attention_heads": 8, "head_dim": 12, "num_key_value_heads": 8}, {}),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}}, {}),
        ({}, {"use_rslora": True, "lora_alpha": 3.0}),
        ({}, {"targets": ("q_proj", "v_proj", "down_proj")}),
        ({}, {"rank": 1}),
    ],
)
def test_kinds_of_models_and_adapters_equal_peft(
    model: dict[str, Any], adapter: dict[str, Any], tmp_path: Path
) -> None:
    base = save_tiny_llama(tmp_path / "base", **model)
    folders = Folders(base, {"a": save_random_adapter(base, tmp_path / "a", seed=3, **adapter)})
    reference = Reference(folders)
    ask = Generation(tokens(1, 20), 6, seed=1, prompt_logprobs=True)
    with running(folders) as engine:
        for name, answer in zip((BASE_POLICY, "a"), together(engine, [(BASE_POLICY, ask), ("a", ask)]), strict=True):
            assert_exact(reference, name, ask, answer)


def test_an_answer_longer_than_a_slot_stays_exact(folders: Folders, reference: Reference) -> None:
    """600 tokens beside a short one: the long sequence outgrows its slot, and its session goes on from the cache."""
    long, short = Generation(tokens(7, 280), 600, seed=1), Generation(tokens(8, 9), 30, seed=2)
    with running(folders) as engine:
        answers = together(engine, [("a", long), ("b", short)])
        for (name, request), answer in zip((("a", long), ("b", short)), answers, strict=True):
            assert_exact(reference, name, request, answer)
        follow = Generation(long.prompt + answers[0].token_ids + tokens(9, 5), 8, seed=3)
        answer = complete(engine, "a", follow)
        assert answer.cached_tokens == len(long.prompt) + len(answers[0].token_ids) - 1
        assert_exact(reference, "a", follow, answer)


def test_one_seed_gives_the_same_tokens_in_any_company(folders: Folders) -> None:
    asks = [(name, Generation(tokens(i, 10 + i), 12, 0.9, seed=i)) for i, name in enumerate(NAMES * 2)]
    with running(folders, max_batch=6) as engine:
        alone = [complete(engine, *ask) for ask in asks]
    with running(folders, max_batch=6, prefix_cache_mb=0) as engine:
        crowd = together(engine, asks)
    assert [answer.token_ids for answer in alone] == [answer.token_ids for answer in crowd]
