"""Weights kept as bf16: only where nothing is lost, and everything computed with them is what fp32 weights give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness_adapters.config import LoraConfig
from harness_adapters.engines.embedded.halves import HalfEmbedding, HalfLinear, keep_halves
from harness_adapters.engines.embedded.model import load_module
from harness_adapters.records import TrainRow
from harness_adapters.testing.tiny_models import save_tiny_llama
from harness_adapters.training import adapter
from harness_adapters.training.forward import check_against_plain, term_values
from harness_adapters.training.trie import build

ROWS = [TrainRow("r", (5, 9, 11, 30, last), (False, False, True, True, True), (0.0,) * 5) for last in (40, 41)]


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return save_tiny_llama(tmp_path / "base", halves=True, tie_word_embeddings=request.param)


def gradients(module: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Log-probs of a small trie, and the gradients of an adapter that is not nothing."""
    wrapped = adapter.put_on(module, LoraConfig(rank=4, alpha=8), seed=1)
    trained = {name: parameter for name, parameter in wrapped.named_parameters() if parameter.requires_grad}
    assert {parameter.dtype for parameter in trained.values()} == {torch.float32}
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in trained.values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 10)
    values = term_values(wrapped, build(ROWS), temperature=0.8)
    values.logprobs.sum().backward()
    return values.logprobs.detach(), {name: parameter.grad for name, parameter in trained.items()}


def test_logprobs_and_gradients_are_those_of_fp32_weights_to_the_last_bit(folder: Path) -> None:
    plain, halved = load_module(folder), load_module(folder)
    assert keep_halves(halved)
    check_against_plain(halved)
    expected, expected_gradients = gradients(plain)
    logprobs, found = gradients(halved)
    assert torch.equal(logprobs, expected)
    assert found.keys() == expected_gradients.keys()
    assert all(torch.equal(found[name], expected_gradients[name]) for name in found)
    assert max(float(gradient.abs().max()) for gradient in found.values()) > 0


def test_all_large_weights_take_half_the_room_and_tied_ones_stay_tied(folder: Path) -> None:
    module = load_module(folder)
    tied = module.lm_head.weight is module.model.embed_tokens.weight
    assert keep_halves(module)
    assert (module.lm_head.weight is module.model.embed_tokens.weight) == tied
    assert {type(layer) for layer in module.modules() if isinstance(layer, torch.nn.Linear)} == {HalfLinear}
    assert isinstance(module.model.embed_tokens, HalfEmbedding)
    assert {p.dtype for p in module.parameters() if p.ndim == 2} == {torch.bfloat16}


def test_a_model_that_would_lose_anything_keeps_its_fp32_weights(folder: Path) -> None:
    module = load_module(folder)
    with torch.no_grad():
        module.model.layers[-1].mlp.down_proj.weight[3, 4] += 1e-6
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert not keep_halves(module)
    after = module.state_dict()
    assert all(torch.equal(tensor, before[name]) and tensor.dtype == torch.float32 for name, tensor in after.items())
    assert not any(isinstance(layer, HalfLinear | HalfEmbedding) for layer in module.modules())
