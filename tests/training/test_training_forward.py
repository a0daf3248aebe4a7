"""A packed pass gives the log-probs and the gradients of running each row alone through the plain model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from torch import Tensor
from training_cases import VOCABULARY, adapter_parameters, row, row_sets, session_rows, tiny_model, tiny_trainer
from transformers import Gemma2Config, Gemma2ForCausalLM, GraniteConfig, GraniteForCausalLM

from harness_adapters.config import LoraConfig, TrainerConfig
from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow
from harness_adapters.training import attention, forward
from harness_adapters.training.loss import policy_loss
from harness_adapters.training.trainer import Trainer
from harness_adapters.training.trie import build

KINDS = ("llama", "qwen3")
TEMPERATURE = 0.7


def _plain(model: Any, row: TrainRow, temperature: float) -> Tensor:
    """Log-probs [trained tokens] from the model's own forward on one row alone."""
    tokens = torch.tensor([row.token_ids])
    logs = (model(input_ids=tokens, use_cache=False).logits[0, :-1] / temperature).log_softmax(-1)
    return logs.gather(1, tokens[0, 1:, None])[:, 0][torch.tensor(row.trained[1:])]


def _gradient(trainer: Trainer, loss: Callable[[], Tensor]) -> Tensor:
    """The flat adapter gradient of a loss."""
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss(), list(adapter_parameters(trainer).values()))])


def _loss(logprobs: Tensor, old: Tensor, advantages: Tensor) -> Tensor:
    return policy_loss(logprobs, old, advantages, tokens=100, clip_low=0.2, clip_high=0.2, dual_clip=3.0).loss


def _packed_loss(trainer: Trainer, rows: list[TrainRow], prefix: forward.DetachedPrefix | None = None) -> Tensor:
    trie = build(rows)
    values = forward.term_values(trainer.model, trie, temperature=TEMPERATURE, prefix=prefix).logprobs
    return _loss(values, torch.from_numpy(trie.term_logprobs), torch.from_numpy(trie.term_advantages))


def _separate_loss(trainer: Trainer, rows: list[TrainRow]) -> Tensor:
    parts = []
    for one in rows:
        values = _plain(trainer.model, one, TEMPERATURE)
        old = torch.tensor([old for old, mark in zip(one.logprobs, one.trained, strict=True) if mark])
        parts.append(_loss(values, old, torch.full_like(values, one.advantage)))
    return torch.stack(parts).sum()


@pytest.fixture(scope="module", params=KINDS)
def trainer(request: pytest.FixtureRequest) -> Trainer:
    return tiny_trainer(request.param, trained=True)


@pytest.mark.parametrize("seed", range(3))
def test_packed_log_probs_equal_those_of_each_row_alone(trainer: Trainer, seed: int) -> None:
    rows = session_rows(seed, 7)
    packed = trainer.logprobs(rows, temperature=TEMPERATURE)
    for values, one in zip(packed, rows, strict=True):
        assert values == pytest.approx(_plain(trainer.model, one, TEMPERATURE).tolist(), abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_packed_gradients_equal_those_of_each_row_alone(trainer: Trainer, seed: int) -> None:
    rows = session_rows(seed, 7)
    packed = _gradient(trainer, lambda: _packed_loss(trainer, rows))
    separate = _gradient(trainer, lambda: _separate_loss(trainer, rows))
    assert float((packed - separate).norm() / separate.norm()) < 1e-5


@given(rows=row_sets())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_set_of_rows_trains_as_its_rows_alone(trainer: Trainer, rows: list[TrainRow]) -> None:
    rows = [one for one in rows if any(one.trained)]
    assume(rows)
    packed = trainer.logprobs(rows, temperature=TEMPERATURE)
    for values, one in zip(packed, rows, strict=True):
        assert values == pytest.approx(_plain(trainer.model, one, TEMPERATURE).tolist(), abs=1e-5)
    together = _gradient(trainer, lambda: _packed_loss(trainer, rows))
    separate = _gradient(trainer, lambda: _separate_loss(trainer, rows))
    assert float((together - separate).norm()) < 1e-5 * (float(separate.norm()) + 1e-3)


def test_many_blocks_give_what_one_gives(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = session_rows(5, 9)
    whole = _gradient(trainer, lambda: _packed_loss(trainer, rows))
    monkeypatch.setattr(attention, "LONGEST_BLOCK", 7)
    monkeypatch.setattr(attention, "SHORTEST_BLOCK", 2)
    assert len(attention.cut_blocks(build(rows), 0, len(build(rows)))) > 20
    cut = _gradient(trainer, lambda: _packed_loss(trainer, rows))
    assert float((whole - cut).norm() / whole.norm()) < 1e-5


@given(rows=row_sets())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_detached_prefix_leaves_log_probs_as_they_are(trainer: Trainer, rows: list[TrainRow]) -> None:
    stem = [3, 1, 4, 1, 5]
    rows = [row([*stem, *one.token_ids], [False] * 5 + list(one.trained)) for one in rows if any(one.trained)]
    assume(rows)
    trie = build(rows)
    assert trie.detachable >= len(stem)
    prefix = forward.compute_prefix(trainer.model, trie, trie.detachable)
    with torch.no_grad():
        exact = forward.term_values(trainer.model, trie, temperature=TEMPERATURE)
        detached = forward.term_values(trainer.model, trie, temperature=TEMPERATURE, prefix=prefix)
    assert detached.logprobs.tolist() == pytest.approx(exact.logprobs.tolist(), abs=1e-5)
    assert detached.entropies.tolist() == pytest.approx(exact.entropies.tolist(), abs=1e-5)


def test_a_detached_prefix_stops_the_gradient_at_its_keys_and_values(trainer: Trainer) -> None:
    rows = session_rows(1, 6)
    trie = build(rows)
    prefix = forward.compute_prefix(trainer.model, trie, trie.detachable)
    exact = _gradient(trainer, lambda: _packed_loss(trainer, rows))
    detached = _gradient(trainer, lambda: _packed_loss(trainer, rows, prefix))
    cosine = float(torch.nn.functional.cosine_similarity(exact, detached, dim=0))
    assert 0.5 < cosine < 0.9999


def test_the_heads_gradient_equals_autograds_through_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "HEAD_CHUNK", 3)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(8, 16, generator=generator, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(16, 11, bias=True, dtype=torch.float64).requires_grad_(False)
    places, tokens = torch.tensor([0, 0, 7, 3, 3, 5, 1, 2, 7]), torch.tensor([1, 1, 2, 3, 4, 10, 0, 5, 9])
    weights = torch.randn(9, generator=generator, dtype=torch.float64)
    own = forward._head_logprobs(hidden, head, 0.7, places.numpy(), tokens.numpy())
    logs = (head(hidden) / 0.7).log_softmax(-1)
    plain = logs[places, tokens]
    assert torch.allclose(own.logprobs.double(), plain, atol=1e-5)
    assert torch.allclose(own.entropies.double(), -(logs.exp() * logs).sum(-1)[places], atol=1e-5)
    (expected,) = torch.autograd.grad((plain * weights).sum(), hidden)
    (found,) = torch.autograd.grad((own.logprobs * weights).sum(), hidden)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_models_own_attention_is_back_after_a_pass(trainer: Trainer) -> None:
    trainer.logprobs(session_rows(0, 2))
    assert trainer.model.config._attn_implementation == "sdpa"


_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def _make(model: Any) -> Trainer:
    return Trainer(model, lora=LoraConfig(rank=4, alpha=8), config=TrainerConfig(), temperature=1.0, seed=0)


def test_granites_scaled_logits_are_trained_as_the_model_scales_them() -> None:
    torch.manual_seed(0)
    trainer = _make(GraniteForCausalLM(GraniteConfig(**_SMALL, logits_scaling=5.0)))
    rows = session_rows(0, 3)
    for values, one in zip(trainer.logprobs(rows, temperature=TEMPERATURE), rows, strict=True):
        assert values == pytest.approx(_plain(trainer.model, one, TEMPERATURE).tolist(), abs=1e-5)


def test_layers_that_are_not_full_attention_are_refused_by_name() -> None:
    with pytest.raises(TrainingError, match="gemma2 has sliding_attention layers"):
        _make(Gemma2ForCausalLM(Gemma2Config(**_SMALL, head_dim=16)))


def test_an_attention_soft_cap_is_refused_by_name() -> None:
    config = Gemma2Config(**_SMALL, head_dim=16, layer_types=["full_attention"] * 2)
    with pytest.raises(TrainingError, match="softcap"):
        _make(Gemma2ForCausalLM(config))


def test_a_model_that_changes_its_logits_after_the_head_is_refused_by_measurement() -> None:
    class Shifted(type(tiny_model())):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.logits = torch.tanh(output.logits) * 3
            return output

    torch.manual_seed(0)
    with pytest.raises(TrainingError, match="log-probs differ"):
        _make(Shifted(tiny_model().config))


def test_a_prefix_computed_in_chunks_is_the_prefix_computed_at_once(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trie = build(session_rows(2, 4))
    whole = forward.compute_prefix(trainer.model, trie, trie.detachable)
    monkeypatch.setattr(forward, "PREFIX_CHUNK", 7)
    chunked = forward.compute_prefix(trainer.model, trie, trie.detachable)
    assert chunked.length == whole.length == trie.detachable
    for layer, pair in whole.states.layers.items():
        for one, other in zip(pair, chunked.states.layers[layer], strict=True):
            assert one.shape[2] == trie.detachable
            assert torch.allclose(one, other, atol=1e-5)
