"""Python text to a syntax tree whose nodes are listed once, within limits that are counts.

Invariant: whether a text is over a limit depends on the text alone. Python's own limit on depth, which depends on how
deep the caller's stack is, lies far beyond `MAX_DEPTH`, and both give the same answer.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator
from enum import Enum

from harness_adapters.guard.memo import Memo
from harness_adapters.guard.python_bindings import Bindings

MAX_DEPTH = 160
MAX_NODES = 12_000
_MAX_TOKENS = 12_000
_SURELY_SMALL = 8_192
_TEXTS = re.compile(r"\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*'''|\"[^\"\\\n]*\"|'[^'\\\n]*'")
_WORDS = bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123)) + b"_"
_LEAVES = frozenset({"ctx", "op", "ops", "id", "attr", "arg", "module", "level", "kind", "type_comment", "simple"})


class Refused(Enum):
    """Why there is no tree."""

    SYNTAX = "not Python"
    SIZE = "too long"
    DEPTH = "nested too deeply"


class Module:
    """A module's tree. `nodes` are in the order of `ast.walk`, without contexts and operators."""

    __slots__ = ("_bindings", "identifiers", "nodes", "parents", "tree")

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes: list[ast.AST] = [tree]
        self.parents: dict[ast.AST, ast.AST] = {}
        self.identifiers: set[str] = set()
        """Every name and attribute that the code uses."""
        self._bindings: Bindings | None = None

    @property
    def bindings(self) -> Bindings:
        """What names are bound to, collected when first asked for."""
        if self._bindings is None:
            self._bindings = Bindings(self.nodes)
        return self._bindings

    @property
    def texts(self) -> Iterator[str]:
        """The string literals, in the order of `nodes`."""
        constants = (node.value for node in self.nodes if isinstance(node, ast.Constant))
        return (value for value in constants if isinstance(value, str))

    def fill(self) -> Refused | None:
        """List the nodes level by level; what limit that went over."""
        start = 0
        for _ in range(MAX_DEPTH):
            end = len(self.nodes)
            if start == end:
                return None
            if end > MAX_NODES:
                return Refused.SIZE
            for node in self.nodes[start:end]:
                self._add_children(node)
            start = end
        return Refused.DEPTH

    def _add_children(self, node: ast.AST) -> None:
        kind = type(node)
        if kind is ast.Name:
            self.identifiers.add(node.id)  # type: ignore[attr-defined]
            return
        if kind is ast.Constant:
            return
        if kind is ast.Attribute:
            self.identifiers.add(node.attr)  # type: ignore[attr-defined]
        nodes, parents = self.nodes, self.parents
        for field in _fields(kind):
            value = getattr(node, field, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        parents[item] = node
                        nodes.append(item)
            elif isinstance(value, ast.AST):
                parents[value] = node
                nodes.append(value)


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(field for field in kind._fields if field not in _LEAVES)
    return fields


_WARNINGS = threading.Lock()
"""Held while warnings are silenced, which is done for the whole process."""
_PARSED: Memo[str, Module | Refused] = Memo(entries=256, weight=16 << 20)
_NODE_WEIGHT = 512
"""Bytes that one node takes, roughly."""


def parse_module(code: str) -> Module | Refused:
    """The tree of a module, or why there is none."""
    parsed = _PARSED.get(code)
    if parsed is None:
        parsed = _parse(code)
        nodes = len(parsed.nodes) if isinstance(parsed, Module) else 0
        _PARSED.put(code, parsed, 256 + 4 * len(code) + _NODE_WEIGHT * nodes)
    return parsed


def _parse(code: str) -> Module | Refused:
    if len(code) > _SURELY_SMALL and _tokens(code) > _MAX_TOKENS:
        return Refused.SIZE
    try:
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return Refused.SYNTAX
    except (RecursionError, MemoryError):
        return Refused.DEPTH
    module = Module(tree)
    return module.fill() or module


def _tokens(code: str) -> int:
    """About how many words and signs there are outside string literals."""
    bare = _TEXTS.sub("''", code).encode("utf-8", "replace")
    signs = len(bare.translate(None, _WORDS + b" \t\r\n"))
    return signs + len(bare.split())
