"""One kind of secret: a pattern, the words without which it need not be tried, and what keeps a match from counting.

Invariants
- Patterns are matched by google-re2, in time linear in the text, on UTF-8 bytes. Group 1 is the secret, else the match.
- One of a rule's keywords (any case) stands in every text that its pattern matches, or else its `gate` matches there.
- A check looks at the match, at 160 bytes before it and at 8 after it, and no further: its answer is kept for them.
- The text that is searched is that of decoded JSON strings, joined: `\\x01` stands between a key and its value,
  `\\x00` between any other two. A pattern may use them; a secret never spans them.

Asymmetry: a `strong` rule knows its secrets by their own form and so applies in identifiers too; the others lean on
the words around them and leave identifiers alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Check = Callable[[bytes, Any], bool]
"""(whole text, match) -> whether the match is a secret."""

BEFORE = r"(?:\b|_|\\[nrt]|%[0-9A-Fa-f]{2})"
"""Where a token may start: a word's edge, or an escape that was left in the text."""

_JOIN = (
    r"""[\w .\-]{0,24}\\{0,3}["'`]?\]?[ \t]{0,8}(?:=>|:=|\?=|=|:|\x01|,|>|\bis\b|\x00value\x01)\\{0,3}[\s"'`=]{0,5}"""
)


@dataclass(frozen=True, slots=True)
class Rule:
    """`entropy` is the least number of bits a character (Shannon, over the secret's own characters)."""

    kind: str
    pattern: str
    keywords: tuple[str, ...]
    entropy: float = 0.0
    strong: bool = True
    check: Check | None = None
    learnt: bool = True
    """Whether other occurrences of the same value, without the words around it, are replaced as well."""
    form: str = ""
    """The secret's own pattern, where it has one; "" where only what stands around it tells."""
    gate: str = ""
    """In place of keywords, where none is rare enough: a cheap pattern (no long counts) that every match contains."""


def token(kind: str, pattern: str, *keywords: str, entropy: float = 3.0, gate: str = "") -> Rule:
    """A rule for secrets with a form of their own, starting at a word's edge."""
    return Rule(
        kind,
        f"{BEFORE}({pattern})",
        keywords,
        entropy,
        form=pattern,
        gate=rf"(?:\b|_|\\[nrt]|%..)(?:{gate})" if gate else "",
    )


def named(kind: str, vendor: str, pattern: str, *keywords: str, entropy: float = 3.0, gate: str = "") -> Rule:
    """A rule for secrets without a form of their own: a value assigned to something called after `vendor`.

    Without keywords and gate the vendors' names, which `vendor` must then begin with, are the keywords.
    """
    keywords = keywords or (() if gate else _vendor_words(vendor))
    whole = rf"(?i:{vendor}){_JOIN}({pattern})(?:[^\w/+=-]|$)"
    return Rule(kind, whole, keywords, entropy, strong=False, gate=gate)


_EVERYDAY_NAMES = frozenset(
    (
        "lambda",
        "exa",
        "bing",
        "vast",
        "brave",
        "line",
        "box",
        "zoom",
        "segment",
        "elastic",
        "monday",
        "stability",
        "matrix",
    )
)
"""Vendors whose name is a word: looked for only as the first part of a variable's name."""


def _vendor_words(vendor: str) -> tuple[str, ...]:
    """Keywords of a pattern that begins with a group of names: `(?:one|two_?part)…`."""
    group = re.match(r"\(\?:([a-z0-9_?|]+)\)", vendor)
    assert group is not None, vendor
    names = [form for name in group[1].split("|") for form in {name.replace("_?", ""), name.replace("_?", "_")}]
    return tuple(f"{name}_" if name in _EVERYDAY_NAMES else name for name in sorted(names))


def entropy(value: bytes) -> float:
    """Shannon entropy of the bytes of `value`, in bits a byte; 0 for an empty one."""
    if not value:
        return 0.0
    size = len(value)
    counts = (value.count(byte) for byte in set(value))
    return -sum(count / size * math.log2(count / size) for count in counts)
