"""Scripts that a call writes: judged when they are written for the paths they name, not only when they run."""

from __future__ import annotations

import re
from itertools import islice

from harness_adapters.guard.facts import Fact, Mentions, Puts
from harness_adapters.guard.joined_texts import with_joined
from harness_adapters.guard.machine import DATA, Exhausted, Files, Machine, Run, Scope
from harness_adapters.guard.notebooks import notebook_code
from harness_adapters.guard.paths import absolute
from harness_adapters.guard.programs.wrappers import scheduled_commands
from harness_adapters.guard.python_code import python_facts
from harness_adapters.guard.script_text import script_facts
from harness_adapters.guard.shell import Shell

_SHELL = re.compile(r"\.(sh|bash|zsh)$")
_PYTHON = re.compile(r"\.(?:py|ipynb)$")
_OTHER = re.compile(r"\.(js|mjs|cjs|pl|rb|php)$")
_CRON = re.compile(r"^/etc/cron|^/var/spool/cron|/crontab$")
_UNIT = re.compile(r"\.(service|timer|desktop)$")


_SOURCE = re.compile(
    r"\.(rs|go|c|cc|cpp|cxx|h|hpp|java|kt|scala|swift|cs|fs|lua|exs?|hs|ml|zig|nim|jl|r|R|d|tsx?|jsx|mts|cts|gradle)$"
)
_COMMANDS = re.compile(
    r"\.(sql|cmake|mk|gdb|vim|ninja|tcl|exp|ed|jq|m4)$"
    r"|/(?:CMakeLists\.txt|(?:GNU)?[Mm]akefile|[Jj]ustfile|Dockerfile|Containerfile|meson\.build|\.gdbinit|Taskfile\.ya?ml"
    r"|package\.json|composer\.json|deno\.jsonc?|Rakefile|Procfile|pom\.xml|build\.gradle(?:\.kts)?|\.gitlab-ci\.ya?ml"
    r"|\.github/workflows/[^/]+\.ya?ml)$"
)
"""Files that are commands to some program, in which a path is there to be used."""
_NAMED_PATH = re.compile(r"(?<![\w.:/@-])/[\w./-]{4,200}")
_ROOT = re.compile(
    r"\$[{(](?:CMAKE_(?:CURRENT_)?SOURCE_DIR|PROJECT_SOURCE_DIR|CURDIR|PWD|(?:project\.)?basedir|workspaceFolder)[)}]"
)
"""How build files name their own folder."""
_COMMENT = re.compile(r"(?m)^[ \t]*(?:#|--|//).*$")
_FILE_CALL = re.compile(
    r"open|\bread|file|(?-i:\bPaths?\b)(?!\s*=)|(?:open|read|scan)_?dir|include|(?<!n)load|copy|exists|\bstat\b|fstream|symlink"
    r"|\bglob|\bsystem|\bexec|\bpopen|\bspawn|(?-i:\bCommand\b)|\bsh\b",
    re.IGNORECASE,
)
_MAX_PATHS = 256
_NEAR = 48


def is_script(put: Puts) -> bool:
    """Whether the file is one that something runs."""
    return any(kind.search(put.path) for kind in (_SHELL, _PYTHON, _OTHER, _CRON, _UNIT)) or put.content.startswith(
        "#!"
    )


def script_facts_of(put: Puts, machine: Machine) -> list[Fact]:
    """What the script would do where it runs in the folder that the call is in. Facts over a budget are left out."""
    inner = Machine(cwd=machine.cwd, home=machine.home, files=Files(dict(machine.files.contents)))
    shell = Shell(inner)
    scope = Scope((machine.cwd,))
    first = put.content.partition("\n")[0]
    try:
        if _PYTHON.search(put.path) or "python" in first:
            python_facts(
                Run(shell, scope, put.path, [], DATA),
                notebook_code(put.content) if put.path.endswith(".ipynb") else put.content,
            )
        elif _OTHER.search(put.path) or re.search(r"^#!.*\b(node|perl|ruby|php)", first):
            script_facts(Run(shell, scope, put.path, [], DATA), put.content, put.path)
        elif _CRON.search(put.path):
            shell.script(scheduled_commands(put.content), scope)
        elif _UNIT.search(put.path):
            shell.script("\n".join(re.findall(r"(?m)^Exec\w*\s*=\s*[-@+!:]*(.+)$", put.content)), scope)
        else:
            shell.script(put.content, scope)
    except Exhausted:
        return []
    return inner.facts


def source_facts_of(put: Puts) -> list[Fact]:
    """The absolute paths that a source in a language which is not read here hands to something that opens files or
    runs commands, and those that stand in its texts (`Mentions` with an empty `by`); all in a file of commands."""
    if _COMMANDS.search(put.path):
        folder = put.path.rpartition("/")[0] or "/"
        named = _NAMED_PATH.finditer(_ROOT.sub(folder, _COMMENT.sub("", put.content)))
        return [Mentions("commands", absolute(match[0], folder, folder)) for match in islice(named, _MAX_PATHS)]
    if not _SOURCE.search(put.path):
        return []
    found: list[Fact] = []
    content = with_joined(put.content)
    for match in islice(_NAMED_PATH.finditer(content), _MAX_PATHS):
        before = content[max(0, match.start() - _NEAR) : match.start()].rpartition("\n")[2]
        quoted = before.endswith(('"', "'", "`")) or '"' in before
        if quoted:
            found.append(Mentions("source" if _FILE_CALL.search(before) else "", match[0]))
    return found
