"""A lean forward of Llama-type checkpoints in fp32 on a CPU: packed rows, no masks, no modules on the way.

The rows of a step are the next tokens of all sequences, one after the other; linear layers see `[rows, width]` once,
and only attention knows where a sequence begins (`StepAttention`). Formulas are those of Llama (RMSNorm, rotary
positions in the half-split form, grouped-query attention, SwiGLU), so log-probs equal transformers' to rounding.

Invariants
- Weights are read from the module once, before anyone wraps it: training an adapter in place does not reach them.
- Nothing here keeps state between steps.

Asymmetry: fused projections and the output head are transposed copies, everything else refers to the module's own
tensors, so a model takes a little less than twice its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from harness_adapters.engines.embedded.blas import dense
from harness_adapters.engines.embedded.kv import KVShape
from harness_adapters.engines.weights import EMBEDDED_ARCHITECTURES
from harness_adapters.errors import EngineError

GROUPS: dict[str, tuple[str, ...]] = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""The linear modules of a layer, in groups that read the same input and are computed as one product."""

STATIC_ROPE = ("default", "linear", "llama3", "yarn")
"""Rotary variants whose frequencies do not depend on the length of the sequence."""


class LayerDelta(Protocol):
    """What an adapter adds to a group of a layer's projections."""

    def add_to(self, out: Tensor, layer: int, group: str, x: Tensor) -> None:
        """Add the low-rank product of `x` `[rows, in]` to `out` `[rows, out]`, in place."""


class Attend(Protocol):
    """`StepAttention`'s call."""

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


def load_module(model_dir: Path) -> Any:
    """The transformers `LlamaForCausalLM` of a folder, fp32, frozen, in evaluation mode.

    Raises EngineError for a folder that cannot be read and for any architecture but Llama's.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig, LlamaForCausalLM

    if not (model_dir / "config.json").is_file():
        raise EngineError(f"{model_dir} holds no model: config.json is missing", "name a transformers model folder")
    try:
        config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
        check_architecture(config)
        module: Any = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise EngineError(f"cannot load the model in {model_dir}: {error}", "check that the folder is whole") from error
    return module.eval().requires_grad_(False)


def check_architecture(config: Any) -> None:
    """EngineError naming what the embedded engine does not compute."""
    hint = "serve this model with another engine, for example vLLM"
    if config.model_type not in EMBEDDED_ARCHITECTURES:
        known = ", ".join(EMBEDDED_ARCHITECTURES)
        raise EngineError(
            f"the embedded engine does not serve the architecture {config.model_type!r}, only {known}", hint
        )
    if config.hidden_act != "silu":
        raise EngineError(f"the embedded engine does not compute the activation {config.hidden_act!r}", hint)
    for flag in ("attention_bias", "mlp_bias"):
        if getattr(config, flag, False):
            raise EngineError(f"the embedded engine does not serve Llama models with {flag}", hint)
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if rope not in STATIC_ROPE:
        raise EngineError(f"the embedded engine does not compute rotary positions of type {rope!r}", hint)


class LlamaModel:
    """Weights and forward. `module` is a plain `LlamaForCausalLM`; see the module head for what is copied."""

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
        self._head = module.lm_head.weight.detach().t().contiguous()
        self.module_shapes = _module_shapes(config)

    def forward(
        self, tokens: Sequence[int], positions: Sequence[int], adapters: Sequence[AdapterRows], attend: Attend
    ) -> Tensor:
        """Final hidden states, normalised, fp32 `[rows, hidden]`; keys and values go where `attend` keeps them."""
        x = F.embedding(torch.tensor(tokens), self._embedding)
        cos, sin = self._rotary(torch.tensor(positions, dtype=torch.float32))
        for index, layer in enumerate(self._layers):
            normed = self._rms(x, layer.attention_norm)
            q, k, v = self._split(self._project(normed, index, "qkv", adapters), cos, sin)
            x = x + self._project(attend(index, q, k, v), index, "o", adapters)
            gate, up = self._project(self._rms(x, layer.mlp_norm), index, "gate_up", adapters).chunk(2, dim=1)
            x = x + self._project(F.silu(gate).mul_(up), index, "down", adapters)
        return self._rms(x, self._norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits fp32 `[rows, vocabulary]` of hidden states `[rows, hidden]`."""
        return dense(hidden, self._head)

    def _project(self, x: Tensor, layer: int, group: str, adapters: Sequence[AdapterRows]) -> Tensor:
        out = dense(x, self._layers[layer].weights[group])
        for rows in adapters:
            rows.delta.add_to(out[rows.start : rows.stop], layer, group, x[rows.start : rows.stop])
        return out

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True).add_(self._eps)) * weight

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[:, None, None] * self._frequencies
        return angles.cos() * self._rotary_scale, angles.sin() * self._rotary_scale

    def _split(self, qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Packed projections to rotated q, rotated k and v, each `[rows, its heads, head_dim]`."""
        kv_heads, width = self.kv_shape.kv_heads, self.kv_shape.head_dim
        by_head = qkv.view(qkv.shape[0], -1, width)
        rotated = self.heads + kv_heads
        first, second = by_head[:, :rotated].chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned[:, : self.heads], turned[:, self.heads :], by_head[:, rotated:]


def _read_layer(layer: Any) -> _Layer:
    weights = {}
    for group, names in GROUPS.items():
        parts = [layer.get_submodule(name).weight.detach() for name in names]
        weights[group] = torch.cat(parts).t().contiguous()
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
