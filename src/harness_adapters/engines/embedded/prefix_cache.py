"""Keys and values of prompts already computed, per adapter, in a radix tree over tokens with an LRU bound.

A node holds the keys and values of its own run of tokens; the path from the root to it is a prefix. Two sequences with
a common beginning share the nodes of that beginning, down to the single token.

Invariants
- What `match` returns is exactly what was computed for those tokens under that adapter.
- The stored bytes never exceed the budget; a node that a running sequence refers to, or that has children, stays.
- An adapter's tree is dropped with it, and a sequence that outlives it stores nothing.

Asymmetry: long leading nodes are referred to (attention reads them once for all sequences that share them); the short
rest of a match is for the caller to copy, since every further part of a context costs a pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness_adapters.engines.embedded.kv import KVShape, Segment

LONG = 256
"""Tokens from which on a node is worth referring to rather than copying."""

MAX_PARTS = 4
"""Nodes of a path that a sequence refers to at most when it starts."""


@dataclass(slots=True, eq=False)
class Node:
    """A run of tokens below `parent`. `pins` counts the running sequences whose deepest node this is."""

    tokens: tuple[int, ...]
    segment: Segment | None
    parent: Node | None
    children: dict[int, Node] = field(default_factory=dict)
    pins: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """A pinned `node` (None: nothing long enough) that covers `referred` tokens, and pieces to copy after it."""

    node: Node | None
    referred: int
    pieces: tuple[Segment, ...]

    @property
    def length(self) -> int:
        return self.referred + sum(piece.length for piece in self.pieces)


def path_of(node: Node | None) -> tuple[Segment, ...]:
    """The segments from the root to `node`, in token order. A split on the way shows up here at once."""
    segments: list[Segment] = []
    while node is not None:
        if node.segment is not None:
            segments.append(node.segment)
        node = node.parent
    return tuple(reversed(segments))


class PrefixCache:
    """Trees by key (one key per loaded adapter). Not thread-safe: the engine's thread owns it."""

    def __init__(self, shape: KVShape, budget_bytes: int) -> None:
        self._shape = shape
        self._budget = budget_bytes
        self._roots: dict[int, Node] = {}
        self._clock = 0
        self.bytes = 0

    @property
    def enabled(self) -> bool:
        return self._budget > 0

    def open(self, key: int) -> None:
        self._roots[key] = Node((), None, None)

    def drop(self, key: int) -> None:
        """Forget all prefixes of a key. Sequences that still refer to its nodes keep them alive until they end."""
        root = self._roots.pop(key, None)
        if root is not None:
            self.bytes -= sum(self._size(node) for node in _below(root))

    def match(self, key: int, tokens: Sequence[int]) -> Match:
        """The longest stored prefix of `tokens`, its long leading part pinned; undo with `release`."""
        path = self._walk(key, tokens)
        if path and path[-1][1] >= LONG and path[-1][1] < len(path[-1][0].tokens):
            path[-1] = (self._split(*path[-1]), path[-1][1])
        keep = 0
        for index, (node, length) in enumerate(path[:MAX_PARTS]):
            if length >= LONG and length == len(node.tokens):
                keep = index + 1
        for node, _ in path:
            node.used = self._tick()
        pieces = tuple(
            segment if length == segment.length else segment.copy(0, length)
            for node, length in path[keep:]
            if (segment := node.segment) is not None
        )
        if not keep:
            return Match(None, 0, pieces)
        path[keep - 1][0].pins += 1
        return Match(path[keep - 1][0], sum(length for _, length in path[:keep]), pieces)

    def matched(self, key: int, tokens: Sequence[int]) -> int:
        """How many leading tokens are stored, without touching anything."""
        return sum(length for _, length in self._walk(key, tokens))

    def release(self, node: Node | None) -> None:
        if node is not None:
            node.pins -= 1

    def insert(self, key: int, tokens: Sequence[int], computed: Callable[[int, int], Segment]) -> Node | None:
        """Store what is new of `tokens`; `computed(start, stop)` gives their keys and values and may be kept.

        Returns the deepest node, which then covers exactly `tokens`, or None where nothing could be stored.
        """
        root = self._roots.get(key)
        if root is None or not tokens:
            return None
        path = self._walk(key, tokens)
        parent, known = root, sum(length for _, length in path)
        if path:
            node, length = path[-1]
            parent = node if length == len(node.tokens) else self._split(node, length)
        if known == len(tokens):
            parent.used = self._tick()
            return parent
        parent.pins += 1
        fits = self._make_room((len(tokens) - known) * self._shape.token_bytes)
        parent.pins -= 1
        if not fits:
            return None
        child = Node(tuple(tokens[known:]), computed(known, len(tokens)), parent, used=self._tick())
        parent.children[child.tokens[0]] = child
        self.bytes += self._size(child)
        return child

    def _walk(self, key: int, tokens: Sequence[int]) -> list[tuple[Node, int]]:
        """Nodes along `tokens` and how many of each one's tokens agree; only the last may agree in part."""
        node = self._roots.get(key)
        path: list[tuple[Node, int]] = []
        at = 0
        while node is not None and at < len(tokens):
            node = node.children.get(tokens[at])
            if node is None:
                break
            common = common_prefix(node.tokens, tokens[at : at + len(node.tokens)])
            path.append((node, common))
            at += common
            if common < len(node.tokens):
                break
        return path

    def _split(self, node: Node, at: int) -> Node:
        """Put the first `at` tokens of `node` into a new parent of it; both get storage of their own."""
        assert node.parent is not None
        assert node.segment is not None
        upper = Node(node.tokens[:at], node.segment.copy(0, at), node.parent, used=node.used)
        node.parent.children[upper.tokens[0]] = upper
        node.tokens, node.segment = node.tokens[at:], node.segment.copy(at, node.segment.length)
        upper.children[node.tokens[0]] = node
        node.parent = upper
        return upper

    def _make_room(self, need: int) -> bool:
        if need > self._budget:
            return False
        while self.bytes + need > self._budget:
            leaves = [
                node for root in self._roots.values() for node in _below(root) if not node.children and not node.pins
            ]
            if not leaves:
                return False
            oldest = min(leaves, key=lambda node: node.used)
            assert oldest.parent is not None
            del oldest.parent.children[oldest.tokens[0]]
            self.bytes -= self._size(oldest)
        return True

    def _size(self, node: Node) -> int:
        return len(node.tokens) * self._shape.token_bytes

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def _below(root: Node) -> list[Node]:
    found: list[Node] = []
    open_nodes = list(root.children.values())
    while open_nodes:
        node = open_nodes.pop()
        found.append(node)
        open_nodes.extend(node.children.values())
    return found


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning of two token sequences."""
    if one == other:
        return len(one)
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
