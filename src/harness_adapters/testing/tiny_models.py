"""Models small enough to make in a test: random Llama checkpoints and random non-zero LoRA adapters for them.

Weights are drawn wide, so that log-probs of different adapters differ by whole nats and a mix-up cannot hide in
rounding. Folders are written by transformers and PEFT themselves: what reads them reads real layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""All linear modules of a Llama layer."""


def save_tiny_llama(folder: Path, *, seed: int = 0, halves: bool = False, **changes: Any) -> Path:
    """Save a random two-layer `LlamaForCausalLM` (97 tokens, 64 wide, 1,024 positions, untied head); returns `folder`.

    Weights are bf16 with `halves`, as checkpoints mostly are, else fp32. `changes` override the transformers
    `LlamaConfig` (for example `tie_word_embeddings=True`).
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**{**sizes, **changes}))
    if halves:
        model.bfloat16()
    model.save_pretrained(folder)
    return folder


def save_random_adapter(
    model_dir: Path,
    folder: Path,
    *,
    seed: int,
    rank: int = 4,
    targets: Sequence[str] = LINEAR,
    std: float = 0.2,
    **changes: Any,
) -> Path:
    """Save a PEFT LoRA folder with random non-zero weights for the model in `model_dir`; returns `folder`.

    Weights are normal with `std` (0.2 suits the tiny model, 0.02 a real one). `changes` override PEFT's `LoraConfig`
    (for example `use_rslora=True`).
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True)
    options: dict[str, Any] = {"r": rank, "lora_alpha": 2 * rank, "target_modules": list(targets)}
    wrapped = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **{**options, **changes}))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=std)
    wrapped.save_pretrained(str(folder))
    return folder
