"""What programs do with their arguments: one handler per program or family, a careful default for the rest.

The default principle: a program that nobody here knows may change every path and reach every URL it is given. Programs
that only read, and programs whose arguments are text, are listed; everything that writes need not be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from harness_adapters.guard.facts import DumpsEnv, Opaque, Runs
from harness_adapters.guard.machine import Output, Run
from harness_adapters.guard.programs import (
    builtins,
    downloads,
    files,
    generic,
    git,
    interpreters,
    network,
    packages,
    readers,
    searches,
    services,
    snapshots,
    sources,
    wrappers,
)
from harness_adapters.guard.values import ANY, MADE, ONE, STAR, names

Handler = Callable[[Run], Output]

HANDLERS: Mapping[str, Handler] = {
    **builtins.HANDLERS,
    **readers.HANDLERS,
    **searches.HANDLERS,
    **files.HANDLERS,
    **downloads.HANDLERS,
    **network.HANDLERS,
    **services.HANDLERS,
    **packages.HANDLERS,
    **git.HANDLERS,
    **wrappers.HANDLERS,
    **interpreters.HANDLERS,
}

_VERSIONED = re.compile(r"^(python|pypy|perl|ruby|node|php|pip|lua|gcc|clang)[\d.]*$")

_UNKNOWN_NAME = re.compile(f"[{ANY}{MADE}{STAR}{ONE}]")
_FILTERS = frozenset(
    names(
        "cat head tail sort uniq cut grep egrep fgrep rg sed awk gawk mawk tr wc tee paste fold column nl env "
        "less more rev"
    )
)
"""What may stand behind a dump of the environment and says by itself whether its output still is one."""


_KNOWN_ANYWHERE = frozenset(names("gradlew mvnw python sh bash node perl ruby make pytest tox npm npx yarn cargo go"))


def _is_own_program(path: str) -> bool:
    """Whether a path leads to a program of the project, which only happens to be called like a known one."""
    folder, slash, name = path.rpartition("/")
    if not slash or folder.endswith("bin") or folder.startswith(("/bin", "/usr", "/sbin", "/opt")):
        return False
    versioned = _VERSIONED.match(name)
    return (versioned[1] if versioned else name) not in _KNOWN_ANYWHERE


def run(run: Run) -> Output:
    """Add what the program does; its output."""
    name = run.name.rpartition("/")[2]
    versioned = _VERSIONED.match(name)
    if versioned:
        name = versioned[1]
    run.add(Runs(name, tuple(run.args)))
    if run.stdin.env and name not in _FILTERS:
        run.add(DumpsEnv(name))
    if _UNKNOWN_NAME.search(name) and run.name != STAR:
        run.add(Opaque(run.name, "program"))
        return generic.unknown_program(run)
    own = interpreters.run_own_script(run) if "/" in run.name else None
    if own is not None:
        return own
    handler = HANDLERS.get(name) if not _is_own_program(run.name) else None
    named = run if name == run.name else Run(run.shell, run.scope, name, run.args, run.stdin)
    snapshots.updates(named)
    sources.run_own(named)
    if handler is not None:
        return handler(named)
    if "/" in run.name and not run.name.startswith(("/bin/", "/usr/", "/sbin/", "/opt/")):
        return readers.reads_arguments(run)
    return generic.unknown_program(run)
