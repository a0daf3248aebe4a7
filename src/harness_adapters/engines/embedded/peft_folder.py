"""LoRA adapters in PEFT's folder layout, read whole or refused by name.

`adapter_config.json` gives rank, alpha and target modules; `adapter_model.safetensors` gives, per target module,
`base_model.model.<module>.lora_A.weight` `[rank, in]` and `….lora_B.weight` `[out, rank]`. What a module adds is
`(alpha / rank) · B A x` (Hu et al. 2021, arXiv 2106.09685), with `alpha / sqrt(rank)` for rsLoRA.

Invariant: every tensor of the file maps to a module that is served, and every target module has both its tensors.

Asymmetry: B is given with the scale folded in.
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

from harness_adapters.errors import EngineError

PREFIX = "base_model.model."

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


@dataclass(frozen=True, slots=True)
class LowRank:
    """`pairs[module]` is (A `[rank, in]`, B `[out, rank]` times the scale), fp32 and in C order."""

    rank: int
    pairs: Mapping[str, tuple[Tensor, Tensor]]


def read_low_rank(folder: Path, shapes: Mapping[str, tuple[int, int]]) -> LowRank:
    """The matrices of a PEFT folder for a model whose linear modules have these (in, out) `shapes` by name.

    Raises EngineError naming what does not fit.
    """
    config = _read_config(folder)
    rank, scale = _rank_and_scale(config)
    modules = _target_modules(config.get("target_modules"), shapes)
    tensors = _read_tensors(folder)
    expected = {}
    for module in modules:
        width, height = shapes[module]
        expected[f"{PREFIX}{module}.lora_A.weight"] = (rank, width)
        expected[f"{PREFIX}{module}.lora_B.weight"] = (height, rank)
    _check_tensors(tensors, expected)
    pairs = {}
    for module in modules:
        down, up = (tensors[f"{PREFIX}{module}.lora_{part}.weight"] for part in "AB")
        pairs[module] = (down.contiguous(), (up * scale).contiguous())
    return LowRank(rank, pairs)


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


def _target_modules(targets: Any, shapes: Mapping[str, tuple[int, int]]) -> list[str]:
    """The targeted modules. A target is a module's name or the end of it, as in PEFT."""
    if targets == "all-linear":
        return list(shapes)
    if not isinstance(targets, list) or not targets or not all(isinstance(t, str) for t in targets):
        raise EngineError(f"the adapter's target_modules are {targets!r}, not a list of names", HINT)
    for target in targets:
        if not any(name == target or name.endswith("." + target) for name in shapes):
            raise EngineError(f"the adapter targets {target!r}, which this model does not have", HINT)
    return [name for name in shapes if any(name == t or name.endswith("." + t) for t in targets)]


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
