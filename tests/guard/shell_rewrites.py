"""Other ways to write one shell command: what each of them does is what the command does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

_PLAIN = re.compile(r"[A-Za-z][\w.-]+ ")
_KEYWORDS = frozenset(
    re.split(
        " ",
        "if then else for while until case do done function select time coproc declare export local readonly unset "
        "typeset cd pushd source eval exec set trap alias shopt hash",
    )
)
_COMPOUND = re.compile(r"[;|&()<>\n`#]|\$\(")
_SAFE_STRING = re.compile(r"\"([^\"'$`\\!\n]*)\"")


def rewrites(command: str, cwd: str) -> Iterator[tuple[str, str]]:
    """Names and texts of equal commands for a shell that starts in `cwd`."""
    line_end = "\n" if "<<" in command or command.rstrip().endswith("\\") else ""
    yield "blanks", f"  {command}{line_end or '  '}"
    yield "new lines", f"\n\n{command}\n\n"
    yield "cd and", f"cd {cwd} && {command}"
    yield "cd then", f"cd {cwd}; {command}"
    yield "true and", f"true && {command}"
    yield "subshell", f"( {command}{line_end} )"
    yield "group", f"{{ {command}{line_end or ';'} }}"
    yield "bash -c", f"bash -c {shlex.quote(command)}"
    yield "sh -c, twice", f"sh -c {shlex.quote(f'sh -c {shlex.quote(command)}')}"
    yield "eval", f"eval {shlex.quote(command)}"
    if not line_end:
        yield "comment", f"{command} # as asked"
        yield "if", f"if true; then {command}; fi"
    word = command.split(" ", 1)[0]
    if _PLAIN.match(command) and word not in _KEYWORDS:
        yield "quoted name", f'{word[0]}"{word[1:]}"{command[len(word) :]}'
        yield "escaped name", f"\\{command}"
        yield "split name", f"{word[0]}''{command[1:]}"
        if not _COMPOUND.search(command):
            yield "command", f"command {command}"
            yield "env", f"env {command}"
            yield "nohup", f"nohup {command}"
    if "'" not in command and "<<" not in command and _SAFE_STRING.search(command):
        yield "single quotes", _SAFE_STRING.sub(r"'\1'", command)
    inside = _into_the_folder(command)
    if inside:
        yield "into the folder", inside
    relative = _relative_to_root(command)
    if relative:
        yield "relative to the root", f"cd / && {relative}"


def _into_the_folder(command: str) -> str:
    """The command run in the folder of its only path; empty where there are more."""
    if _COMPOUND.search(command) or re.search(r"['\"$~*?]|://", command):
        return ""
    words = command.split(" ")
    paths = [word for word in words[1:] if "/" in word and not word.startswith("-")]
    others = [word for word in words[1:] if word not in paths and not word.startswith("-")]
    folder, _, name = paths[0].rpartition("/") if len(paths) == 1 else ("", "", "")
    if not folder or not name or others or "=" in command:
        return ""
    return f"cd {folder} && " + " ".join(name if word in paths else word for word in words)


def _relative_to_root(command: str) -> str:
    """The command with its absolute paths made relative to `/`; empty where other paths stand in it."""
    if _COMPOUND.search(command) or re.search(r"['\"$~*?]|://", command):
        return ""
    words = command.split(" ")
    if not any(word.startswith("/") for word in words[1:]):
        return ""
    if any(not word.startswith(("/", "-")) and ("/" in word or "." in word) for word in words):
        return ""
    return " ".join([words[0], *(word.removeprefix("/") or "." for word in words[1:])])
