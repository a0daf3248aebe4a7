"""Where secrets stand in a text: gate, rules, checks, and one winner where several match.

Invariants
- Spans come back sorted and disjoint. The earlier source wins an overlap, and within one source the longer span.
- Time is linear in the text, also where one keyword or one secret stands a million times: a keyword whose rules are
  chosen is soon no longer looked for, what stands in the same surroundings is judged once, and overlaps are told by
  marks on the bytes that are taken.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import re2

from harness_adapters.scrub.placeholder_values import is_placeholder
from harness_adapters.scrub.rule import Rule, entropy

_MANY_HITS = 200
"""Hits of the gate after which it is made anew without the words that were seen: that costs some milliseconds."""
_NEAR_BEFORE, _NEAR_AFTER = 160, 8
"""Bytes around a match that a rule's check may look at."""
_FEW = 20
"""Matches of a rule in a text that are judged without keeping the answers: most texts have no more."""


class Span(NamedTuple):
    """Bytes `start` to `end` of a text are a value of `kind`. `learnt` and `strong` are those of the rule."""

    start: int
    end: int
    kind: str
    value: bytes
    strong: bool = False
    learnt: bool = False


class Source(Protocol):
    """Anything that finds spans in a text."""

    def spans(self, text: bytes) -> Iterable[Span]: ...


class WordGate:
    """Which of many patterns, by their numbers, have one of their words in a text: one search for all the words."""

    def __init__(self, words: Iterable[tuple[bytes, int]]) -> None:
        self._by_word: dict[bytes, set[int]] = {}
        for word, number in words:
            self._by_word.setdefault(word, set()).add(number)
        longest_first = sorted(self._by_word, key=len, reverse=True)
        for word in longest_first:
            for shorter in longest_first:
                if word.startswith(shorter):
                    self._by_word[word] |= self._by_word[shorter]
        self._words = tuple(longest_first)
        self._any_word = _any_of(self._words)

    def chosen(self, text: bytes) -> set[int]:
        """The numbers. Words may overlap, so the search goes on one byte after each hit."""
        chosen: set[int] = set()
        words, gate, hits = self._words, self._any_word, 0
        match = gate.search(text)
        while match is not None:
            chosen |= self._by_word[match.group()]
            hits += 1
            if hits % _MANY_HITS == 0:
                words = tuple(word for word in words if not self._by_word[word] <= chosen)
                if not words:
                    break
                gate = _any_of(words)
            match = gate.search(text, match.start() + 1)
        return chosen


class RuleFinder:
    """All rules behind three gates: everyday words, rare words, shapes."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [(rule, re2.compile(rule.pattern.encode())) for rule in rules]
        self._shaped = [number for number, rule in enumerate(rules) if rule.gate]
        self._any_shape = _alternation(rules[number].gate for number in self._shaped)
        everyday = max((rule.keywords for rule in rules), key=len)
        self._everyday = [number for number, rule in enumerate(rules) if rule.keywords == everyday]
        self._any_everyday = _alternation(map(_escaped, everyday))
        self._rare = WordGate(
            (keyword.encode(), number)
            for number, rule in enumerate(rules)
            for keyword in (rule.keywords if rule.keywords != everyday else ())
        )

    def _candidates(self, text: bytes) -> list[int]:
        lowered = text.lower()
        chosen: set[int] = set()
        if self._any_everyday.search(lowered):
            chosen.update(self._everyday)
        if self._any_shape.search(text):
            chosen.update(self._shaped)
        chosen |= self._rare.chosen(lowered)
        return sorted(chosen)

    def spans(self, text: bytes) -> Iterator[Span]:
        for number in self._candidates(text):
            rule, pattern = self._rules[number]
            groups = pattern.groups
            judged: dict[tuple[bytes, int], bool] = {}
            for count, match in enumerate(pattern.finditer(text)):
                begin, stop = match.span()
                start, end = match.span((match.lastindex or 0) if groups > 1 else groups)
                value = text[start:end]
                if count < _FEW:
                    counts = _counts(rule, text, match, value)
                else:
                    around = text[max(0, begin - _NEAR_BEFORE) : stop + _NEAR_AFTER], start - begin
                    known = judged.get(around)
                    counts = judged[around] = _counts(rule, text, match, value) if known is None else known
                if counts:
                    yield Span(start, end, rule.kind, value, rule.strong, rule.learnt)


def _counts(rule: Rule, text: bytes, match: Any, value: bytes) -> bool:
    if rule.check is not None:
        return (not rule.entropy or entropy(value) >= rule.entropy) and rule.check(text, match)
    return entropy(value) >= rule.entropy and not is_placeholder(value)


def disjoint(groups: Iterable[Iterable[Span]]) -> list[Span]:
    """One winner a place: earlier groups before later ones, longer spans before shorter; sorted by place."""
    gathered = [[span for span in group if span.end > span.start] for group in groups]
    if not any(gathered):
        return []
    if sum(map(bool, gathered)) == 1:
        alone = sorted(next(filter(None, gathered)))
        if all(span.end <= after.start for span, after in itertools.pairwise(alone)):
            return alone
    first = min(span.start for group in gathered for span in group)
    taken = bytearray(max(span.end for group in gathered for span in group) - first)
    winners: list[Span] = []
    for group in gathered:
        for span in sorted(group, key=lambda span: (span.start - span.end, span.start)):
            start, end = span.start - first, span.end - first
            if taken.find(1, start, end) < 0:
                taken[start:end] = b"\x01" * (end - start)
                winners.append(span)
    return sorted(winners)


@functools.lru_cache(maxsize=64)
def _any_of(words: tuple[bytes, ...]) -> Any:
    return re2.compile(b"|".join(map(re2.escape, words)))


def _escaped(word: str) -> str:
    return str(re2.escape(word))


def _alternation(patterns: Iterable[str]) -> Any:
    return re2.compile("|".join(f"(?:{pattern})" for pattern in patterns).encode())
