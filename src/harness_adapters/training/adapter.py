"""The LoRA adapter: which layers get one, how it is put on a model, and how it is written for others to load.

Invariants
- Putting it on never copies, casts or changes a base weight: whoever holds the base tensors keeps holding the model's.
- Embeddings, the output head, routers and experts get none (engines drop or misread adapters of fused experts).
- A written adapter loads with `peft.PeftModel.from_pretrained` and with any engine that reads PEFT's layout.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import peft
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from harness_adapters.config import LoraConfig
from harness_adapters.errors import TrainingError
from harness_adapters.storage import atomic_folder, write_tensors

WEIGHTS = "adapter_model.safetensors"
EXCLUDED_PARTS = frozenset({"experts", "expert", "router", "gate", "shared_expert_gate"})


def find_targets(model: Any) -> list[str]:
    """Names of the linear layers that get an adapter: last name parts where these are unambiguous, else full names.

    Raises TrainingError when the model has no such layer.
    """
    head = model.get_output_embeddings()
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    wanted = {
        name for name in linear if not EXCLUDED_PARTS & set(name.split(".")) and model.get_submodule(name) is not head
    }
    if not wanted:
        raise TrainingError(f"{model.config.model_type} has no linear layer to adapt")
    suffixes = {name.rpartition(".")[2] for name in wanted}
    ambiguous = any(name.rpartition(".")[2] in suffixes for name in linear - wanted)
    return sorted(wanted if ambiguous else suffixes)


def put_on(model: Any, lora: LoraConfig, *, seed: int) -> Any:
    """Wrap `model` in place with a fresh adapter (B = 0, so nothing changes yet) and return the PEFT model.

    A is drawn from `seed`; torch's global generator is left as it was. All base parameters stop requiring gradients.
    """
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=cast(int, lora.alpha),
        lora_dropout=0.0,
        bias="none",
        target_modules=find_targets(model),
        task_type=peft.TaskType.CAUSAL_LM,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        wrapped = peft.get_peft_model(model, config)
    # PEFT fills this in from the model and leaves it empty for one that was not loaded from a folder.
    wrapped.peft_config["default"].base_model_name_or_path = _base_name(model)
    return wrapped


def weights(peft_model: Any) -> dict[str, torch.Tensor]:
    """The adapter's tensors under the names of PEFT's file layout, detached, on the CPU and contiguous."""
    state = peft.get_peft_model_state_dict(peft_model, save_embedding_layers=False)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}


def write_into(peft_model: Any, folder: Path) -> None:
    """Write adapter_config.json and the weights into an existing folder. Raises OSError when the disk refuses."""
    config = copy.copy(peft_model.peft_config["default"])
    config.inference_mode = True
    config.target_modules = sorted(config.target_modules)
    config.save_pretrained(str(folder))
    write_tensors(folder / WEIGHTS, weights(peft_model))


def save(peft_model: Any, folder: Path) -> None:
    """Write the adapter as `folder`, whole or not at all.

    A published adapter never changes: an existing folder with the same weights is left alone (a resumed run saves
    again what it saved before), one with other weights raises TrainingError.
    Raises InfraError when the disk refuses.
    """
    if not folder.exists():
        with atomic_folder(folder) as temporary:
            write_into(peft_model, temporary)
    elif not holds(folder, weights(peft_model)):
        raise TrainingError(
            f"{folder} already holds another adapter", "adapter versions are immutable: save under a new name"
        )


def holds(folder: Path, expected: dict[str, torch.Tensor]) -> bool:
    """Whether a saved adapter has exactly these tensors (`weights`); false for one that cannot be read."""
    try:
        found = load_file(str(folder / WEIGHTS))
    except (OSError, SafetensorError):
        return False
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def _base_name(model: Any) -> str:
    """The base's name for whoever gets the adapter: a hub name as it stands, of a folder its name and not its place."""
    name = str(model.name_or_path or "")
    return (Path(name).name if Path(name).is_absolute() else name) or str(model.config.model_type)
