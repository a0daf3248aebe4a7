"""Token tries: many rows that begin alike, laid out so that every shared prefix is computed once. No torch.

A node is a token at a depth under a parent node. Nodes are numbered in depth-first order, so the descendants of node
`n` are exactly `n + 1 .. ends[n] - 1`, and `a` is an ancestor of `n` (or `n` itself) if and only if
`a <= n < ends[a]`. Depth is the token's position in its row.

Invariants
- Every (row, trained token) pair is a loss term of its own, also where rows share the token: its old log-prob and
  its advantage are those of its row.
- A term names the node that *predicts* its token (the token's parent), so a token that nothing trained follows needs
  no node. Asymmetry: a row's last trained token, and what comes after it, is therefore not in the trie.
- Each row is in one trie only. Rows that are longer than the budget are in none; `Packing.dropped` lists them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow

Indices = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Trie:
    """T nodes and K loss terms.

    `token_ids`, `depths`, `parents` (-1 for a root), `ends`: int64 [T]. `term_rows` (index of the row in the sequence
    that was packed), `term_nodes` (the predicting node), `term_tokens` (the predicted token id): int64 [K], row by
    row. `term_logprobs` (when sampled, nats) and `term_advantages`: float32 [K].
    """

    token_ids: Indices
    depths: Indices
    parents: Indices
    ends: Indices
    term_rows: Indices
    term_nodes: Indices
    term_tokens: Indices
    term_logprobs: Values
    term_advantages: Values

    def __len__(self) -> int:
        return len(self.token_ids)

    @cached_property
    def detachable(self) -> int:
        """How many nodes at the root every row passes through before the first node that predicts a trained token."""
        # In depth-first order the leading nodes whose subtree reaches the end are a chain with all else below it.
        chain = int(np.argmin(np.append(self.ends == len(self), False)))
        return min(chain, int(self.term_nodes.min()))

    def path(self, node: int) -> Indices:
        """The proper ancestors of `node`, root first: int64 [depth of node]."""
        found = np.empty(int(self.depths[node]), np.int64)
        for place in range(len(found) - 1, -1, -1):
            node = int(self.parents[node])
            found[place] = node
        return found

    def sees(self, queries: Indices, keys: Indices) -> npt.NDArray[np.bool_]:
        """Whether each query node may attend to each key node (its ancestors and itself): bool [queries, keys]."""
        after, ends = queries[:, None], self.ends[keys][None, :]
        seen: npt.NDArray[np.bool_] = (keys[None, :] <= after) & (after < ends)
        return seen


@dataclass(frozen=True)
class Packing:
    """Tries that hold all rows but the dropped ones. `raw_tokens` counts tokens as if no prefix were shared."""

    tries: tuple[Trie, ...]
    dropped: tuple[int, ...]
    raw_tokens: int

    @property
    def unique_tokens(self) -> int:
        return sum(len(trie) for trie in self.tries)


def pack(rows: Sequence[TrainRow], max_unique_tokens: int) -> Packing:
    """Pack rows into as few unique tokens as contiguous runs in token order allow.

    Each trie has at most `max_unique_tokens` nodes. Rows sorted by their tokens are in the depth-first order of the
    trie of all of them, so a cut between neighbours costs the prefix they share; the cuts with the least total cost
    are found exactly, which keeps rows of one prompt (a group) together wherever the budget allows. Rows without a
    trained token are passed over.
    """
    needed = {index: _needed(row) for index, row in enumerate(rows) if any(row.trained)}
    dropped = tuple(index for index, tokens in needed.items() if len(tokens) > max_unique_tokens)
    order = sorted((index for index in needed if index not in set(dropped)), key=lambda index: (needed[index], index))
    shared = _shared_lengths([needed[index] for index in order])
    lengths = [len(needed[index]) for index in order]
    bounds = _cut(lengths, shared, max_unique_tokens)
    tries = tuple(
        _build(rows, order[start:stop], [0, *shared[start + 1 : stop]]) for start, stop in itertools.pairwise(bounds)
    )
    return Packing(tries=tries, dropped=dropped, raw_tokens=sum(lengths))


def build(rows: Sequence[TrainRow]) -> Trie:
    """One trie of all rows. Raises TrainingError when no row has a trained token."""
    packing = pack(rows, max_unique_tokens=sum(len(row.token_ids) for row in rows))
    if len(packing.tries) != 1:
        raise TrainingError("no row has a trained token", "check which calls were labelled as the agent's")
    return packing.tries[0]


def _needed(row: TrainRow) -> tuple[int, ...]:
    last = max(position for position, trained in enumerate(row.trained) if trained)
    return row.token_ids[:last]


def _shared_lengths(sequences: Sequence[Sequence[int]]) -> list[int]:
    """For each sequence, the length of the prefix it shares with the one before (0 for the first)."""
    shared = [0] * len(sequences)
    arrays = [np.asarray(sequence, np.int64) for sequence in sequences]
    for place in range(1, len(arrays)):
        shorter = min(len(arrays[place]), len(arrays[place - 1]))
        differs = np.flatnonzero(arrays[place][:shorter] != arrays[place - 1][:shorter])
        shared[place] = int(differs[0]) if len(differs) else shorter
    return shared


def _cut(lengths: Sequence[int], shared: Sequence[int], budget: int) -> list[int]:
    """Bounds of contiguous runs within the budget with the fewest unique tokens in all, then the fewest runs."""
    count = len(lengths)
    best: list[tuple[int, int]] = [(0, 0)] + [(-1, -1)] * count
    came_from = [0] * (count + 1)
    for start in range(count):
        unique = 0
        for stop in range(start + 1, count + 1):
            unique += lengths[stop - 1] - (shared[stop - 1] if stop - 1 > start else 0)
            if unique > budget:
                break
            cost = (best[start][0] + unique, best[start][1] + 1)
            if best[stop][0] < 0 or cost < best[stop]:
                best[stop], came_from[stop] = cost, start
    bounds = [count]
    while bounds[-1] > 0:
        bounds.append(came_from[bounds[-1]])
    return bounds[::-1]


def _build(rows: Sequence[TrainRow], order: Sequence[int], shared: Sequence[int]) -> Trie:
    """The trie of `rows[i] for i in order`, which are sorted; `shared[k]` is what row k shares with row k - 1."""
    size = sum(len(_needed(rows[index])) - common for index, common in zip(order, shared, strict=True))
    token_ids, depths, parents, ends = (np.empty(size, np.int64) for _ in range(4))
    terms: list[tuple[Indices, TrainRow, int]] = []
    path = np.empty(0, np.int64)
    filled = 0
    for index, common in zip(order, shared, strict=True):
        tokens = _needed(rows[index])
        fresh = np.arange(filled, filled + len(tokens) - common)
        ends[path[common:]] = filled
        path = np.concatenate([path[:common], fresh])
        token_ids[fresh] = tokens[common:]
        depths[fresh] = np.arange(common, len(tokens))
        parents[fresh] = np.concatenate([[-1], path[:-1]])[common : len(tokens)]
        filled += len(fresh)
        terms.append((path, rows[index], index))
    ends[path] = filled
    return Trie(token_ids, depths, parents, ends, *_terms(terms))


def _terms(rows: Sequence[tuple[Indices, TrainRow, int]]) -> tuple[Indices, Indices, Indices, Values, Values]:
    parts: list[tuple[Indices, Indices, Indices, Values, Values]] = []
    for path, row, index in rows:
        at = np.flatnonzero(row.trained)
        parts.append(
            (
                np.full(len(at), index),
                path[at - 1],
                np.asarray(row.token_ids, np.int64)[at],
                np.asarray(row.logprobs, np.float32)[at],
                np.full(len(at), row.advantage, np.float32),
            )
        )
    term_rows, nodes, tokens, logprobs, advantages = (np.concatenate(column) for column in zip(*parts, strict=True))
    return term_rows, nodes, tokens, logprobs, advantages
