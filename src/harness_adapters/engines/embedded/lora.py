"""A LoRA adapter as the lean engine uses it: per layer and module, and as a table of addresses.

Invariant: an adapter is immutable once read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from harness_adapters.engines.embedded.model import MODULES, LlamaModel
from harness_adapters.engines.embedded.peft_folder import read_low_rank


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A loaded adapter. `pairs[layer][module]` is (A `[rank, in]`, B `[out, rank]`).

    `addresses` is int64 `[layers, modules, 2]`: where each pair lies, modules in the order of `MODULES`, 0 for none.
    """

    name: str
    rank: int
    pairs: tuple[Mapping[str, tuple[Tensor, Tensor]], ...]
    addresses: npt.NDArray[np.int64]


def read_adapter(name: str, folder: Path, model: LlamaModel) -> Adapter:
    """The adapter of a PEFT folder. Raises EngineError naming what does not fit this model."""
    layers = range(model.kv_shape.layers)
    places = {f"model.layers.{layer}.{module}": (layer, module) for layer in layers for module in MODULES}
    read = read_low_rank(folder, {place: model.module_shapes[module] for place, (_, module) in places.items()})
    pairs: tuple[dict[str, tuple[Tensor, Tensor]], ...] = tuple({} for _ in layers)
    for place, pair in read.pairs.items():
        layer, module = places[place]
        pairs[layer][module] = pair
    return Adapter(name, read.rank, pairs, _addresses(pairs))


def _addresses(pairs: Sequence[Mapping[str, tuple[Tensor, Tensor]]]) -> npt.NDArray[np.int64]:
    table = np.zeros((len(pairs), len(MODULES), 2), dtype=np.int64)
    for layer, by_module in enumerate(pairs):
        for place, module in enumerate(MODULES):
            if module in by_module:
                table[layer, place] = [matrix.data_ptr() for matrix in by_module[module]]
    return table
