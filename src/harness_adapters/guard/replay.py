"""What the earlier calls of a session leave behind: a fold over its messages, carried on from where it last stood.

Every earlier call starts in the task's folder again (each call is a new shell, but for harnesses that keep one); files,
scripts and links that it made are still there, so a script written then and run now is judged by its content.

Invariant: the result is a function of the messages. A state that is remembered is that of an equal prefix, compared
text by text, and is never changed: going on starts from a copy.
Asymmetry: a call that was refused is taken as done. That can only make a later verdict harder, never milder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from harness_adapters.guard.facts import LooksUp
from harness_adapters.guard.history import calls_of, parse_arguments, texts_in
from harness_adapters.guard.machine import Files, Machine
from harness_adapters.guard.memo import Memo
from harness_adapters.guard.tools import facts_of
from harness_adapters.records import Call, Messages, ToolMap

MAX_CALLS = 600
"""At most so many calls are replayed; where there are more, the oldest are left out `_STRIDE` at a time."""
_STRIDE = 200
_COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b")
_OTHER_REF = re.compile(
    r"(?m)^(?!.*\bHEAD\b).*(?:\bremotes/|refs/(?:remotes|pull|tags|changes|merge-requests)/|\borigin/|\bupstream/|stash@|FETCH_HEAD).*$"
)
_REF_WORDS = ("remotes/", "refs/", "origin/", "upstream/", "stash@", "FETCH_HEAD")

_Output = tuple[str, str]
"""The id of a call and what its tool printed."""
_Calls = tuple[tuple[str, str, str], ...]
"""The calls of one message: id, name, arguments as text."""
_Step = _Output | _Calls


@dataclass(frozen=True, slots=True)
class History:
    """The files and links that earlier calls have made, and commits that only a look beyond HEAD has shown."""

    files: Files
    found_elsewhere: frozenset[str]
    left: str
    """The folder that the last shell command ended in: some harnesses keep one shell for the session."""
    variables: Mapping[str, list[str]]
    """What the lasting shell of such a harness has set."""


@dataclass(slots=True)
class _State:
    files: Files
    left: str
    variables: dict[str, list[str]]
    elsewhere: set[str]
    plain: set[str]
    looks_up: dict[str, bool]
    """By id of a call, whether it looks into other parts of the repository's history."""

    def fork(self) -> _State:
        variables = {name: list(values) for name, values in self.variables.items()}
        return _State(
            self.files.fork(), self.left, variables, set(self.elsewhere), set(self.plain), dict(self.looks_up)
        )


@dataclass(frozen=True, slots=True)
class _Kept:
    steps: tuple[_Step, ...]
    state: _State
    weight: int


_KEPT: Memo[tuple[str, int, int], _Kept] = Memo(entries=1024, weight=256 << 20)


class Replayer:
    """Replays conversations for one tool map, working folder and home."""

    def __init__(self, tools: ToolMap, *, cwd: str, home: str) -> None:
        self._tools = tools
        self._cwd = cwd
        self._home = home
        self._base = repr((tools, cwd, home))

    def history(self, messages: Messages) -> History:
        """What the calls in `messages` leave behind."""
        steps = _steps(messages)
        if not steps:
            return History(Files(), frozenset(), self._cwd, {})
        rolled = list(accumulate(map(hash, steps), _roll))
        done, kept = self._longest_known(steps, rolled)
        state = kept.state.fork() if kept else _State(Files(), self._cwd, {}, set(), set(), {})
        if done < len(steps):
            for step in steps[done:]:
                self._step(step, state)
            weight = sum(_weight(step) for step in steps[done:]) + (kept.weight if kept else 0)
            # The texts of the part that was known already are those that are held anyway.
            whole = (*kept.steps, *steps[done:]) if kept else steps
            _KEPT.put((self._base, len(steps), rolled[-1]), _Kept(whole, state, weight), weight + 2 * state.files.held)
            state = state.fork()
        found = frozenset(commit for commit in state.elsewhere if commit[:7] not in state.plain)
        return History(state.files, found, state.left, state.variables)

    def _longest_known(self, steps: tuple[_Step, ...], rolled: list[int]) -> tuple[int, _Kept | None]:
        for done in range(len(steps), 0, -1):
            kept = _KEPT.get((self._base, done, rolled[done - 1]))
            if kept is not None and kept.steps == steps[:done]:
                return done, kept
        return 0, None

    def _step(self, step: _Step, state: _State) -> None:
        if isinstance(step[0], str):
            call_id, text = step
            assert isinstance(call_id, str)
            assert isinstance(text, str)
            _take_in_output(call_id, text, state)
            return
        for call_id, name, text in step:
            parsed = parse_arguments(text)
            if isinstance(parsed, str):
                continue
            machine = Machine(cwd=self._cwd, home=self._home, files=state.files)
            machine.resumed, machine.variables = state.left, state.variables
            facts = facts_of(Call(call_id, name, parsed), self._tools, machine)
            state.left = machine.left if machine.moved else state.left
            state.variables = machine.variables
            state.looks_up[call_id] = any(isinstance(fact, LooksUp) for fact in facts)


def _roll(before: int, step: int) -> int:
    return hash((before, step))


def _steps(messages: Messages) -> tuple[_Step, ...]:
    """Calls and outputs in order, without the oldest of too many."""
    steps: list[_Step] = []
    count = 0
    for message in messages:
        role = message.get("role")
        if role == "tool":
            content = message.get("content")
            text = content if isinstance(content, str) else "\n".join(texts_in(message))
            steps.append((str(message.get("tool_call_id")), text))
        elif role == "assistant" and message.get("tool_calls"):
            calls = tuple(calls_of(message))
            if calls:
                count += len(calls)
                steps.append(calls)
    return tuple(steps) if count <= MAX_CALLS else _latest(steps, count)


def _latest(steps: list[_Step], count: int) -> tuple[_Step, ...]:
    left_out = -(-(count - MAX_CALLS) // _STRIDE) * _STRIDE
    for number, step in enumerate(steps):
        if left_out <= 0:
            return tuple(steps[number:])
        left_out -= 0 if isinstance(step[0], str) else len(step)
    return ()


def _weight(step: _Step) -> int:
    """The bytes that a step's texts take, at most."""
    texts = step if isinstance(step[0], str) else [text for call in step for text in call]
    return 200 + sum(4 * len(text) for text in texts if isinstance(text, str))


def _take_in_output(call_id: str, output: str, state: _State) -> None:
    """Commits that the output of a call shows: on the branch that is checked out, or only elsewhere."""
    looks_up = state.looks_up.get(call_id)
    if looks_up is None:
        return
    others: set[str] = set()
    if any(word in output for word in _REF_WORDS):
        others = {commit for line in _OTHER_REF.findall(output) for commit in _COMMIT.findall(line)}
        state.elsewhere |= others
    if looks_up:
        state.elsewhere |= _commits_beyond_head(output)
    else:
        state.plain |= {commit[:7] for commit in _COMMIT.findall(output) if commit not in others}


def _commits_beyond_head(output: str) -> set[str]:
    """Commits in a listing of all refs, but for the one it marks as HEAD and what a line order shows to be below it."""
    found: set[str] = set()
    for line in output.split("\n"):
        if "HEAD ->" in line or "(HEAD" in line:
            break
        found |= set(_COMMIT.findall(line))
    return found
