"""Shell text to a syntax tree, within limits that are counts.

tree-sitter-bash never fails; what it does not understand becomes an ERROR node. Some inputs cost it quadratic time:
runs of one operator, which are refused before parsing, and errors that it recovers from again and again (`_Reader`).

The tree is copied into plain `Node` objects at once: they are faster to walk, may be kept, and may be read by several
threads at the same time.

Invariant: a tree that `parse` returns has at most `MAX_NODES` nodes and is at most `MAX_TREE_DEPTH` deep.
Asymmetries: a long quoted here-document is data and does not count towards `MAX_TEXT`; it is cut out before parsing
and put back by number (`Source.bodies`). A short command whose words all stand for themselves needs no tree
(`plain_words`).
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_adapters.guard.memo import Memo
from harness_adapters.guard.values import clean, holds_any, names

if TYPE_CHECKING:
    import tree_sitter

MAX_TEXT = 65_536
MAX_SIGNS = 6_144
"""Blanks and signs: about half the number of nodes, known before the parser has spent time on them."""
MAX_NODES = 16_384
MAX_TREE_DEPTH = 200
MAX_OPERATOR_RUN = 256
MAX_OF_ONE_OPERATOR = {"<<": 512, "[": 2000, "|": 512}
_LONG_BODY = 2_048
_MAX_PIECES = 2 * MAX_OF_ONE_OPERATOR["<<"]
_PIECE = 256
_WITH_FIELDS = frozenset({"for_statement", "function_definition", "variable_assignment", "heredoc_redirect"})
"""Nodes whose children are asked for by the names of their fields."""

MAX_ALONE = 128
_BRACKET = re.compile(r"[(){}]")
_WORD_BYTES = bytes(byte for byte in range(256) if byte >= 128 or chr(byte).isalnum() or byte == ord("_"))
_RUN = re.compile(r"(?:[<>|&;(){}$!\[\]`]\s?){" + str(MAX_OPERATOR_RUN) + "}")
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"\\]?)([A-Za-z_][\w.-]*)")
_RESERVED = "\x06\x07\x0e\x0f\x10"
"""Characters that words and long bodies are marked with."""
_PLACE = re.compile(r"\x07(\d+)\x07")


_ALL_ASCII = bytes(byte if byte < 128 else ord("A") + byte % 26 for byte in range(256))
"""What the parser is given for each byte: its scanner looks characters up in tables that end at 255, and reads beyond
them. To the shell, too, what is not ASCII is one more letter of a word; capitals make no reserved word."""


_PLAIN = r"[\w./:,@%+~=-]+|'[^'\x00-\x1f]*'|\"[^\"$`\\!\x00-\x1f]*\""
_PLAIN_WORD = re.compile(_PLAIN, re.ASCII)
_PLAIN_COMMAND = re.compile(rf"\s*(?!\w+[@%])[A-Za-z_./][\w./:@%+~-]*(?:[ \t]+(?:{_PLAIN}))*[ \t]*", re.ASCII)
_NO_PROGRAMS = frozenset(
    names(
        "if then elif else fi for while until do done case esac in function select time coproc declare typeset export "
        "readonly local unset unsetenv"
    )
)
"""First words that make a text something else than a simple command."""


def plain_words(text: str) -> list[str] | None:
    """The words of a short simple command without anything to expand, as the tree would give them; None for others."""
    if len(text) >= _PIECE or not _PLAIN_COMMAND.fullmatch(text):
        return None
    words = _PLAIN_WORD.findall(text) if "'" in text or '"' in text else text.split()
    if words[0] in _NO_PROGRAMS:
        return None
    return [word[1:-1] if word[0] in "'\"" else word for word in words]


class Node:
    """One node of the tree. `field` is its name in its parent, for the few parents whose fields are asked for."""

    __slots__ = ("children", "end_byte", "field", "is_named", "start_byte", "type")

    def __init__(self, node: tree_sitter.Node | None) -> None:
        assert node is not None
        self.type: str = node.type
        self.start_byte: int = node.start_byte
        self.end_byte: int = node.end_byte
        self.is_named: bool = node.is_named
        self.field: str | None = None
        self.children: list[Node] = []

    @property
    def named_children(self) -> list[Node]:
        return [child for child in self.children if child.is_named]

    def child_of_field(self, name: str) -> Node | None:
        """The first child with this name."""
        return next((child for child in self.children if child.field == name), None)

    def children_of_field(self, name: str) -> list[Node]:
        return [child for child in self.children if child.field == name]


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed text: the bytes that node offsets refer to, the tree's root, and the bodies that were cut out.

    `plain` is the text itself where bytes and characters are the same.
    """

    data: bytes
    plain: str | None
    root: Node
    bodies: tuple[str, ...]

    def text(self, start: int, end: int) -> str:
        """The source between two offsets, with long bodies put back."""
        text = self.plain[start:end] if self.plain is not None else self.data[start:end].decode("utf-8", "replace")
        if not self.bodies:
            return text
        return _PLACE.sub(lambda m: self.bodies[int(m[1])], text) if "\x07" in text else text


_PARSED: Memo[str, Source] = Memo(entries=512, weight=8 << 20)
_NODE_WEIGHT = 256
"""Bytes that one node takes, roughly."""


def parse(text: str) -> Source | None:
    """The syntax tree of a shell text; None where it is over a limit."""
    source = _PARSED.get(text)
    if source is None:
        parsed = _parse(text)
        if parsed is None:
            return None
        source, nodes = parsed
        _PARSED.put(text, source, 4 * len(text) + _NODE_WEIGHT * nodes)
    return source


def _parse(text: str) -> tuple[Source, int] | None:
    text = clean(text)
    if holds_any(text, _RESERVED):
        text = text.translate(dict.fromkeys(map(ord, _RESERVED), " "))
    text, bodies = _cut_long_bodies(text)
    data = text.encode("utf-8", "replace")
    if len(data) >= _PIECE and _is_too_much(text, data):
        return None
    plain = text.isascii()
    tree = _tree(data if plain else data.translate(_ALL_ASCII))
    nodes = tree.root_node.descendant_count if tree else 0
    root = _copy(tree) if tree and nodes <= MAX_NODES else None
    return None if root is None else (Source(data, text if plain else None, root, bodies), nodes)


def _is_too_much(text: str, data: bytes) -> bool:
    """Whether a text is over one of the counts, none of which a text of less than `_PIECE` bytes can reach."""
    if len(data) > MAX_TEXT or _RUN.search(text):
        return True
    if len(data) > MAX_SIGNS and len(data.translate(None, _WORD_BYTES)) > MAX_SIGNS:
        return True
    if any(text.count(operator) > limit for operator, limit in MAX_OF_ONE_OPERATOR.items()):
        return True
    return _is_lopsided(text)


def _is_lopsided(text: str) -> bool:
    """Whether many brackets have no partner: each costs the parser a try at every reading that it then has open."""
    alone = depth = 0
    for bracket in _BRACKET.findall(text):
        if bracket in "({":
            depth += 1
        elif depth:
            depth -= 1
        else:
            alone += 1
        if alone > MAX_ALONE or depth > MAX_ALONE:
            return True
    return False


def _tree(data: bytes) -> tree_sitter.Tree | None:
    if len(data) <= _PIECE:
        return _parser().parse(data)
    reader = _Reader(data)
    tree = _parser().parse(reader)
    return tree if reader.left >= 0 else None


class _Reader:
    """Gives the parser its text piece by piece, and nothing more once it has asked too often.

    Going back to try another reading of the text is what costs the parser quadratic time, and it asks again for each
    piece that it goes back to: a bound that is a count, and the same on every machine.
    """

    __slots__ = ("data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = 32 + 2 * (len(data) // _PIECE)

    def __call__(self, offset: int, point: object) -> bytes:
        self.left -= 1
        return self.data[offset : offset + _PIECE] if self.left >= 0 else b""


def _cut_long_bodies(text: str) -> tuple[str, tuple[str, ...]]:
    if "<<" not in text or len(text) < _LONG_BODY:
        return text, ()
    pieces: list[str] = []
    bodies: list[str] = []
    at = 0
    while (match := _HEREDOC.search(text, at)) and len(pieces) < _MAX_PIECES:
        tabs, quote, word = match.groups()
        start = text.find("\n", match.end()) + 1
        last, end = _end_of_body(text, start, word, tabs=bool(tabs)) if start else (-1, -1)
        if end < 0:
            break
        body = text[start:last]
        inert = bool(quote) or ("$" not in body and "`" not in body)
        if len(body) > _LONG_BODY and inert:
            pieces += [text[at:start], f"\x07{len(bodies)}\x07\n"]
            bodies.append(body.removesuffix("\n"))
            at = last
        else:
            pieces.append(text[at:end])
            at = end
    pieces.append(text[at:])
    return "".join(pieces), tuple(bodies)


def _end_of_body(text: str, start: int, word: str, *, tabs: bool) -> tuple[int, int]:
    """Where the line that ends a here-document starts and ends; -1 where there is none."""
    if tabs:
        last = re.compile(rf"^\t*{re.escape(word)}$", re.MULTILINE).search(text, start)
        return last.span() if last else (-1, -1)
    found = text.find("\n" + word, start - 1)
    while found >= 0:
        end = found + 1 + len(word)
        if text[end : end + 1] in ("", "\n"):
            return found + 1, end
        found = text.find("\n" + word, end)
    return -1, -1


_THREAD = threading.local()


def _parser() -> tree_sitter.Parser:
    """This thread's parser: one must not be used by two threads at a time."""
    parser: tree_sitter.Parser | None = getattr(_THREAD, "parser", None)
    if parser is None:
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        parser = _THREAD.parser = Parser(Language(tree_sitter_bash.language()))
    return parser


def _copy(tree: tree_sitter.Tree) -> Node | None:
    """The tree as plain nodes; None where it is too deep."""
    cursor = tree.walk()
    parent = root = Node(cursor.node)
    above: list[Node] = []
    down = cursor.goto_first_child()
    while down:
        child = Node(cursor.node)
        if parent.type in _WITH_FIELDS:
            child.field = cursor.field_name
        parent.children.append(child)
        if cursor.goto_first_child():
            above.append(parent)
            parent = child
            if len(above) > MAX_TREE_DEPTH:
                return None
            continue
        while not cursor.goto_next_sibling():
            cursor.goto_parent()
            if not above:
                return root
            parent = above.pop()
    return root
