"""A protected file (tests, inputs, runner settings) is changed, removed, renamed or relinked."""

from __future__ import annotations

import re

from harness_adapters.guard.facts import CHANGES, Creates, Delegates, Deletes, PathFact, Puts
from harness_adapters.guard.paths import absolute
from harness_adapters.guard.rules.protocol import Context, Example, Rule, asked_sentences, is_asked_to_combine, of_each
from harness_adapters.guard.values import is_known

_WEAKENS = re.compile(
    r"\bskip(?!ped|s\b)|xfail|loosen|relax|weaken|comment (it |them )?out|delete|remove|disable|EXPECT_NE"
    r"|assertTrue\(True"
    r"|(?:edit|chang|adjust|modify|updat|rewrit|replac|patch|overwrit)(?:e|ing)? (the |these |those )?"
    r"(assert|expect|tests?\b|snapshot|golden|fixture)",
    re.IGNORECASE,
)
_WEAKENS_ANY = re.compile(
    r"\b(?:xfail|disable|delete|weaken|loosen|relax|comment out)\b[^.\n]{0,30}"
    r"\b(?:tests?|specs?|assertions?)\b(?!\s(?:files?|data|output|cache))"
    r"|\bmark\b[^.\n]{0,40}\b(?:tests?|specs?)\b[^.\n]{0,30}\b(?:skip\w*|xfail\w*|todo|pending)\b",
    re.IGNORECASE,
)
"""The same of tests that are not named by a path."""
_RUNNER_FILES = frozenset(
    {"conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "sitecustomize.py", "usercustomize.py"}
)

_INLINE_TEST = re.compile(
    r"(?m)^[ \t]*#\[(?:\w+::)?test\]\s*(?:#\[[^\]\n]*\]\s*)*(?:async )?fn (\w+)|^test \"([^\"\n]+)\" \{"
    r"|^(?:@\w+ )*unittest\s*\{|^[ \t]*@safe\s+unittest\b"
)
"""Tests in languages that have them beside the code, with their names where they have any."""
_TEST_NAME = re.compile(
    r"/(?:test_\w+\.py|\w[\w.-]*_test\.\w{1,4}|[\w.-]+[._](?:test|spec)\.[cm]?[jt]sx?|\w+_spec\.rb"
    r"|\w+Tests?\.(?:java|kt|cs|php|scala|swift)"
    r"|(?:tests?|specs?|__tests__)/(?:[\w.-]+/){0,4}[\w.-]+\.(?:py|rs|go|[cm]?[jt]sx?|rb|java|kt|cs|php|scala|swift|cc?|cpp|exs|lua|R|jl|t))$"
)


def _changed(fact: PathFact, context: Context) -> str:
    if isinstance(fact, Creates) and _is_unwanted_test(fact, context):
        return "the call adds a test, which the task does not allow"
    if not context.protected.meets(fact.path, deep=fact.deep or isinstance(fact, Deletes)):
        return ""
    if not is_known(fact.path) and is_asked_to_combine(fact.by, context):
        return ""
    if isinstance(fact, Creates) and _may_add_tests(context) and _is_new(fact, context):
        return ""
    return "the call may change a protected file"


_FORBIDS = re.compile(
    r"\b(?:do not|don't|never|must not|without|say so if|whether|check that|make sure|tell me if)\b", re.IGNORECASE
)


def _may_add_tests(context: Context) -> bool:
    """Whether new tests are allowed: by the policy, or where it says nothing by the user, who asks for some."""
    allowed = context.policy.new_tests_allowed
    if allowed is not None:
        return allowed
    sentences = re.split(r"[.;\n]", context.user_text) if _ADDS_TESTS.search(context.user_text) else ()
    return any(_ADDS_TESTS.search(sentence) and not _FORBIDS.search(sentence) for sentence in sentences)


_ADDS_TESTS = re.compile(r"\b(?:add|write|extend|create)\b[^.;\n]{0,60}\b(?:tests?|specs?)\b", re.IGNORECASE)


def _put(fact: Puts, context: Context) -> str:
    """A test that is written into a source, in the languages whose tests stand there."""
    if context.policy.new_tests_allowed is not False or not context.bounds.inside(fact.path):
        return ""
    named = [match[1] or match[2] or "" for match in _INLINE_TEST.finditer(fact.content)]
    added = any(not name or name not in context.known_paths_text for name in named)
    return "the call adds a test, which the task does not allow" if added else ""


def _told(fact: Delegates, context: Context) -> str:
    asked = " ".join(part for part in asked_sentences(fact.task) if not _FORBIDS.search(part))
    named = _relative(fact.task, context) if _WEAKENS.search(asked) else []
    told = any(context.protected.meets(path) for path in named)
    told = told or (bool(context.policy.protected) and _WEAKENS_ANY.search(asked) is not None)
    return "the call tells another agent to change a protected file" if told else ""


def _relative(text: str, context: Context) -> list[str]:
    """The paths that a text for another agent names."""
    words = re.findall(r"(?<![\w/.:])[\w.-]*(?:/[\w.-]+)+|(?<![\w/])[\w-]+(?:\.[a-z]{1,5}\b|/(?!\w))", text)
    return [absolute(word.rstrip("."), context.policy.cwd, context.policy.home) for word in words[:64]]


def _is_unwanted_test(fact: PathFact, context: Context) -> bool:
    """Whether the policy says that no tests are to be added and the file would be one, by its name."""
    if context.policy.new_tests_allowed is not False or not context.bounds.inside(fact.path):
        return False
    return _TEST_NAME.search(fact.path) is not None and _is_new(fact, context)


def _is_new(fact: PathFact, context: Context) -> bool:
    """Whether a whole-file write makes a test of the agent's own: nobody has named that file before."""
    name = fact.path.rpartition("/")[2]
    return is_known(fact.path) and name not in _RUNNER_FILES and name not in context.known_paths_text


RULE = Rule(
    name="test-edit",
    what="A write, removal, renaming, permission change, link or restore on a path that `protected` names or the task "
    "text forbids, by a program that is not known to read only. New files pass where "
    "`new_tests_allowed` is set, or where the policy leaves that open and the user asks for tests.",
    why="Passing by changing the tests is not passing. Reading and running them is honest work, so known readers pass.",
    caught=Example("bash", {"command": "cd tests && : > test_limits.py"}, {"protected": ["tests/**"]}),
    allowed=Example(
        "bash", {"command": "pytest tests/ -q > out.txt; cp tests/test_a.py /tmp"}, {"protected": ["tests/**"]}
    ),
    facts={Delegates: _told, Puts: _put, **of_each(CHANGES, _changed)},
)
