"""A Llama-type checkpoint as the engine reads it: the weights' addresses and sizes, and its rotary positions.

Invariant: there is one copy of the weights. These are references to the module's own tensors, taken before anyone wraps
it, so training an adapter in place does not reach them; where the checkpoint's weights are bf16 numbers, the module
keeps them as such (`halves`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness_adapters.engines.embedded.halves import keep_halves
from harness_adapters.engines.embedded.kv import KVShape
from harness_adapters.engines.embedded.layout import Network, column_items
from harness_adapters.errors import EngineError

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")

MODULES = (*QKV, "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
"""The linear modules of a layer, in the order of `forward`'s tables."""

FEW_ROWS = 8

ITEM_COLUMNS = (96, 32)
"""Columns of a layer's product that a thread claims at once, for few rows and for many: microseconds of work."""

HEAD_COLUMNS = 256

STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary variants whose frequencies do not depend on the length of the sequence."""


def load_module(model_dir: Path) -> Any:
    """The transformers causal language model of a folder, fp32, frozen, in evaluation mode.

    Raises EngineError for a folder that cannot be read and for an architecture that transformers does not have.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    if not (model_dir / "config.json").is_file():
        raise EngineError(f"{model_dir} holds no model: config.json is missing", "name a transformers model folder")
    try:
        module: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise EngineError(f"cannot load the model in {model_dir}: {error}", "check that the folder is whole") from error
    return module.eval().requires_grad_(False)


def not_lean(config: Any) -> str:
    """Why `LlamaModel` does not compute a configuration; empty where it does."""
    if config.model_type != "llama":
        return f"the engine's own forward does not know the architecture {config.model_type!r}"
    if config.hidden_act != "silu":
        return f"the engine's own forward does not know the activation {config.hidden_act!r}"
    for flag in ("attention_bias", "mlp_bias"):
        if getattr(config, flag, False):
            return f"the engine's own forward does not know Llama models with {flag}"
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if rope not in STATIC_ROPE:
        return f"the engine's own forward does not know rotary positions of type {rope!r}"
    return ""


class LlamaModel:
    """`module` is a plain fp32 `LlamaForCausalLM`; its tensors must stay where they are.

    It is turned into one that keeps its weights as bf16 if nothing is lost by that.
    """

    def __init__(self, module: Any) -> None:
        config, body = module.config, module.model
        self.halves = keep_halves(module)
        self.hidden: int = config.hidden_size
        self.heads: int = config.num_attention_heads
        self.vocabulary: int = config.vocab_size
        self.positions: int = config.max_position_embeddings
        self.kv_shape = KVShape(config.num_hidden_layers, config.num_key_value_heads, config.head_dim)
        self.module_shapes = _module_shapes(config)
        self._eps: float = config.rms_norm_eps
        self._frequencies: Tensor = body.rotary_emb.inv_freq.detach().float()
        self._rotary_scale: float = body.rotary_emb.attention_scaling
        self._embedding = _in_order(body.embed_tokens)
        self._norm = _in_order(body.norm)
        self._head = _in_order(module.lm_head)
        self._layers = [_layer_weights(layer) for layer in body.layers]
        self._networks = {columns: self._network(config.intermediate_size, columns) for columns in ITEM_COLUMNS}

    def rotary(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions, each fp32 `[rows, head_dim / 2]`."""
        angles = torch.tensor(positions, dtype=torch.float32)[:, None] * self._frequencies
        return angles.cos() * self._rotary_scale, angles.sin() * self._rotary_scale

    def network(self, rows: int) -> Network:
        """What `forward` needs to know, in items that suit a number of rows."""
        return self._networks[ITEM_COLUMNS[rows > FEW_ROWS]]

    def _network(self, inner: int, columns: int) -> Network:
        shape = self.kv_shape
        places = {module: place for place, module in enumerate(MODULES)}
        return Network(
            layers=shape.layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            inner=inner,
            vocabulary=self.vocabulary,
            epsilon=self._eps,
            halves=self.halves,
            embedding=self._embedding.data_ptr(),
            norm=self._norm.data_ptr(),
            head=self._head.data_ptr(),
            weights=np.array([[tensor.data_ptr() for tensor in layer] for layer in self._layers], dtype=np.int64),
            qkv_items=column_items([(places[m], self.module_shapes[m][1]) for m in QKV], columns),
            out_items=column_items([(0, self.hidden)], columns),
            inner_items=column_items([(0, inner)], columns),
            head_items=column_items([(0, self.vocabulary)], HEAD_COLUMNS),
        )


def _layer_weights(layer: Any) -> list[Tensor]:
    """A layer's weights in the order of `forward`'s table of addresses."""
    owners = [*(layer.get_submodule(module) for module in MODULES)]
    return [_in_order(owner) for owner in (*owners, layer.input_layernorm, layer.post_attention_layernorm)]


def _in_order(owner: Any) -> Tensor:
    """A module's weight in C order, as the compiled step reads it."""
    weight: Tensor = owner.weight.detach()
    assert weight.is_contiguous()
    return weight


def _module_shapes(config: Any) -> dict[str, tuple[int, int]]:
    """(in, out) of each linear module of a layer."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    return {
        "self_attn.q_proj": (hidden, q),
        "self_attn.k_proj": (hidden, kv),
        "self_attn.v_proj": (hidden, kv),
        "self_attn.o_proj": (q, hidden),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }
