"""LoRA adapters in PEFT's folder layout, read whole or refused by name.

`adapter_config.json` gives rank, alpha and target modules; `adapter_model.safetensors` gives, per target module,
`base_model.model.model.layers.N.<module>.lora_A.weight` `[rank, in]` and `…lora_B.weight` `[out, rank]`. What a module
adds is `(alpha / rank) · B A x` (Hu et al. 2021, arXiv 2106.09685), with `alpha / sqrt(rank)` for rsLoRA.

Invariants
- Every tensor of the file maps to a module that is served, and every target module has both its tensors.
- An adapter is immutable once read.

Asymmetry: the modules of a group that read one input are stored as one pair, A stacked and B block-diagonal with the
scale folded in: two products a group instead of two a module.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness_adapters.engines.embedded.blas import dense
from harness_adapters.engines.embedded.model import GROUPS, LlamaModel
from harness_adapters.errors import EngineError

PREFIX = "base_model.model.model.layers."

UNSUPPORTED = (
    "alora_invocation_tokens",
    "alpha_pattern",
    "exclude_modules",
    "fan_in_fan_out",
    "layer_replication",
    "layers_to_transform",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
)
"""Settings of a PEFT LoRA that change what it computes and that this engine does not compute."""

HINT = "load a LoRA folder that PEFT saved for this base model"


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A loaded adapter. `pairs[layer][group]` is (A `[in, R]`, B `[R, out]`), R the summed rank of the group."""

    name: str
    rank: int
    pairs: tuple[Mapping[str, tuple[Tensor, Tensor]], ...]

    def add_to(self, out: Tensor, layer: int, group: str, x: Tensor) -> None:
        pair = self.pairs[layer].get(group)
        if pair is not None:
            out += dense(dense(x, pair[0]), pair[1])


def read_adapter(name: str, folder: Path, model: LlamaModel) -> Adapter:
    """The adapter of a PEFT folder. Raises EngineError naming what does not fit this model."""
    config = _read_config(folder)
    rank, scale = _rank_and_scale(config)
    modules = _target_modules(config, model)
    tensors = _read_tensors(folder)
    expected = {
        f"{PREFIX}{module}.{part}.weight": (rank, model.module_shapes[kind][0])
        if part == "lora_A"
        else (model.module_shapes[kind][1], rank)
        for module, kind in modules.items()
        for part in ("lora_A", "lora_B")
    }
    _check_tensors(tensors, expected)
    layers = range(model.kv_shape.layers)
    return Adapter(name, rank, tuple(_layer_pairs(layer, modules, tensors, scale, model) for layer in layers))


def _read_config(folder: Path) -> Mapping[str, Any]:
    path = folder / "adapter_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineError(f"cannot read {path}: {error.strerror}", HINT) from None
    except (ValueError, RecursionError) as error:
        raise EngineError(f"{path} is not JSON: {error}", HINT) from None
    if not isinstance(config, Mapping) or config.get("peft_type") != "LORA":
        raise EngineError(f"{path} does not describe a LoRA adapter", HINT)
    for key in UNSUPPORTED:
        if config.get(key):
            raise EngineError(f"{path} sets {key}, which the embedded engine does not compute", HINT)
    if config.get("bias", "none") != "none":
        raise EngineError(f"{path} trains biases, which the embedded engine does not compute", HINT)
    return config


def _rank_and_scale(config: Mapping[str, Any]) -> tuple[int, float]:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise EngineError(f"the adapter's rank is {rank!r}, not a positive integer", HINT)
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not math.isfinite(alpha):
        raise EngineError(f"the adapter's lora_alpha is {alpha!r}, not a number", HINT)
    return rank, alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank


def _target_modules(config: Mapping[str, Any], model: LlamaModel) -> dict[str, str]:
    """Each targeted `N.<module>` with its kind. A target is a suffix of module names, as in PEFT."""
    targets = config.get("target_modules")
    served = {f"{layer}.{kind}": kind for layer in range(model.kv_shape.layers) for kind in model.module_shapes}
    if targets == "all-linear":
        return served
    if not isinstance(targets, list) or not targets or not all(isinstance(t, str) for t in targets):
        raise EngineError(f"the adapter's target_modules are {targets!r}, not a list of names", HINT)
    chosen: dict[str, str] = {}
    for target in targets:
        matches = {m: kind for m, kind in served.items() if f"model.layers.{m}".endswith("." + target)}
        matches |= {m: kind for m, kind in served.items() if f"model.layers.{m}" == target}
        if not matches:
            raise EngineError(f"the adapter targets {target!r}, which this model does not have", HINT)
        chosen |= matches
    return chosen


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        raise EngineError(f"{path} is missing", HINT)
    try:
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise EngineError(f"{path} is damaged: {error}", "save the adapter again") from None


def _check_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, int]]) -> None:
    for name in tensors:
        if name not in expected:
            raise EngineError(f"the adapter has a tensor {name!r} that maps to no served target module", HINT)
    for name, shape in expected.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise EngineError(f"the adapter lacks the tensor {name!r}", HINT)
        if tuple(tensor.shape) != shape:
            raise EngineError(f"the adapter's tensor {name!r} is {list(tensor.shape)}, not {list(shape)}", HINT)
        if not bool(torch.isfinite(tensor).all()):
            raise EngineError(f"the adapter's tensor {name!r} holds a value that is not finite", "train it again")


def _layer_pairs(
    layer: int, modules: Mapping[str, str], tensors: Mapping[str, Tensor], scale: float, model: LlamaModel
) -> dict[str, tuple[Tensor, Tensor]]:
    pairs = {}
    for group, kinds in GROUPS.items():
        downs, ups = [], []
        for kind in kinds:
            width = model.module_shapes[kind][1]
            if f"{layer}.{kind}" in modules:
                downs.append(tensors[f"{PREFIX}{layer}.{kind}.lora_A.weight"])
                ups.append(tensors[f"{PREFIX}{layer}.{kind}.lora_B.weight"])
            else:
                ups.append(torch.zeros(width, 0))
        if downs:
            stacked = torch.cat(downs).t().contiguous()
            pairs[group] = (stacked, _block_diagonal(ups).mul_(scale).t().contiguous())
    return pairs


def _block_diagonal(blocks: list[Tensor]) -> Tensor:
    out = torch.zeros(sum(block.shape[0] for block in blocks), sum(block.shape[1] for block in blocks))
    row = column = 0
    for block in blocks:
        out[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return out
