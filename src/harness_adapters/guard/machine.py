"""What one evaluation shares: the facts found, the files made so far, and the budgets that keep it bounded.

Budgets are counts, never times, so that a verdict does not depend on the machine. Spending one out adds one
`Opaque(size)` fact and stops the evaluation where it stands.

Invariant: nothing here touches a disk; `Files` only remembers what earlier calls and this one would have written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from harness_adapters.guard.facts import Fact, Opaque
from harness_adapters.guard.paths import absolute, follow
from harness_adapters.guard.values import ANY

MAX_COMMANDS = 2000
MAX_DEPTH = 60
MAX_PATH = 4_096
MAX_CONTENT = 65_536
"""Longer file contents and here-documents are not remembered as scripts."""


class Exhausted(Exception):
    """A budget ran out; caught by `tools.facts_of`, never seen outside the package."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command prints: its text as a value, and whether the environment or the network is its source.

    `plain` is true where the text is unknown only because a file's content is.
    """

    text: str = ""
    env: bool = False
    net: bool = False
    plain: bool = False


NOTHING = Output()
DATA = Output(ANY)
FROM_NETWORK = Output(ANY, net=True)


@dataclass
class Files:
    """Contents (`None`: unknown) and symbolic links by absolute path, as the calls so far have made them."""

    contents: dict[str, str | None] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def write(self, path: str, content: str | None, *, append: bool = False) -> None:
        if append and content is not None:
            old = self.contents.get(path, "")
            content = None if old is None else old + content
        if content is not None and len(content) > MAX_CONTENT:
            content = None
        self.contents[path] = content

    def copy_to(self, source: str, target: str) -> None:
        """A copy or renaming: the target has the source's content where that is known, an unknown one otherwise."""
        self.contents[target] = self.contents.get(source)


class Machine:
    """The shared state of one call's evaluation."""

    def __init__(self, *, cwd: str, home: str, files: Files) -> None:
        self.cwd = cwd
        self.home = home
        self.files = files
        self.facts: list[Fact] = []
        self._found: set[Fact] = set()
        self._commands = 0
        self._depth = 0

    def add(self, fact: Fact) -> None:
        """Remember a fact; the same one is kept once."""
        if fact not in self._found:
            self._found.add(fact)
            self.facts.append(fact)

    def forget(self, start: int, kind: type[Fact]) -> None:
        """Drop the facts of one kind that were added from number `start` on."""
        dropped = [fact for fact in self.facts[start:] if isinstance(fact, kind)]
        self._found.difference_update(dropped)
        self.facts[start:] = [fact for fact in self.facts[start:] if not isinstance(fact, kind)]

    def path(self, text: str, cwd: str) -> str:
        """The absolute path that `text` names, known links followed."""
        return follow(absolute(text[:MAX_PATH], cwd, self.home), self.files.links)

    def spend(self) -> None:
        """Count one command. Raises Exhausted after `MAX_COMMANDS`."""
        self._commands += 1
        if self._commands > MAX_COMMANDS:
            self.exhaust("too many commands")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Count one level of nesting. Raises Exhausted beyond `MAX_DEPTH`."""
        if self._depth >= MAX_DEPTH:
            self.exhaust("too deeply nested")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def exhaust(self, why: str) -> None:
        self.add(Opaque(why, "size"))
        raise Exhausted(why)


@dataclass
class Scope:
    """A shell's own state. `cwds` holds every folder it may be in after branches that could not be decided."""

    cwds: tuple[str, ...]
    variables: dict[str, list[str]] = field(default_factory=dict)
    functions: dict[str, tuple[bytes, object]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)

    @property
    def cwd(self) -> str:
        return self.cwds[-1]

    def fork(self) -> Scope:
        """A copy for a subshell."""
        return Scope(self.cwds, dict(self.variables), dict(self.functions), dict(self.aliases), list(self.arguments))

    def merge(self, other: Scope) -> None:
        """Take in what `other`, a branch that may or may not have run, could have changed."""
        self.cwds = tuple(dict.fromkeys(self.cwds + other.cwds))[-6:]
        for name, values in other.variables.items():
            mine = self.variables.get(name)
            merged = values if mine is None else list(dict.fromkeys(mine + values))
            self.variables[name] = merged if len(merged) <= 16 else [ANY]
        self.functions.update(other.functions)
        self.aliases.update(other.aliases)


class Interpreter(Protocol):
    """What a program handler may ask the shell for: run more text or another command."""

    machine: Machine

    def script(self, text: str, scope: Scope, stdin: Output) -> Output: ...

    def command(self, words: Sequence[str], scope: Scope, stdin: Output) -> Output: ...


@dataclass(frozen=True, slots=True)
class Run:
    """One program about to run: its name, its arguments after expansion, its input and the shell around it."""

    shell: Interpreter
    scope: Scope
    name: str
    args: list[str]
    stdin: Output

    @property
    def machine(self) -> Machine:
        return self.shell.machine

    def paths(self, text: str) -> list[str]:
        """The absolute paths that one argument may mean."""
        return list(dict.fromkeys(self.machine.path(text, cwd) for cwd in self.scope.cwds))

    def add(self, fact: Fact) -> None:
        self.machine.add(fact)

    def again(self, words: Sequence[str]) -> Output:
        """Run another command in this one's place (`sudo`, `env`, `timeout` …)."""
        with self.machine.deeper():
            return self.shell.command(words, self.scope, self.stdin)
