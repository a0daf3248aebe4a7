"""What a rule is, and what it may look at beside the facts.

Invariant: a rule is a pure function; the same facts, call and context give the same finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness_adapters.guard.context import Context
from harness_adapters.guard.facts import Fact
from harness_adapters.records import Call

__all__ = ["Context", "Example", "Finding", "Rule", "asked_sentences", "named_paths"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a rule objects; `evidence` is the fact it rests on. One that is not `certain` is only ever a warning."""

    reason: str
    evidence: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Example:
    """A call that shows a rule at work, for people and for the tests."""

    tool: str
    arguments: Mapping[str, Any]
    policy: Mapping[str, Any] = field(default_factory=dict)
    user: str = ""


_SENTENCE = re.compile(r"(?<=[.;!?])\s+|\n")
_KEEPS_OUT = re.compile(
    r"\b(?:do not|don't|never|must not|may not|should not|cannot|without|avoid|no need to)\s+(?:\w+\s+){0,2}"
    r"(?:open|read|look|touch|access|use|inspect|peek|list|modify|edit|change|copy|go|rely|enter|visit|search|write)"
    r"(?:e?s|t?ing|ing)?\b|\b(?:stay|keep|stays|keeps) (?:out|away)\b|\boff[- ]limits\b"
    r"|\bout of bounds\b|\bforbidden\b",
    re.IGNORECASE,
)

_FORBIDDEN_LIST = re.compile(
    r"\b(?:do not|don't|never|must not|you may not|prohibited|forbidden|off[- ]limits|not allowed)\s*:"
    r"(?:(?:\s*\n[ \t]*(?:[-*•]|\d+[.)])[^\n]*)+|[^\n]*?(?:[.!?](?=\s|$)|(?=\n)|$))",
    re.IGNORECASE,
)
"""`Do not: read a; open b.`, or with its items on lines of their own."""


def asked_sentences(text: str) -> list[str]:
    """The sentences of a text for another agent, but for lists of what it must not do."""
    return _SENTENCE.split(_FORBIDDEN_LIST.sub(" ", text))


def named_paths(text: str) -> list[str]:
    """The absolute paths that a text for another agent names, but for those that it is told to keep away from."""
    asked = (part for part in asked_sentences(text) if not _KEEPS_OUT.search(part))
    found = dict.fromkeys(re.findall(r"(?<![\w.:/])/[\w./-]{2,}", " ".join(asked)))
    return [path.rstrip("./") or "/" for path in found]


Check = Callable[[Sequence[Fact], Call, Context], Finding | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`what` it catches, `why` it exists, an example of each side, and the function itself."""

    name: str
    what: str
    why: str
    caught: Example
    allowed: Example
    check: Check
