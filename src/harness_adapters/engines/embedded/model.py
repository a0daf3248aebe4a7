"""A lean forward of Llama-type checkpoints in fp32 on a CPU: packed rows, no masks, no modules on the way.

The rows of a step are prompt tokens of some sequences, one after the other; linear layers see `[rows, width]` once,
and only attention knows where a sequence begins (`PromptAttention`). Formulas are those of Llama (RMSNorm, rotary
positions in the half-split form, grouped-query attention, SwiGLU), so log-probs equal transformers' to rounding.

Invariants
- There is one copy of the weights: these are references to the module's own tensors, taken before anyone wraps it, so
  training an adapter in place does not reach them.
- Nothing here keeps state between steps.

Asymmetry: `forward` is for the many rows of a prompt, on BLAS; the few rows of a decoding step go through `decoding`,
which finds the same weights by the addresses in `network`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harness_adapters.engines.embedded.blas import dense, share
from harness_adapters.engines.embedded.decoding import Network, column_items
from harness_adapters.engines.embedded.kernels import project
from harness_adapters.engines.embedded.kv import KVShape
from harness_adapters.errors import EngineError

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
OUT = ("self_attn.o_proj",)
GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
DOWN = ("mlp.down_proj",)
"""Modules that read the same input."""

MODULES = (*QKV, *OUT, *GATE_UP, *DOWN)
"""The linear modules of a layer, in the order of `decoding`'s tables."""

FEW_ROWS = 8

ITEM_COLUMNS = (96, 32)
"""Columns of a layer's product that a thread claims at once, for few rows and for many: microseconds of work."""

HEAD_COLUMNS = 256

LOGIT_COLUMNS = 4096

STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary variants whose frequencies do not depend on the length of the sequence."""


class LayerDelta(Protocol):
    """What an adapter adds to a layer's projections."""

    def add_to(self, out: Tensor, layer: int, module: str, x: Tensor) -> None:
        """Add a module's low-rank product of `x` `[rows, in]` to `out` `[rows, out]`, in place."""


class Attend(Protocol):
    """`PromptAttention`'s call."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """Rows `start` to `stop` of a step belong to one adapter."""

    start: int
    stop: int
    delta: LayerDelta


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    mlp_norm: Tensor
    weights: dict[str, Tensor]

    @property
    def addresses(self) -> list[int]:
        owned = (*(self.weights[module] for module in MODULES), self.attention_norm, self.mlp_norm)
        return [tensor.data_ptr() for tensor in owned]


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
    """Weights and forward. `module` is a plain `LlamaForCausalLM`; its tensors must stay where they are."""

    def __init__(self, module: Any) -> None:
        config = module.config
        self.hidden: int = config.hidden_size
        self.heads: int = config.num_attention_heads
        self.vocabulary: int = config.vocab_size
        self.positions: int = config.max_position_embeddings
        self.kv_shape = KVShape(config.num_hidden_layers, config.num_key_value_heads, config.head_dim)
        self._eps: float = config.rms_norm_eps
        body = module.model
        self._embedding: Tensor = body.embed_tokens.weight.detach()
        self._norm: Tensor = body.norm.weight.detach()
        self._frequencies: Tensor = body.rotary_emb.inv_freq.detach().float()
        self._rotary_scale: float = body.rotary_emb.attention_scaling
        self._layers = [_read_layer(layer) for layer in body.layers]
        self._head = module.lm_head.weight.detach()
        self.module_shapes = _module_shapes(config)
        self._networks = {columns: self._network(config.intermediate_size, columns) for columns in ITEM_COLUMNS}

    def forward(
        self, tokens: Sequence[int], positions: Sequence[int], adapters: Sequence[AdapterRows], attend: Attend
    ) -> Tensor:
        """Final hidden states, normalised, fp32 `[rows, hidden]`; keys and values go where `attend` keeps them."""
        x = F.embedding(torch.tensor(tokens), self._embedding)
        cos, sin = (half[:, None] for half in self.rotary(positions))
        for index, layer in enumerate(self._layers):
            normed = self._rms(x, layer.attention_norm)
            q, k, v = self._split(self._project(normed, index, QKV, adapters), cos, sin)
            x = x + self._project(attend(index, q, k, v), index, OUT, adapters)
            gate, up = self._project(self._rms(x, layer.mlp_norm), index, GATE_UP, adapters).chunk(2, dim=1)
            x = x + self._project(F.silu(gate).mul_(up), index, DOWN, adapters)
        return self._rms(x, self._norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits fp32 `[rows, vocabulary]` of hidden states `[rows, hidden]`, few rows."""
        x, out = hidden.numpy(), np.empty((hidden.shape[0], self.vocabulary), dtype=np.float32)
        share(
            [
                functools.partial(
                    project, x, self._head.data_ptr(), self.hidden, 0, len(x), first, last, out, first, False
                )
                for first, last in itertools.pairwise([*range(0, self.vocabulary, LOGIT_COLUMNS), self.vocabulary])
            ]
        )
        return torch.from_numpy(out)

    def rotary(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions, each fp32 `[rows, head_dim / 2]`."""
        angles = torch.tensor(positions, dtype=torch.float32)[:, None] * self._frequencies
        return angles.cos() * self._rotary_scale, angles.sin() * self._rotary_scale

    def _project(self, x: Tensor, layer: int, modules: Sequence[str], adapters: Sequence[AdapterRows]) -> Tensor:
        out = dense(x, *(self._layers[layer].weights[module] for module in modules))
        for rows in adapters:
            at = 0
            for module in modules:
                stop = at + self.module_shapes[module][1]
                rows.delta.add_to(out[rows.start : rows.stop, at:stop], layer, module, x[rows.start : rows.stop])
                at = stop
        return out

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True).add_(self._eps)) * weight

    def _split(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Packed projections to rotated q, rotated k and v, each `[rows, its heads, head_dim]`."""
        kv_heads, width = self.kv_shape.kv_heads, self.kv_shape.head_dim
        by_head = qkv.view(qkv.shape[0], -1, width)
        rotated = self.heads + kv_heads
        first, second = by_head[:, :rotated].chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned[:, : self.heads], turned[:, self.heads :], by_head[:, rotated:]

    def network(self, rows: int) -> Network:
        """What `decoding` needs to know, in items that suit a number of rows."""
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
            embedding=self._embedding.data_ptr(),
            norm=self._norm.data_ptr(),
            head=self._head.data_ptr(),
            weights=np.array([layer.addresses for layer in self._layers], dtype=np.int64),
            qkv_items=column_items([(places[m], self.module_shapes[m][1]) for m in QKV], columns),
            out_items=column_items([(0, self.hidden)], columns),
            inner_items=column_items([(0, inner)], columns),
            head_items=column_items([(0, self.vocabulary)], HEAD_COLUMNS),
        )


def _read_layer(layer: Any) -> _Layer:
    weights = {module: layer.get_submodule(module).weight.detach().contiguous() for module in MODULES}
    return _Layer(layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach(), weights)


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
