"""The string literals of a JSON text: decoded to be searched, encoded again only where they changed.

Invariants
- Everything that is not a changed literal keeps its bytes: numbers, white space, order, doubled keys. Only a number
  that is a password becomes a literal.
- A changed literal is encoded so that it decodes to exactly the new text, ASCII-only where it was so before.
- Searched is one buffer of all decoded literals; `\\x01` stands between a key and its value, `\\x00` between any other
  two, so that a rule sees `name\\x01value`.

Asymmetry: an identifier (`id`, `call_id`, `parentUuid`, … by its key) is searched only for secrets of unmistakable
form; it must stay byte for byte, since other lines refer to it.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping

import orjson

from harness_adapters.scrub.number_passwords import with_passwords_quoted

_LITERAL = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?', re.DOTALL)
_ID_KEY = re.compile(
    r"(?:^|_)(?:id|ids|uuid|guid)$|[a-z](?:Id|ID|Ids|Uuid|UUID)$|^(?:hash|commit|snapshot|sha|oid|leaf|slug"
    r"|version|fingerprint|checksum|etag|revision)$"
)
_JSON_START = re.compile(rb'[ \t\r\n\f\v]*[{\["\-0-9tfnNI]|\xef\xbb\xbf|[^\x20-\x7e]')
_OPENING, _CLOSING = frozenset({b"{", b"["}), (b"}", b"]")
_NESTED_SIGNS = (b'"{', b'"[', b'"\\u00')
"""How a literal starts whose text may be JSON: none of them is in a line that has no such literal."""
_SECRET_ID = re.compile(r"(?i)access_?key_?id$|client_?id$|^sid$")


class Document:
    """A valid JSON text taken apart at its string literals, in order.

    `texts` are the decoded literals, `nested` those that are JSON objects or lists themselves, by their number, down to
    `depth` layers. With `numbers`, those that are passwords are made literals first. `text` is the buffer, in which
    nested ones stand empty: they are searched as documents of their own.
    """

    def __init__(self, raw: bytes, depth: int = 0, *, numbers: bool = False) -> None:
        self.raw = raw = with_passwords_quoted(raw) if numbers else raw
        self._numbers = numbers
        self.offset = 0
        """Where `text` begins in what is searched, if that is more than this document."""
        # Every escape of a quote and of a backslash is written anew, so that each quote that is left bounds a literal.
        plain = b"\\" not in raw
        tokens = (raw if plain else raw.replace(b"\\\\", b"\\u005c").replace(b'\\"', b"\\u0022")).split(b'"')
        self._gaps = tokens[0::2]
        insides = tokens[1::2]
        self.texts: list[bytes] = insides if plain else [decoded(t) if b"\\" in t else t for t in insides]
        self._parts = [b"\x00"] * (2 * len(self.texts))
        self._parts[0::2] = self.texts
        self._parts[1::2] = [_SEPARATORS.get(gap) or _separator(gap) for gap in self._gaps[1:]]
        self.nested = self._all_nested(depth) if depth else {}
        for index in self.nested:
            self._parts[2 * index] = b""
        self.text = b"".join(self._parts)

    def _all_nested(self, depth: int) -> dict[int, Document]:
        if not any(sign in self.raw for sign in _NESTED_SIGNS):
            return {}
        return {
            index: Document(text, depth - 1, numbers=self._numbers)
            for index, text in enumerate(self.texts)
            if text[:1] in _OPENING and len(text) > 2 and text.endswith(_CLOSING) and self._is_nested(index)
        }

    @functools.cached_property
    def starts(self) -> list[int]:
        """Where each literal begins in the buffer, and the buffer's end."""
        return list(itertools.accumulate((len(part) + 1 for part in self._parts[0::2]), initial=0))

    def at(self, position: int) -> int:
        """Number of the literal that holds a position of the buffer."""
        return bisect_right(self.starts, position) - 1

    def _is_nested(self, index: int) -> bool:
        return not self.is_key(index) and is_json(self.texts[index])

    def is_key(self, index: int) -> bool:
        return self._parts[2 * index + 1] == b"\x01"

    def is_id(self, index: int) -> bool:
        """Whether a literal is the value of a key that names an identifier."""
        return index > 0 and not self.is_key(index) and self.is_key(index - 1) and is_id_key(self.texts[index - 1])

    def with_texts(self, changes: Mapping[int, bytes]) -> bytes:
        """The JSON text with new texts for some literals."""
        tokens = _LITERAL.split(self.raw)  # the tokens that stood there, with their own escapes
        parts = [tokens[0]]
        for place in range(1, len(tokens), 3):
            inside, colon, gap = tokens[place : place + 3]
            new = changes.get(place // 3)
            parts += (
                b'"',
                inside if new is None else encoded(new, ascii_only=inside.isascii()),
                b'"',
                colon or b"",
                gap,
            )
        return b"".join(parts)

    def paths(self, wanted: Iterable[int], changes: Mapping[int, bytes]) -> dict[int, str]:
        """JSON paths (`message.content[0].text`) of literals; a key has the path of its value.

        Keys among `changes` are shown as changed: a path must not tell what a key held.
        """
        remaining = set(wanted)
        found: dict[int, str] = {}
        stack: list[int | bytes] = []
        for index, text in enumerate(self.texts):
            for byte in self._gaps[index].translate(None, _NO_STRUCTURE):
                _step(stack, byte)
            if self.is_key(index):
                stack[-1] = changes.get(index, text)
            if index in remaining:
                found[index] = _path(stack)
                remaining.discard(index)
                if not remaining:
                    break
        return found


_SEPARATORS = {b":": b"\x01", b": ": b"\x01", b",": b"\x00", b", ": b"\x00", b"},{": b"\x00", b":{": b"\x01"}
"""Of the commonest gaps: nearly every literal is followed by one of them."""


def _separator(gap: bytes) -> bytes:
    """What stands in the buffer for what follows a literal."""
    return b"\x01" if gap.lstrip().startswith(b":") else b"\x00"


_NO_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))


def _step(stack: list[int | bytes], byte: int) -> None:
    """Follow one structural character: `stack` holds a list's index or an object's key for each open container."""
    if byte == 0x2C:
        last = stack[-1]
        if isinstance(last, int):
            stack[-1] = last + 1
    elif byte == 0x7B:
        stack.append(b"")
    elif byte == 0x5B:
        stack.append(0)
    else:
        stack.pop()


def _path(stack: list[int | bytes]) -> str:
    path = ""
    for step in stack:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            name = step.decode("utf-8", errors="replace")
            path += f".{name}" if path else name
    return path


_id_keys: dict[bytes, bool] = {}
_REMEMBERED = 4096


def is_id_key(key: bytes) -> bool:
    """Whether a key's value is an identifier by which others refer to it."""
    known = _id_keys.get(key)
    if known is None:
        text = key.decode("utf-8", errors="replace")
        known = bool(_ID_KEY.search(text)) and not _SECRET_ID.search(text)
        if len(_id_keys) < _REMEMBERED:
            _id_keys[key] = known
    return known


def decoded(inside: bytes) -> bytes:
    """The text of a literal's inside, as UTF-8; lone surrogates keep their three bytes."""
    literal = b'"' + inside + b'"'
    try:
        text: str = orjson.loads(literal)
        return text.encode()
    except orjson.JSONDecodeError:  # a lone surrogate
        text = json.loads(literal, strict=False)
        return text.encode("utf-8", errors="surrogatepass")


def encoded(text: bytes, *, ascii_only: bool) -> bytes:
    """The inside of a literal that decodes to `text`."""
    string = text.decode("utf-8", errors="surrogatepass")
    try:
        return json.dumps(string, ensure_ascii=ascii_only)[1:-1].encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8: only its escape can stand in a file
        return json.dumps(string)[1:-1].encode()


def is_json(data: bytes) -> bool:
    """Whether `data` is one JSON value and nothing else."""
    if not _JSON_START.match(data):  # most lines of a text: refusing them costs more than they do
        return False
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    else:
        return True
    try:  # numbers, surrogates and constants that the fast parser refuses
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
