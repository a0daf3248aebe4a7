"""Shell text to a syntax tree, within limits that are counts.

tree-sitter-bash never fails; what it does not understand becomes an ERROR node. Some inputs cost it quadratic time, all
of them with very many of one operator, so those are refused before parsing.

Invariant: a tree that `parse` returns has at most `MAX_NODES` nodes.
Asymmetry: a long quoted here-document is data and does not count towards `MAX_TEXT`; it is cut out before parsing and
put back by number (`Source.bodies`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from harness_adapters.guard.values import clean

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_TEXT = 65_536
MAX_NODES = 40_000
MAX_TREE_DEPTH = 400
MAX_OPERATOR_RUN = 256
MAX_OF_ONE_OPERATOR = {"<<": 512, "[": 2000, "|": 2000}
_LONG_BODY = 2_048

_RUN = re.compile(r"(?:[<>|&;(){}$!\[\]`]\s?){" + str(MAX_OPERATOR_RUN) + "}")
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"\\]?)([A-Za-z_][\w.-]*)")
_PLACE = re.compile(r"\x07(\d+)\x07")


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed text: the bytes that node offsets refer to, the tree's root, and the bodies that were cut out."""

    data: bytes
    root: Node
    bodies: tuple[str, ...]

    def text(self, start: int, end: int) -> str:
        """The source between two offsets, with long bodies put back."""
        text = self.data[start:end].decode("utf-8", "replace")
        return _PLACE.sub(lambda m: self.bodies[int(m[1])], text) if "\x07" in text else text


def parse(text: str) -> Source | None:
    """The syntax tree of a shell text; None where it is over a limit."""
    text = clean(text).replace("\x07", " ")
    text, bodies = _cut_long_bodies(text)
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_TEXT or _RUN.search(text):
        return None
    if any(text.count(operator) > limit for operator, limit in MAX_OF_ONE_OPERATOR.items()):
        return None
    tree = _parser().parse(lambda offset, _point: data[offset : offset + 8192])
    if tree is None or not _within_limits(tree.root_node):
        return None
    return Source(data, tree.root_node, bodies)


def _cut_long_bodies(text: str) -> tuple[str, tuple[str, ...]]:
    if "<<" not in text or len(text) < _LONG_BODY:
        return text, ()
    pieces: list[str] = []
    bodies: list[str] = []
    at = 0
    while match := _HEREDOC.search(text, at):
        tabs, quote, word = match.groups()
        start = text.find("\n", match.end()) + 1
        last = re.compile(rf"^{chr(9) + '*' if tabs else ''}{re.escape(word)}$", re.MULTILINE)
        end = last.search(text, start) if start else None
        if end is None:
            break
        body = text[start : end.start()]
        inert = bool(quote) or ("$" not in body and "`" not in body)
        if len(body) > _LONG_BODY and inert:
            pieces += [text[at:start], f"\x07{len(bodies)}\x07\n"]
            bodies.append(body.removesuffix("\n"))
            at = end.start()
        else:
            pieces.append(text[at : end.end()])
            at = end.end()
    pieces.append(text[at:])
    return "".join(pieces), tuple(bodies)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _within_limits(root: Node) -> bool:
    cursor = root.walk()
    count = 0
    depth = 0
    while True:
        count += 1
        if count > MAX_NODES or depth > MAX_TREE_DEPTH:
            return False
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return True
            depth -= 1
