"""Checkpoints: adapter, optimizer, step counter, random state and the caller's own state, in one folder.

Files: PEFT's adapter layout, `optimizer.safetensors` (Adam's moments per parameter and torch's generator state) and
`checkpoint.json`, the manifest with the size and SHA-256 of every other file. No pickle.

Invariants
- A folder appears whole or not at all (`storage.atomic_folder`); a file that was damaged later fails its hash.
- A checkpoint names its base weights, rank, alpha and target layers; loading it over anything else is refused before
  anything is changed.

Asymmetry: a damaged checkpoint says nothing; a whole one of another base, shape or format (`Foreign`) says that the
run was made with something else, which no older checkpoint and no fresh start can mend.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
from safetensors.torch import load_file
from torch import Tensor

from harness_adapters.errors import TrainingError
from harness_adapters.storage import atomic_folder, sha256_file, write_tensors
from harness_adapters.training import adapter

MANIFEST = "checkpoint.json"
OPTIMIZER = "optimizer.safetensors"
FORMAT = 2
_OBJECTS = ("identity", "state")
SAMPLED_ELEMENTS = 64


class Foreign(TrainingError):
    """A whole checkpoint that is not this trainer's: of another base, rank, alpha, targets or format."""


@dataclass(frozen=True)
class Refusal:
    """A checkpoint that was passed over: its folder's name, and why in words. `foreign`: see `Foreign`."""

    name: str
    reason: str
    foreign: bool = False


@dataclass(frozen=True)
class Restored:
    """What `load_newest` found: the checkpoint loaded, if any was good, and each newer or damaged one passed over.

    `step` and `state` are those saved with it, 0 and empty without one.
    """

    folder: Path | None
    step: int
    state: Mapping[str, Any]
    refused: tuple[Refusal, ...]


def base_fingerprint(model: Any) -> str:
    """SHA-256 over every frozen parameter's name, shape, dtype and up to 64 evenly spaced elements.

    A sample keeps it at milliseconds for any size; another model, another size or a retrained one changes it.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        if parameter.requires_grad:
            continue
        flat = parameter.detach().reshape(-1)
        count = min(SAMPLED_ELEMENTS, flat.numel())
        places = torch.arange(count) * (flat.numel() - 1) // max(count - 1, 1)
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        digest.update(flat[places.to(flat.device)].double().cpu().numpy().tobytes())
    return digest.hexdigest()


def identity(peft_model: Any, fingerprint: str) -> dict[str, Any]:
    """What must agree between a checkpoint and the trainer that loads it."""
    config = peft_model.peft_config["default"]
    return {"base": fingerprint, "rank": config.r, "alpha": config.lora_alpha, "targets": sorted(config.target_modules)}


def save(
    folder: Path,
    peft_model: Any,
    optimizer: torch.optim.Optimizer,
    *,
    fingerprint: str,
    step: int,
    state: Mapping[str, Any],
) -> None:
    """Write a checkpoint. Raises InfraError when the disk refuses, TrainingError when `state` is not JSON."""
    try:
        kept_state = json.loads(json.dumps(state))
    except (TypeError, ValueError) as error:
        raise TrainingError(f"the state of a checkpoint must be JSON: {error}") from None
    with atomic_folder(folder) as temporary:
        adapter.write_into(peft_model, temporary)
        write_tensors(temporary / OPTIMIZER, _optimizer_tensors(peft_model, optimizer))
        manifest = {
            "format": FORMAT,
            "step": step,
            "identity": identity(peft_model, fingerprint),
            "state": kept_state,
            "files": {path.name: _seal(path) for path in sorted(temporary.iterdir())},
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def load(
    folder: Path, peft_model: Any, optimizer: torch.optim.Optimizer, *, fingerprint: str
) -> tuple[int, dict[str, Any]]:
    """Put a checkpoint's weights, optimizer and random state in place; return (step, state).

    Raises TrainingError, changing nothing, for a damaged checkpoint, Foreign for one of another base, rank, alpha or
    targets.
    """
    manifest = read_manifest(folder)
    for key, mine in identity(peft_model, fingerprint).items():
        if manifest["identity"].get(key) != mine:
            theirs = manifest["identity"].get(key)
            raise Foreign(
                f"checkpoint {folder} is of another {key}: {theirs!r}, this run has {mine!r}",
                "resume with the configuration and base model it was made with",
            )
    tensors = load_file(str(folder / OPTIMIZER))
    random_state = tensors.pop("random.torch")
    peft.set_peft_model_state_dict(peft_model, load_file(str(folder / adapter.WEIGHTS)))
    _restore_optimizer(peft_model, optimizer, tensors)
    torch.set_rng_state(random_state)
    return manifest["step"], manifest["state"]


def load_newest(folder: Path, peft_model: Any, optimizer: torch.optim.Optimizer, *, fingerprint: str) -> Restored:
    """Load the checkpoint with the highest step among the sub-folders of `folder` that is whole and this trainer's.

    Without one nothing is changed.
    """
    whole: list[tuple[int, Path]] = []
    refused: list[Refusal] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not path.is_dir():
            continue
        if path.name.startswith("."):
            refused.append(Refusal(path.name, "writing it was interrupted"))
            continue
        try:
            whole.append((read_manifest(path)["step"], path))
        except TrainingError as error:
            refused.append(_refusal(path, error))
    for _, path in sorted(whole, reverse=True):
        try:
            step, state = load(path, peft_model, optimizer, fingerprint=fingerprint)
        except TrainingError as error:
            refused.append(_refusal(path, error))
        else:
            return Restored(path, step, state, tuple(refused))
    return Restored(None, 0, {}, tuple(refused))


def _refusal(path: Path, error: TrainingError) -> Refusal:
    return Refusal(path.name, error.message, isinstance(error, Foreign))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a whole, undamaged checkpoint; TrainingError says what is wrong with any other."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise Foreign(f"checkpoint {folder} has format {manifest['format']}, this version reads {FORMAT}")
        if not {OPTIMIZER, adapter.WEIGHTS} <= manifest["files"].keys():
            raise TrainingError(f"checkpoint {folder} is damaged: its manifest names too few files", "use an older one")
        if type(manifest["step"]) is not int or not all(isinstance(manifest[key], dict) for key in _OBJECTS):
            raise TypeError("a step or an object is missing")
        for name, seal in manifest["files"].items():
            if _seal(folder / name) != seal:
                raise TrainingError(
                    f"checkpoint {folder} is damaged: {name} is not what was written", "use an older one"
                )
    except OSError as error:
        raise TrainingError(f"checkpoint {folder} is incomplete: {error.strerror}", "use an older one") from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise TrainingError(f"checkpoint {folder} has no readable {MANIFEST}", "use an older one") from None
    return manifest


def _seal(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}


def _trainable(peft_model: Any) -> dict[str, torch.nn.Parameter]:
    return {name: parameter for name, parameter in peft_model.named_parameters() if parameter.requires_grad}


def _optimizer_tensors(peft_model: Any, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {"random.torch": torch.get_rng_state()}
    for name, parameter in _trainable(peft_model).items():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key} {name}"] = value.detach().cpu().contiguous()
    return tensors


def _restore_optimizer(peft_model: Any, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `_optimizer_tensors`; a parameter without entries gets an empty state (no step taken yet)."""
    parameters = _trainable(peft_model)
    for parameter in parameters.values():
        optimizer.state.pop(parameter, None)
    for key, value in tensors.items():
        kind, _, name = key.partition(" ")
        parameter = parameters[name]
        # Adam keeps its step counter on the CPU whatever the parameter's device.
        optimizer.state[parameter][kind] = value if kind == "step" else value.to(parameter.device)
