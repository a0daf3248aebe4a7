"""Attention over a token trie: each node attends to its ancestors and itself, at close to the cost of the rows' own.

The nodes are cut into blocks of consecutive nodes. In depth-first order the ancestors that a block's nodes have
outside the block are all ancestors of the block's first node: one root path. So a block's queries need only the keys
of that path and of the block, and the square of all nodes is never formed. Inside, a block uses scaled dot-product
attention with a mask.

The function is registered with transformers under `NAME` and receives its plan through the model's keyword
arguments; it works for every architecture that goes through transformers' attention interface. What changes the
scores in other ways (sliding window, soft cap, attention sinks) is refused.

Asymmetry: with a prefix (`TriePlan.prefix`) the queries start after it, and its keys and values come from
`PrefixStates` instead of the current pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from harness_adapters.errors import TrainingError
from harness_adapters.training.trie import Trie

NAME = "harness_adapters_trie"

LONGEST_BLOCK = 256
SHORTEST_BLOCK = 64


@dataclass
class PrefixStates:
    """Keys and values of a shared prefix, per layer: [1, key-value heads, prefix length, head size], no gradient."""

    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def followed_by(self, more: PrefixStates) -> PrefixStates:
        """The states of this prefix and of the nodes right after it."""
        if not self.layers:
            return more
        pairs = {layer: zip(states, more.layers[layer], strict=True) for layer, states in self.layers.items()}
        joined = {layer: [torch.cat(parts, dim=2) for parts in pair] for layer, pair in pairs.items()}
        return PrefixStates({layer: (key, value) for layer, (key, value) in joined.items()})


@dataclass(frozen=True)
class Block:
    """Nodes `start .. stop - 1` of the current pass, the earlier nodes of it they may attend to, and the mask.

    `start`, `stop` and `path` (int64 [path]) count from the end of the prefix. `mask` is additive,
    [stop - start, prefix + path + stop - start], 0 or -inf.
    """

    start: int
    stop: int
    path: Tensor
    mask: Tensor


@dataclass(frozen=True)
class TriePlan:
    """How one pass attends. `record`, when given, is filled with the keys and values of every layer."""

    blocks: tuple[Block, ...]
    prefix: PrefixStates | None = None
    record: PrefixStates | None = None


def plan_blocks(trie: Trie, start: int, stop: int, *, prefix_length: int, like: Tensor) -> tuple[Block, ...]:
    """Blocks for the nodes `start .. stop - 1`; masks get the dtype and device of `like`."""
    bounds = cut_blocks(trie, start, stop)
    blocks = []
    for first, after in itertools.pairwise(bounds):
        nodes = np.arange(first, after)
        path = trie.path(first)
        seen = torch.from_numpy(trie.sees(nodes, np.concatenate([path, nodes])))
        mask = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
        mask.masked_fill_(~seen.to(like.device), float("-inf"))
        own_path = torch.from_numpy(path[prefix_length:] - prefix_length).to(like.device)
        blocks.append(Block(first - prefix_length, after - prefix_length, own_path, mask))
    return tuple(blocks)


def cut_blocks(trie: Trie, start: int, stop: int) -> list[int]:
    """Bounds of the blocks: at branches where the block is long enough, and wherever it would get too long."""
    bounds = [start]
    for node in range(start + 1, stop):
        length = node - bounds[-1]
        branches = trie.parents[node] != node - 1
        if length >= LONGEST_BLOCK or (branches and length >= SHORTEST_BLOCK):
            bounds.append(node)
    return [*bounds, stop]


def trie_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    trie_plan: TriePlan | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention output [1, S, heads, head size] of query [1, heads, S, ...] on key and value [1, kv heads, S, ...]."""
    if trie_plan is None:
        raise TrainingError("trie attention was called without a plan", "run the model through training.forward")
    for name in ("sliding_window", "softcap", "s_aux"):
        if others.get(name) is not None:
            raise TrainingError(f"{type(module).__name__} uses {name}, which trie attention does not support")
    layer: int = module.layer_idx  # type: ignore[assignment]
    if trie_plan.record is not None:
        trie_plan.record.layers[layer] = (key.detach(), value.detach())
    shared = trie_plan.prefix.layers[layer] if trie_plan.prefix is not None else None
    outputs = [_attend(query, key, value, block, shared, scaling) for block in trie_plan.blocks]
    return torch.cat(outputs, dim=1), None


def _attend(
    query: Tensor, key: Tensor, value: Tensor, block: Block, shared: tuple[Tensor, Tensor] | None, scaling: float | None
) -> Tensor:
    """One block's output [1, block, heads, head size]."""
    heads, groups = query.shape[1], key.shape[1]
    states = [_gather(source, block, None if shared is None else shared[at]) for at, source in enumerate((key, value))]
    # Key-value heads become the batch and their query heads the heads, so that keys are broadcast and not copied.
    own_query = query[0, :, block.start : block.stop]
    folded_query = own_query.reshape(groups, heads // groups, *own_query.shape[1:])
    keys, values = (state[0].unsqueeze(1).expand(-1, heads // groups, -1, -1) for state in states)
    output = F.scaled_dot_product_attention(folded_query, keys, values, attn_mask=block.mask, scale=scaling)
    return output.flatten(0, 1).transpose(0, 1).unsqueeze(0)


def _gather(source: Tensor, block: Block, shared: Tensor | None) -> Tensor:
    """Keys or values that a block needs: prefix, root path, block: [1, kv heads, mask columns, head size]."""
    parts = [] if shared is None else [shared]
    if len(block.path):
        parts.append(source.index_select(2, block.path))
    parts.append(source[:, :, block.start : block.stop])
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


@contextmanager
def attending_along_tries(model: Any) -> Iterator[None]:
    """Let a transformers model use `trie_attention` inside the block, and its own implementation again afterwards."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


AttentionInterface.register(NAME, trie_attention)
