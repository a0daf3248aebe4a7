"""What a tool call would do, as a flat list of facts; the only thing that rules look at.

Paths are absolute and normalised, and may hold the markers of `values`. `by` names the program, function or tool that
the fact comes from.

Invariant: a fact is never changed once it is made. `frozen` would say so, at several times the price of making one.
Asymmetry: `Reads`, `Lists` and `Mentions` leave a file as it is; `Touches` is a program that we do not know well enough
to say so, and counts as a change where changes are forbidden.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness_adapters.guard.values import show


@dataclass(slots=True, unsafe_hash=True)
class Fact:
    """Base of all facts."""

    by: str

    def text(self) -> str:
        """The fact for a person to read: `Writes(/workspace/a.txt) by tee`."""
        values = [getattr(self, name) for name in self.__match_args__ if name != "by"]
        inner = ", ".join(show(str(value), 80) for value in values if value not in ("", False))
        return f"{type(self).__name__}({inner}) by {show(self.by, 40)}"


@dataclass(slots=True, unsafe_hash=True)
class PathFact(Fact):
    """A fact about one path. `deep`: everything below it as well."""

    path: str
    deep: bool = False


@dataclass(slots=True, unsafe_hash=True)
class Reads(PathFact):
    """The contents are read."""


@dataclass(slots=True, unsafe_hash=True)
class Lists(PathFact):
    """Names or properties are looked at, not contents."""


@dataclass(slots=True, unsafe_hash=True)
class Mentions(PathFact):
    """The path stands in code, without a sign of what is done with it."""


@dataclass(slots=True, unsafe_hash=True)
class Touches(PathFact):
    """The path is given to a program that may do anything with it."""


@dataclass(slots=True, unsafe_hash=True)
class Writes(PathFact):
    """Contents, name, permission or target of the path change."""


@dataclass(slots=True, unsafe_hash=True)
class Creates(PathFact):
    """A whole file is written, which may be new."""


@dataclass(slots=True, unsafe_hash=True)
class Deletes(PathFact):
    """The path goes away, by removal or by renaming."""


CHANGES: tuple[type[PathFact], ...] = (Writes, Creates, Deletes, Touches)
"""After these a path is not what it was, or may not be."""
PATHS: tuple[type[PathFact], ...] = (Reads, Lists, Mentions, *CHANGES)


@dataclass(slots=True, unsafe_hash=True)
class Connects(Fact):
    """A connection (or a name look-up) to `host`; an empty host is one that could not be found out.

    `port` is empty where the default of the scheme is meant.
    """

    host: str
    port: str = ""


@dataclass(slots=True, unsafe_hash=True)
class UsesRegistry(Fact):
    """A package manager that goes to its default index."""


@dataclass(slots=True, unsafe_hash=True)
class UsesDataset(Fact):
    """A data set or repository id given to something that downloads."""

    name: str


@dataclass(slots=True, unsafe_hash=True)
class SearchesWeb(Fact):
    """A web search with the given query."""

    query: str


@dataclass(slots=True, unsafe_hash=True)
class SetsEnv(Fact):
    """A variable of the environment is set; an empty value means emptied or removed."""

    name: str
    value: str


@dataclass(slots=True, unsafe_hash=True)
class ReadsEnv(Fact):
    """A variable that nothing here has set is read."""

    name: str


@dataclass(slots=True, unsafe_hash=True)
class DumpsEnv(Fact):
    """The whole environment, or that of another process, is shown."""


@dataclass(slots=True, unsafe_hash=True)
class SeeksSecret(Fact):
    """A credential store is asked, or places outside the task are searched for credentials."""

    what: str


@dataclass(slots=True, unsafe_hash=True)
class Evades(Fact):
    """A step around the proxy, the guard or the harness settings; `how` in a few words."""

    how: str


@dataclass(slots=True, unsafe_hash=True)
class Opaque(Fact):
    """Something needed for a judgement cannot be known; `where` is host, path, program, code, script or size."""

    where: str


@dataclass(slots=True, unsafe_hash=True)
class Puts(Fact):
    """`text` becomes part of the file `path`: the whole of it, a replacement, or the lines that a patch adds."""

    path: str
    content: str


@dataclass(slots=True, unsafe_hash=True)
class Links(Fact):
    """`path` becomes another name of `target`."""

    path: str
    target: str


@dataclass(slots=True, unsafe_hash=True)
class Shadows(Fact):
    """The name of a program comes to mean something else; `how` in a few words."""

    program: str
    how: str


@dataclass(slots=True, unsafe_hash=True)
class LooksUp(Fact):
    """The history or another source is searched for what the working tree does not hold."""

    what: str


@dataclass(slots=True, unsafe_hash=True)
class GetsPackage(Fact):
    """A package is downloaded; `aside`: to a place of its own, to look at rather than to use."""

    name: str
    aside: bool


@dataclass(slots=True, unsafe_hash=True)
class Kills(Fact):
    """Processes are ended or stopped: by number, or by a pattern on their names."""

    what: str


@dataclass(slots=True, unsafe_hash=True)
class Delegates(Fact):
    """Another agent is given this text as its task."""

    task: str


@dataclass(slots=True, unsafe_hash=True)
class Runs(Fact):
    """A program is run with these arguments."""

    args: tuple[str, ...]
