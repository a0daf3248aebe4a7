"""What one evaluation shares: the facts found, the files made so far, and the budgets that keep it bounded.

Budgets are counts, never times, so that a verdict does not depend on the machine. Spending one out adds one
`Opaque(size)` fact and stops the evaluation where it stands.

Invariant: nothing here touches a disk; `Files` only remembers what earlier calls and this one would have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from harness_adapters.guard.facts import Fact, Lists, LooksUp, Mentions, Opaque, Puts, Reads, Touches
from harness_adapters.guard.paths import absolute, follow
from harness_adapters.guard.values import ANY

MAX_WORK = 8_000
"""What one evaluation may cost, in units of about 5 microseconds on the machine it was set on. They are counts all the
same: a command, an argument, a fact and a piece of text each cost a fixed number of units."""
_COMMAND_WORK = 8
_ARGUMENT_WORK = 4
_FREE_ARGUMENTS = 64
_FACT_WORK = 3
_TEXT_WORK = 32
MAX_DEPTH = 60
MAX_PATH = 4_096
MAX_COPIES = 256
MAX_LINKS = 256
MAX_FILES = 4_096
MAX_HELD = 4 << 20
"""Characters of file contents that are remembered in one session; what is written beyond that is unknown."""
MAX_ORIGINS = 8
MAX_CONTENT = 65_536
"""Longer file contents and here-documents are not remembered as scripts."""


class Exhausted(Exception):
    """A budget ran out; caught by `tools.facts_of`, never seen outside the package."""


class Output(NamedTuple):
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
    copies: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)
    own_refs: set[str] = field(default_factory=set)
    stashed: bool = False
    worktrees: dict[str, str] = field(default_factory=dict)
    fragments: dict[str, list[str]] = field(default_factory=dict)
    archives: dict[str, tuple[str, ...]] = field(default_factory=dict)
    held: int = 0
    """Characters of contents and fragments that were ever taken in."""

    def fork(self) -> Files:
        """A copy that may go on by itself."""
        return replace(
            self,
            contents=dict(self.contents),
            copies=dict(self.copies),
            links=dict(self.links),
            images=set(self.images),
            own_refs=set(self.own_refs),
            worktrees=dict(self.worktrees),
            fragments={path: list(pieces) for path, pieces in self.fragments.items()},
            archives=dict(self.archives),
        )

    @property
    def overfull(self) -> bool:
        """Whether there are more files or links than are told apart."""
        return len(self.contents) > MAX_FILES or len(self.links) > MAX_LINKS

    def write(self, path: str, content: str | None, *, append: bool = False) -> None:
        if append and content is not None:
            old = self.contents.get(path, "")
            content = None if old is None else old + content
        if content is not None and (len(content) > MAX_CONTENT or self.held > MAX_HELD):
            content = None
        self.held += len(content or "")
        self.contents[path] = content

    def text_of(self, path: str) -> str:
        """The content, or where that is not known the pieces that edits put in; empty where the session has written
        neither."""
        return self.contents.get(path) or "\n".join(self.fragments.get(path, ()))

    def changed(self) -> list[str]:
        """The paths of the files that the session has written or edited."""
        return list({**self.contents, **self.fragments})

    def add_fragment(self, path: str, text: str) -> None:
        """A piece that an edit put into the file."""
        if self.held <= MAX_HELD:
            self.held += min(len(text), MAX_CONTENT)
            self.fragments.setdefault(path, []).append(text[:MAX_CONTENT])

    def copy_to(self, source: str, target: str) -> None:
        """A copy or renaming: the target has the source's content where that is known, an unknown one otherwise."""
        self.contents[target] = self.contents.get(source)
        if len(self.copies) < MAX_COPIES and not target.startswith(source.rstrip("/") + "/"):
            self.copies[target] = source

    def origins(self, path: str) -> list[str]:
        """Where the thing at `path` was copied from, and from where before that; each copy counts once."""
        found: list[str] = []
        used: set[str] = set()
        while len(used) < MAX_ORIGINS:
            copy = next(
                (
                    target
                    for target in self.copies
                    if target not in used and (path == target or path.startswith(target.rstrip("/") + "/"))
                ),
                None,
            )
            if copy is None:
                break
            used.add(copy)
            path = self.copies[copy] + path[len(copy.rstrip("/")) :]
            found.append(path)
        return found


_LOOKS = (Reads, Lists, Mentions, Touches)


class Machine:
    """The shared state of one call's evaluation."""

    def __init__(self, *, cwd: str, home: str, files: Files) -> None:
        self.cwd = cwd
        self.home = home
        self.files = files
        self.facts: list[Fact] = []
        self.left = ""
        self.moved = False
        self.resumed = ""
        """Where a shell that lasts stands, or nothing where the call starts a new one."""
        self.variables: dict[str, list[str]] = {}
        """What such a shell has set."""
        self.sought = ""
        self.imported: set[str] = set()
        """Modules of the session that code of this call has imported."""
        self.stash_mark: int | None = None
        self._found: set[Fact] = set()
        self._work = 0
        self._depth = 0

    def add(self, fact: Fact) -> None:
        """Remember a fact; the same one is kept once."""
        if not self._keep(fact):
            return
        if isinstance(fact, _LOOKS) and (self.files.copies or self.files.worktrees):
            for origin in self.files.origins(fact.path):
                self._keep(Reads(fact.by, origin, fact.deep))
            for folder, revision in self.files.worktrees.items():
                if fact.path.startswith(folder + "/"):
                    self.add(LooksUp(fact.by, revision))

    def _keep(self, fact: Fact) -> bool:
        """Whether the fact is a new one."""
        found = self._found
        before = len(found)
        found.add(fact)
        if len(found) == before:
            return False
        self.facts.append(fact)
        if not isinstance(fact, Opaque):
            self._spend(_FACT_WORK)
        return True

    def put(self, by: str, path: str, text: str) -> None:
        """`text` becomes part of the file `path`."""
        if text.strip():
            self.add(Puts(by, path, text[:MAX_CONTENT]))

    def copied(self, by: str, source: str, target: str) -> None:
        """`target` now holds what `source` holds; looking at the copy is looking at the source."""
        self.files.copy_to(source, target)
        content = self.files.contents.get(target)
        if content is not None:
            self.put(by, target, content)

    def forget(self, start: int, kind: type[Fact]) -> None:
        """Drop the facts of one kind that were added from number `start` on."""
        dropped = [fact for fact in self.facts[start:] if isinstance(fact, kind)]
        self._found.difference_update(dropped)
        self.facts[start:] = [fact for fact in self.facts[start:] if not isinstance(fact, kind)]

    def keep(self, start: int, kind: type[Fact]) -> None:
        """Of the facts that were added from number `start` on, keep those of one kind."""
        self._found.difference_update(fact for fact in self.facts[start:] if not isinstance(fact, kind))
        self.facts[start:] = [fact for fact in self.facts[start:] if isinstance(fact, kind)]

    def path(self, text: str, cwd: str) -> str:
        """The absolute path that `text` names, known links followed."""
        return follow(absolute(text, cwd, self.home)[:MAX_PATH], self.files.links)

    def spend_command(self, arguments: int) -> None:
        """Count one command. Raises Exhausted over `MAX_WORK`."""
        self._spend(_COMMAND_WORK + _ARGUMENT_WORK * max(0, arguments - _FREE_ARGUMENTS))

    def spend_text(self, length: int) -> None:
        """Count `length` characters that are parsed. Raises Exhausted over `MAX_WORK`."""
        self._spend(4 + length // _TEXT_WORK)

    def _spend(self, units: int) -> None:
        self._work += units
        if self._work > MAX_WORK:
            raise Exhausted("too much to judge")

    def deeper(self) -> Machine:
        """Count one level of nesting for a `with` block. Raises Exhausted beyond `MAX_DEPTH`."""
        if self._depth >= MAX_DEPTH:
            self.exhaust("too deeply nested")
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
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


class Run(NamedTuple):
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
