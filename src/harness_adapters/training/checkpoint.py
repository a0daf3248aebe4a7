"""Checkpoints: adapter, optimizer, step counter, random state and the caller's own state, in one folder.

Files: PEFT's adapter layout, `optimizer.safetensors` (Adam's moments per parameter and torch's generator state) and
`checkpoint.json`, the manifest with the size and SHA-256 of every other file. No pickle.

Invariants
- A folder appears whole or not at all (`storage.atomic_folder`); a file that was damaged later fails its hash.
- A checkpoint names its base weights, rank, alpha and target layers; loading it over anything else is refused before
  anything is changed.

Asymmetry: `latest` judges a folder by itself (whole, undamaged); only `load` compares it with a trainer.
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
FORMAT = 1
SAMPLED_ELEMENTS = 64


@dataclass(frozen=True)
class Latest:
    """The newest good checkpoint, if any, and (folder name, why) of each newer or damaged one passed over."""

    folder: Path | None
    passed_over: tuple[tuple[str, str], ...]


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

    Raises TrainingError, changing nothing, for a damaged checkpoint or one of another base, rank, alpha or targets.
    """
    manifest = read_manifest(folder)
    for key, mine in identity(peft_model, fingerprint).items():
        if manifest["identity"].get(key) != mine:
            theirs = manifest["identity"].get(key)
            raise TrainingError(
                f"checkpoint {folder} is of another {key}: {theirs!r}, this run has {mine!r}",
                "resume with the configuration and base model it was made with",
            )
    tensors = load_file(str(folder / OPTIMIZER))
    random_state = tensors.pop("random.torch")
    peft.set_peft_model_state_dict(peft_model, load_file(str(folder / adapter.WEIGHTS)))
    _restore_optimizer(peft_model, optimizer, tensors)
    torch.set_rng_state(random_state)
    return manifest["step"], manifest["state"]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a whole, undamaged checkpoint; TrainingError says what is wrong with any other."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise TrainingError(f"checkpoint {folder} has format {manifest['format']}, this version reads {FORMAT}")
        for name, seal in manifest["files"].items():
            if _seal(folder / name) != seal:
                raise TrainingError(
                    f"checkpoint {folder} is damaged: {name} is not what was written", "use an older one"
                )
    except OSError as error:
        raise TrainingError(f"checkpoint {folder} is incomplete: {error.strerror}", "use an older one") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise TrainingError(f"checkpoint {folder} has no readable {MANIFEST}", "use an older one") from None
    return manifest


def latest(folder: Path) -> Latest:
    """The good checkpoint with the highest step among the sub-folders of `folder`."""
    steps: list[tuple[int, Path]] = []
    passed_over: list[tuple[str, str]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not path.is_dir():
            continue
        if path.name.startswith("."):
            passed_over.append((path.name, "writing it was interrupted"))
            continue
        try:
            steps.append((read_manifest(path)["step"], path))
        except TrainingError as error:
            passed_over.append((path.name, error.message))
    return Latest(max(steps)[1] if steps else None, tuple(passed_over))


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
