"""Strings of which only a part is known: what the evaluator computes with.

A value is a plain `str` in which six control characters stand for what is not known. They cannot come from the input
(`clean` removes them), so no value needs a wrapper type.

Invariant: a value without markers is exactly the string the shell or the interpreter would see.
Asymmetry: `STAR`, `ONE` and `DEEP` are wild cards that really expand to every match, so a rule takes them at their
word; `ANY`, `UNSET` and `MADE` hide one unknown string, so a rule needs evidence from the known part around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

ANY = "\x00"
"""Some string that comes from data: a file, an argument, a loop over unknown lines."""
UNSET = "\x01"
"""A variable that nothing here has set: the caller's environment, or empty."""
MADE = "\x02"
"""A string that a decoder or an interpreter makes at run time: hidden from reading on purpose or not."""
STAR = "\x03"
"""An unquoted `*`: any characters within one path segment."""
ONE = "\x04"
"""An unquoted `?` or `[...]`: one character."""
DEEP = "\x05"
"""A path segment that stands for any number of segments, as in the results of `find`."""

_MARKERS = re.compile("[\x00-\x05]")
_HIDING = re.compile("[\x00-\x02]")
_MARKS = ANY + UNSET + MADE + STAR + ONE + DEEP
_LONG = 4_096
_SHOWN = {0: "{?}", 1: "{unset}", 2: "{made}", 3: "*", 4: "?", 5: "**"}
_CLEANED = dict.fromkeys(range(6), " ")

MAX_LENGTH = 65_536
"""A longer value is taken as an unknown one."""
MAX_ALTERNATIVES = 32
"""More possible values than this for one word are taken as one unknown value."""


def names(text: str) -> tuple[str, ...]:
    """The blank-separated names in `text`: how the tables of this package are written."""
    return tuple(text.split())


def clean(text: str) -> str:
    """Input text without the characters that the evaluator uses as markers."""
    return text if is_known(text) else text.translate(_CLEANED)


def holds_any(text: str, characters: str) -> bool:
    """Whether one of the characters is in the text: by far faster in long texts than a regular expression."""
    return any(character in text for character in characters)


def show(value: str, limit: int = 160) -> str:
    """The value for a person to read, cut to `limit` characters."""
    text = value.translate(_SHOWN)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def wild(pattern: str) -> str:
    """A glob as file functions read it (`*`, `?`, `[…]`, `**` as a segment), its wild cards as markers."""
    if not holds_any(pattern, "*?["):
        return pattern
    marked = without_brackets(pattern).replace("?", ONE)
    return "/".join(DEEP if part == "**" else part.replace("*", STAR) for part in marked.split("/"))


def without_brackets(pattern: str) -> str:
    """The bracket expressions of a glob as what they match: `[t]` is a `t`, `[a-c]` any one character."""
    return _BRACKET.sub(_any_of, pattern) if "[" in pattern else pattern


_BRACKET = re.compile(r"(?<!\\)\[([^]/]{0,256})\]")


def _any_of(match: re.Match[str]) -> str:
    return match[1] if len(match[1]) == 1 and match[1] not in "!^*?\\" else ONE


def is_known(value: str) -> bool:
    """Whether the whole string is known (no marker of any kind)."""
    if len(value) > _LONG:
        return not holds_any(value, _MARKS)
    return _MARKERS.search(value) is None


def hides(value: str) -> bool:
    """Whether some part of the string is unknown (wild cards are known to be wild)."""
    return _HIDING.search(value) is not None


def join(parts: Iterable[list[str]]) -> list[str]:
    """Every concatenation of one alternative from each part; one unknown value where they would be too many or long."""
    choices = [part or [""] for part in parts]
    if len(choices) == 1 and len(choices[0]) == 1 and len(choices[0][0]) <= MAX_LENGTH:
        return choices[0]
    total = 1
    if sum(len(choice[0]) for choice in choices) > MAX_LENGTH:
        return [ANY]
    for choice in choices:
        total *= len(choice)
        if total > MAX_ALTERNATIVES:
            return ["".join(c[0] if len(c) == 1 else ANY for c in choices)]
    return ["".join(combination) for combination in product(*choices)]


def union(*groups: Iterable[str]) -> list[str]:
    """The different values of all groups in order; one unknown value where there are too many."""
    merged = list(dict.fromkeys(value for group in groups for value in group))
    return merged if len(merged) <= 4 * MAX_ALTERNATIVES else [ANY]
