"""Tiny random models and row sets that the training tests share."""

from __future__ import annotations

import random
from typing import Any

import torch
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from harness_adapters.config import LoraConfig, TrainerConfig
from harness_adapters.records import TrainRow
from harness_adapters.training.trainer import Trainer

VOCABULARY = 64
LORA = LoraConfig(rank=4, alpha=8)

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}


def tiny_model(kind: str = "llama", seed: int = 0) -> Any:
    """A random two-layer model (width 64, vocabulary 64) of an architecture, float32."""
    torch.manual_seed(seed)
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**_SIZES, head_dim=16))
    return LlamaForCausalLM(LlamaConfig(**_SIZES))


def tiny_trainer(
    kind: str = "llama", *, temperature: float = 0.8, seed: int = 1, trained: bool = False, **config: Any
) -> Trainer:
    """A trainer on a tiny model; `trained` gives the adapter random weights, so that it is not the base."""
    trainer = Trainer(tiny_model(kind), lora=LORA, config=TrainerConfig(**config), temperature=temperature, seed=seed)
    if trained:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in adapter_parameters(trainer).items():
                if "lora_B" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return trainer


def adapter_parameters(trainer: Trainer) -> dict[str, torch.nn.Parameter]:
    return {name: parameter for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}


def row(
    tokens: list[int], trained: list[bool], *, advantage: float = 1.0, old: float = -4.0, name: str = "r"
) -> TrainRow:
    """A row whose trained tokens all have the old log-prob `old`."""
    marks = (False, *trained[1:])
    return TrainRow(name, tuple(tokens), marks, tuple(old if mark else 0.0 for mark in marks), advantage)


def session_rows(seed: int, count: int, *, prefix: int = 40, tail: int = 24) -> list[TrainRow]:
    """`count` rows with one untrained prefix, tails that branch at different depths, and varied advantages."""
    source = random.Random(seed)
    stem = [source.randrange(VOCABULARY) for _ in range(prefix)]
    tails: list[list[int]] = []
    rows = []
    for index in range(count):
        kept = source.choice(tails)[: source.randrange(tail)] if tails else []
        tails.append([*kept, *(source.randrange(VOCABULARY) for _ in range(tail - len(kept)))])
        trained = [False] * prefix + [source.random() < 0.7 for _ in range(tail - 1)] + [True]
        advantage, old = source.uniform(-2, 2), source.uniform(-5, -3)
        rows.append(row([*stem, *tails[-1]], trained, advantage=advantage, old=old, name=f"rollout-{index}"))
    return rows


@st.composite
def row_sets(draw: st.DrawFn) -> list[TrainRow]:
    """Rows over few token ids, so that they share prefixes, repeat and contain each other by chance."""
    tokens = st.lists(st.integers(0, 2), min_size=1, max_size=8)
    rows = []
    for index, ids in enumerate(draw(st.lists(tokens, min_size=1, max_size=7))):
        marks = draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
        advantage = draw(st.floats(-2, 2, width=32))
        old = draw(st.floats(-5, -3, width=32))
        rows.append(row(ids, marks, advantage=advantage, old=old, name=f"rollout-{index}"))
    return rows
