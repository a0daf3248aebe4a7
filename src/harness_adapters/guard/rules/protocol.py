"""What a rule is, and what it may look at beside the facts.

Invariant: a rule is a pure function; the same facts and context give the same finding.
Asymmetry: the first fact that a rule objects to is its finding, but for a doubt, which gives way to a certain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness_adapters.guard.context import Context
from harness_adapters.guard.facts import Fact

__all__ = [
    "Context",
    "Doubt",
    "Example",
    "Finding",
    "Rule",
    "asked_sentences",
    "is_asked_to_combine",
    "named_paths",
    "of_each",
]


class Doubt(str):
    """A reason that is not certain, and so only ever a warning."""

    __slots__ = ()


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


_DESCRIBED = re.compile(
    r"['\"`]?\b([\w.-]{2,40})['\"`]?(?:[ ,]+(?:\w+[ ,]+){0,4}?)(?:below|under|beneath|in|at|of|off)[ ]+(?:the[ ]+)?"
    r"(?:(?:file ?system|disk|drive|machine|container|system)(?:'s)?[ ]+root|root[ ]+(?:directory|folder|of[ ]+the[ ]+"
    r"(?:file ?system|disk|drive|machine|container))|top[ ]+of[ ]+the[ ]+file ?system)",
    re.IGNORECASE,
)


def named_paths(text: str) -> list[str]:
    """The absolute paths that a text for another agent names, and folders that it describes (`the tests folder below
    the file system root`), but for those that it is told to keep away from."""
    asked = [part for part in asked_sentences(text) if not _KEEPS_OUT.search(part)]
    found = dict.fromkeys(re.findall(r"(?<![\w.:/])/[\w./-]{2,}", " ".join(asked)))
    described = ["/" + match[1] for part in asked for match in _DESCRIBED.finditer(part)]
    return [*(path.rstrip("./") or "/" for path in found), *described]


_COMBINING = frozenset(f"git {name}" for name in ("merge", "rebase", "cherry-pick", "revert", "pull", "am", "checkout"))
_ASKED_TO_COMBINE = re.compile(
    r"\bmerg(?:e|ing)\b|\brebas(?:e|ing)\b|\bcherry-?pick|\brevert\b|\bbackport|\bappl(?:y|ies|ying)\b[^.]{0,40}\bpatch|\b(?:pull|rescue|recover)\b.{0,40}\b(?:branch|commits?)\b",
    re.IGNORECASE,
)


def is_asked_to_combine(by: str, context: Context) -> bool:
    """Whether a program puts commits together, and the user wants just that: what those change is the user's, too."""
    return by in _COMBINING and _ASKED_TO_COMBINE.search(context.user_text) is not None


FactCheck = Callable[[Any, Context], str]
"""The reason to object to one fact of a kind (a `Doubt` where it is not certain), or nothing."""


def of_each(kinds: Collection[type[Fact]], check: FactCheck) -> Mapping[type[Fact], FactCheck]:
    """The table that asks `check` about facts of several kinds."""
    return dict.fromkeys(kinds, check)


@dataclass(frozen=True, slots=True)
class Rule:
    """`what` it catches, `why` it exists, an example of each side, and its functions: `facts` by the exact kind of the
    fact that they are asked about, `call` for what no fact tells."""

    name: str
    what: str
    why: str
    caught: Example
    allowed: Example
    facts: Mapping[type[Fact], FactCheck] = field(default_factory=dict)
    call: Callable[[Context], Finding | None] | None = None

    def finding(self, facts: Sequence[Fact], context: Context) -> Finding | None:
        """What the rule has to say about the call whose facts these are."""
        if self.call is not None:
            return self.call(context)
        checks = self.facts
        doubt: Finding | None = None
        for fact in facts:
            check = checks.get(type(fact))
            reason = check(fact, context) if check is not None else ""
            if not reason:
                continue
            if not isinstance(reason, Doubt):
                return Finding(reason, fact.text())
            doubt = doubt or Finding(reason, fact.text(), certain=False)
        return doubt
