"""Strings of a pattern, made at test time: no test file holds anything that looks like a live secret.

`Sampler.of` walks the standard library's parse of a pattern and chooses at random from a seed, so that a sample has the
entropy of a real secret; `dull` chooses the same character everywhere, as placeholders do.
"""

from __future__ import annotations

import random
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import string
from typing import Any

_ANY = string.ascii_letters + string.digits
_MOST_REPEATS = 24


class Sampler:
    """Makes matching strings from a pattern."""

    def __init__(self, seed: int, *, dull: bool = False) -> None:
        self._random = random.Random(seed)
        self._dull = dull

    def of(self, pattern: str) -> str:
        return "".join(self._node(op, value) for op, value in parser.parse(pattern))

    def _node(self, op: Any, value: Any) -> str:
        if op is codes.LITERAL:
            return chr(value)
        if op is codes.IN:
            return self._pick(self._members(value))
        if op is codes.ANY:
            return self._pick(_ANY)
        if op in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = value
            count = least if least else self._random.randint(0, 0 if most == 1 else min(int(most), 2))
            if least and most is not least and not self._dull:
                count = self._random.randint(least, min(int(most), least + _MOST_REPEATS))
            return "".join(self._all(inner) for _ in range(count))
        if op is codes.SUBPATTERN:
            return self._all(value[-1])
        if op is codes.BRANCH:
            return self._all(self._random.choice(value[1]))
        if op is codes.NOT_LITERAL:
            return self._pick(_ANY.replace(chr(value), ""))
        assert op is codes.AT, op
        return ""

    def _all(self, inner: Any) -> str:
        return "".join(self._node(op, value) for op, value in inner)

    def _pick(self, members: str) -> str:
        if self._dull:
            return next((c for c in "xX0a" if c in members), members[0])
        return self._random.choice(members)

    def _members(self, items: Any) -> str:
        if items and items[0][0] is codes.NEGATE:
            excluded = set("".join(self._one(item) for item in items[1:]))
            return "".join(c for c in _ANY + " ;" if c not in excluded)
        return "".join(self._one(item) for item in items)

    def _one(self, item: Any) -> str:
        op, value = item
        if op is codes.LITERAL:
            return chr(value)
        if op is codes.RANGE:
            return "".join(map(chr, range(value[0], value[1] + 1)))
        sets = {
            codes.CATEGORY_DIGIT: string.digits,
            codes.CATEGORY_WORD: _ANY + "_",
            codes.CATEGORY_SPACE: " ",
            codes.CATEGORY_NOT_SPACE: _ANY,
        }
        return str(sets[value])
