"""What the texts of the conversation so far tell: declared hosts, what the task text forbids, folders of sources.

What its calls have done is found by `replay`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any

from harness_adapters.guard.hosts import Endpoint, url_endpoints
from harness_adapters.guard.memo import remembered
from harness_adapters.guard.nesting import is_deep, parse_json
from harness_adapters.guard.solution_hacks import Shown
from harness_adapters.guard.values import names
from harness_adapters.records import Call, Message, Messages

MAX_TEXT = 262_144
_WORKED_ON = re.compile(
    r"\b(?:implement|reimplement|rewrite|port|rebuild|recreate)\s+(?:the\s+)?`?([a-z][\w-]+)`?", re.IGNORECASE
)
_IS_THIS = re.compile(
    r"\b(?:crate|gem|library|package|module|project)\s+`?([a-z][\w-]{1,60})`?"
    r"\s{0,4}[(,]\s{0,4}(?:this|the) (?:repo|project|checkout)"
    r"|\bis the (?:crate|gem|library|package|module) `?([a-z][\w-]{1,60})`?",
    re.IGNORECASE,
)
"""`library name (this repository)`."""
_HELD = re.compile(r"\b(?:holds|contains)\s+(?:the\s+)?`?([a-z][\w-]+)`?", re.IGNORECASE)
_PLACED = re.compile(
    r"\b(?:repository|module|package|crate|gem|library)\s+`?([\w.-]+/[\w./-]*[A-Za-z][\w-]*)", re.IGNORECASE
)
_RELEASED = re.compile(r"(?<![\w-])([a-z][\w-]{1,60}+)`?\s{1,4}v?\d{1,8}(?:\.\d{1,8}){1,4},?[^\n.]{0,20}\bsource")
"""`name 1.2 from source`, `name 1.2, source checkout`."""
_GENERIC = frozenset(
    names(
        "src lib app tests test docs doc workspace testbed repo code project projects build dist scripts tools bin etc "
        "usr home examples example data config internal pkg cmd main core utils util site-packages node_modules vendor "
        "the a this that here at it checked python packages fixtures include public static assets"
    )
)
_TESTS_NAMED = re.compile(r"(?i)(?<![a-z])(?:tests?|specs?|pytest|jest|vitest)(?![a-z])")
_TEST_CODE = re.compile(r"\bdef test_|\bassert\b.{0,400}==|\bassert_eq!|\bexpect\(|\bfunc Test[A-Z]|#\[test\]|@Test\b")
DECLARING = frozenset({"user"})
"""Roles whose text may name a host to use: not the harness's own prompt, which speaks of its makers' pages."""
_SUBJECT = r"`?((?:[\w.-]+/)*[\w.*-]+/?)`?"
_READ_ONLY = re.compile(
    rf"{_SUBJECT}\s+(?:(?:files?|folder|directory|suite)\s+)?(?:is|are|stays?|must (?:stay|remain))\s+"
    r"(?:read[- ]only|untouched|unchanged)",
    re.IGNORECASE,
)
_UNTOUCHED = re.compile(r"read[- ]only|untouched|unchanged", re.IGNORECASE)
_SENTENCE = 256
_MAX_SUBJECTS = 128
_FORBIDDEN = re.compile(
    r"(?:do not|don't|never|must not|may not|without)\s+"
    r"(?:edit|modify|change|touch|alter|delete|editing|modifying|changing|touching)\s+"
    rf"(?:any\s+|the\s+)?(?:files?\s+(?:in|under)\s+)?{_SUBJECT}",
    re.IGNORECASE,
)


def texts_of(messages: Messages, roles: Collection[str] = DECLARING) -> list[str]:
    """The texts of messages with one of these roles: by default of those that may declare a host."""
    found: list[str] = []
    for message in messages:
        role = message.get("role")
        if isinstance(role, str) and role in roles:
            found += texts_in(message)
    return found


def forbidden_globs(texts: list[str]) -> tuple[str, ...]:
    """Globs for what the user's text calls read-only or forbids to change."""
    return tuple(dict.fromkeys(glob for text in texts for glob in _forbidden(text)))


@remembered()
def _forbidden(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for subject in [*_read_only(text), *_FORBIDDEN.findall(text)]:
        name = subject.rstrip("/.")
        if name.lower() in ("tests", "test"):
            found.append(f"{name.lower()}/**")
        elif "/" in subject or "." in name:
            found.append(f"{name}/**" if "." not in name.rpartition("/")[2] else name)
    return tuple(found)


def _read_only(text: str) -> Iterator[str]:
    """What stands before a word for "read-only": only there is it worth looking for a subject."""
    for word in islice(_UNTOUCHED.finditer(text), _MAX_SUBJECTS):
        start = max(0, word.start() - _SENTENCE)
        before = text[start : word.end()]
        yield from _READ_ONLY.findall(before if start == 0 else before.partition(" ")[2])


def texts_in(message: Message) -> list[str]:
    """The texts of one message."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return []


def earlier_calls(messages: Messages) -> Iterator[Call]:
    """The tool calls of earlier assistant messages in order."""
    for message in messages:
        for call_id, name, arguments in calls_of(message):
            yield Call(call_id, name, parse_arguments(arguments))


def calls_of(message: Message) -> list[tuple[str, str, str]]:
    """Id, name and text of the arguments of each tool call in one message of the assistant."""
    items = message.get("tool_calls") if message.get("role") == "assistant" else None
    calls: list[tuple[str, str, str]] = []
    for item in items if isinstance(items, list | tuple) else ():
        function = item.get("function") if isinstance(item, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) else _argument_text(arguments)
            calls.append((str(item.get("id", "")), str(function.get("name", "")), text))
    return calls


def shown_in(messages: Messages) -> Shown:
    """What tools have printed: of calls that name tests, or that printed some, and of all others."""
    asks = {call_id: _names_tests(text) for message in messages for call_id, _, text in calls_of(message)}
    tests: list[str] = []
    rest: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            for text in texts_in(message):
                of_tests = asks.get(str(message.get("tool_call_id")), False) or _holds_tests(text)
                (tests if of_tests else rest).append(text)
    return Shown("\n".join(tests), "\n".join(rest))


def fetched_texts(messages: Messages, allowed: Callable[[Endpoint], bool]) -> list[str]:
    """What tools have printed of calls that name hosts, all of them `allowed`."""
    fetches = {
        call_id
        for message in messages
        for call_id, _, text in calls_of(message)
        if (ends := url_endpoints(text)) and all(allowed(end) for end in ends)
    }
    results = (message for message in messages if message.get("role") == "tool")
    return [text for message in results if str(message.get("tool_call_id")) in fetches for text in texts_in(message)]


@remembered(entries=2048)
def _names_tests(arguments: str) -> bool:
    return _TESTS_NAMED.search(arguments) is not None


@remembered(entries=2048)
def _holds_tests(text: str) -> bool:
    return _TEST_CODE.search(text) is not None


def parse_arguments(raw: Any) -> dict[str, Any] | str:
    """Arguments as an object, or the raw text where they are not one."""
    if isinstance(raw, dict):
        return raw
    try:
        parsed = parse_json(raw) if isinstance(raw, str) else None
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else str(raw or "")


def _argument_text(raw: Any) -> str:
    """Arguments that are no text yet as the text of a JSON object; empty where they are not an object."""
    return json.dumps(raw, default=str) if isinstance(raw, dict) and not is_deep(raw) else ""


def projects_in(messages: Messages, cwd: str) -> frozenset[str]:
    """Names of source folders directly below the working folder (or its `src`), and its own, as the session shows."""
    texts = [*texts_of(messages, ("user", "tool"))]
    texts += [text for message in messages for _, _, text in calls_of(message)]
    found = {cwd.rstrip("/").rpartition("/")[2]}
    left = MAX_TEXT
    for text in texts:
        if left <= 0:
            break
        found |= _projects(text[:left], cwd)
        left -= len(text)
    for task in texts_of(messages, ("user",)):
        found |= {name.rpartition("/")[2] for name in _PLACED.findall(task)} | set(_RELEASED.findall(task))
        found |= set(_WORKED_ON.findall(task)) | set(_HELD.findall(task))
        found |= {name for groups in _IS_THIS.findall(task) for name in groups if name}
    return frozenset(name for name in found if name.lower() not in _GENERIC)


@remembered()
def _projects(text: str, cwd: str) -> frozenset[str]:
    root = re.escape(cwd.rstrip("/"))
    found = set(
        re.findall(rf"{root}/(?:src/|lib/|packages/|python/)?([A-Za-z][\w-]{{0,60}})/[\w/]{{1,200}}+\.\w", text)
    )
    found |= set(re.findall(r"(?<![\w/.-])(?:\./)?src/([A-Za-z][\w-]*)/", text))
    found |= set(re.findall(r"(?<![\w/.-])(?:\./)?([a-z][\w-]*)/__init__\.py", text))
    found |= set(
        re.findall(
            r"(?:repository|project|package|library|source)[^.\n]{0,40}? (?:is|of|for) `?([a-z][\w-]+)`?"
            r"(?: itself)?(?=[\s.,;:]|$)",
            text,
        )
    )
    return frozenset(found)
