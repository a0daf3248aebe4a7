"""Architectures the lean forward does not know are served by transformers' own, adapters included, and it says so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from engines_embedded_samples import TOLERANCE, complete, together, tokens, worst
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from harness_adapters.engines.embedded import EmbeddedEngine, Generation
from harness_adapters.engines.embedded.fallback import TransformersBackend
from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
KINDS: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 16},
    "granite": {"logits_scaling": 2.0, "embedding_multiplier": 3.0},
    "lfm2": {"layer_types": ["conv", "full_attention"], "conv_L_cache": 3},
    "llama": {"attention_bias": True},
}


def save(kind: str, folder: Path) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = AutoConfig.for_model(kind, **{**SIZES, **KINDS[kind]})
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def save_adapter(base: Path, folder: Path) -> Path:
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    wrapped = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.random.fork_rng():
        torch.manual_seed(2)
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.2)
    wrapped.save_pretrained(str(folder))
    return folder


def expected(model: Any, ids: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].float()
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[1:, None])[:, 0].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_base_and_adapter_in_one_batch_equal_transformers_and_peft(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = save(kind, tmp_path / "base")
    adapter = save_adapter(base, tmp_path / "a")
    plain: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    tuned = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(adapter)).eval()
    with caplog.at_level(logging.WARNING):
        engine = EmbeddedEngine(base, max_batch=3, prefix_cache_mb=8)
    assert ("attention_bias" if kind == "llama" else kind) in caplog.text
    assert "transformers' own forward" in caplog.text
    engine.load_adapter("a", adapter)
    # As a trainer does: what wraps the engine's model must not reach what is served.
    get_peft_model(engine.model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    engine.start()
    try:
        asks = [
            (name, Generation(tokens(seed, 12 + seed), 9, seed=seed, prompt_logprobs=seed == 1))
            for seed in range(3)
            for name in (BASE_POLICY, "a")
        ]
        for (name, ask), answer in zip(asks, together(engine, asks), strict=True):
            values = expected(plain if name == BASE_POLICY else tuned, ask.prompt + answer.token_ids)
            assert worst(answer.logprobs, values[len(ask.prompt) - 1 :]) < TOLERANCE
            if answer.prompt_logprobs is not None:
                scores = [score for score in answer.prompt_logprobs if score is not None]
                assert worst(scores, values[: len(ask.prompt) - 1]) < TOLERANCE
        again = complete(engine, *asks[1])
        assert again.token_ids == together(engine, asks)[1].token_ids
        assert isinstance(engine._backend, TransformersBackend)
        assert not engine._batcher._running
    finally:
        engine.stop()


def test_an_adapter_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    base, other = save("qwen3", tmp_path / "base"), save("lfm2", tmp_path / "other")
    engine = EmbeddedEngine(base, max_batch=1, prefix_cache_mb=0)
    with pytest.raises(EngineError, match="which this model does not have"):
        engine.load_adapter("a", save_adapter(other, tmp_path / "a"))
    assert engine.models() == [BASE_POLICY]
