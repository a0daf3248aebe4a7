"""git: which sub-commands change files of the working tree, reach a host, or show credentials."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from harness_adapters.guard.facts import (
    Connects,
    Creates,
    Deletes,
    Evades,
    LooksUp,
    Mentions,
    Reads,
    SeeksSecret,
    Writes,
)
from harness_adapters.guard.machine import DATA, Output, Run, Scope
from harness_adapters.guard.programs.files import add_patch
from harness_adapters.guard.programs.generic import add_path, connect_urls, split_options
from harness_adapters.guard.values import ANY, DEEP, is_known, names, wild

_NETWORK = frozenset(names("clone fetch pull push ls-remote submodule remote archive request-pull lfs"))
_SHOWING = frozenset(
    names(
        "log show diff rev-list shortlog whatchanged grep blame cherry format-patch show-branch archive checkout "
        "restore switch cherry-pick worktree merge rebase cat-file read-tree ls-tree reset fsck name-rev rev-parse "
        "range-diff difftool bundle replace"
    )
)
_EVERYTHING = re.compile(
    r"^(--all|--remotes(=.*)?|--tags(=.*)?|--reflog|-g|--walk-reflogs|--glob=.*|--batch-all-objects|--lost-found"
    r"|--unreachable|--dangling|--alternate-refs)$"
)
_ELSEWHERE = re.compile(
    r"^(refs/)?(remotes/|origin/|upstream/|fork/|tags/)|^(FETCH_HEAD|ORIG_HEAD|MERGE_HEAD)$"
    r"|^(refs/tags/)?(v|release[-/])?\d+\.\d+(\.\d+)?([-.]?\w+)?$|[\w./-]*@\{(?:u|upstream|push)\}|stash(?:@\{|$)|@\{"
)
_IS_HEAD = re.compile(r"^(?:HEAD|@)(?:[~^]\d*)*$")
_COMMIT = re.compile(r"^[0-9a-f]{7,40}$")
_WHOLE_TREE = frozenset(names("merge rebase cherry-pick revert am pull read-tree checkout-index"))


def _git(run: Run) -> Output:
    args = list(run.args)
    scope = run.scope.fork()
    while args and args[0].startswith("-"):
        option = args.pop(0)
        if option in ("-C", "--work-tree", "--git-dir") and args:
            folder = args.pop(0)
            add_path(run, Mentions, folder)
            if option == "-C" or option == "--work-tree":
                scope.cwds = tuple(run.paths(folder))
        elif option == "-c" and args:
            _setting(run, args.pop(0))
        elif option.startswith("--git-dir="):
            add_path(run, Mentions, option.partition("=")[2])
        elif option.startswith("--work-tree="):
            add_path(run, Mentions, option.partition("=")[2])
            scope.cwds = tuple(run.paths(option.partition("=")[2]))
    if not args:
        return DATA
    command, rest = args[0], args[1:]
    inner = Run(run.shell, scope, f"git {command}", rest, run.stdin)
    if command in _NETWORK or any(
        "://" in arg for arg in rest if command not in ("commit", "log", "grep", "tag", "notes", "config")
    ):
        connect_urls(inner, rest)
    _history(inner, command)
    for arg in rest:
        if re.fullmatch(r"[/~][\w./~+-]+", arg):
            add_path(inner, Mentions, arg)
    if command in ("commit", "merge", "rebase", "checkout", "switch", "push", "am", "pull"):
        _hooks(inner)
    handler = _SUBCOMMANDS.get(command)
    if handler is not None:
        handler(inner)
    elif command in _WHOLE_TREE and not any(arg in ("--abort", "--continue", "--quit", "log", "start") for arg in rest):
        add_path(inner, Writes, DEEP)
    if command == "grep" and "--" in rest and any(_NAMES_ONLY.match(arg) for arg in rest):
        specs = [wild(arg) for arg in rest[rest.index("--") + 1 :]]
        return Output("".join(f"{spec}\n{spec}/{DEEP}\n" for spec in specs), plain=True)
    if command == "ls-files":
        names_of = [wild(arg) for arg in rest if not arg.startswith("-")]
        return Output("\n".join(names_of) + "\n" if names_of else f"{DEEP}\n", plain=True)
    return Output(ANY, plain=True) if command not in ("show", "cat-file") else DATA


def _history(run: Run, command: str) -> None:
    """Looks at what the repository holds beyond the commit that is checked out."""
    if command in ("verify-pack", "unpack-objects"):
        run.add(LooksUp(run.name, "packed objects"))
    if command in ("reflog",) and run.args[:1] not in (["expire"], ["delete"]):
        run.add(LooksUp(run.name, "the reflog"))
    if command == "stash" and run.args[:1] == ["pop"] and run.machine.stash_mark is not None:
        # What was put aside in this call comes back: nothing has changed.
        run.machine.forget(run.machine.stash_mark, Writes)
    restores = command == "stash" and run.args[:1] in (["apply"], ["pop"], ["show"], ["branch"])
    if restores and not run.machine.files.stashed:
        run.add(LooksUp(run.name, "a stash"))
    if command in ("tag", "branch") or (command in ("checkout", "switch") and {"-b", "-B", "-c"} & set(run.args)):
        run.machine.files.own_refs |= {arg for arg in run.args if not arg.startswith("-")}
    names_only = command == "rev-parse" and any(arg in ("--abbrev-ref", "--symbolic-full-name") for arg in run.args)
    if command not in _SHOWING or names_only:
        return
    for arg in run.args:
        if arg == "--":
            break
        if _EVERYTHING.match(arg) and not (command == "show-ref" or (command == "for-each-ref")):
            run.add(LooksUp(run.name, f"commits that {arg} brings in"))
        elif not arg.startswith("-"):
            _revision(run, arg)
        elif "=" in arg:
            _revision(run, arg.partition("=")[2])


def _work_tree(run: Run) -> None:
    """`git worktree add FOLDER REV`: what is read there is what REV holds."""
    _, operands = split_options(run.args[1:], "-b -B --reason --orphan")
    if run.args[:1] == ["add"] and len(operands) > 1:
        for folder in run.paths(operands[0]) if not _IS_HEAD.match(operands[1]) else ():
            run.machine.files.worktrees[folder] = re.split(r"[:^~]", operands[1], maxsplit=1)[0]


def _revision(run: Run, text: str) -> None:
    """One revision or range. What ends at HEAD shows only what is checked out already."""
    if is_known(text) and ("..." in text or ".." in text):
        end = re.split(r"\.{2,3}", text)[-1]
        if end in ("", "HEAD", "@"):
            return
        text = end
    name = re.split(r"[:^~]", text, maxsplit=1)[0]
    if name in run.machine.files.own_refs:
        return
    if _COMMIT.match(name) or _ELSEWHERE.match(name):
        run.add(LooksUp(run.name, name))


def _setting(run: Run, text: str) -> None:
    key, _, value = text.partition("=")
    if "proxy" in key.lower():
        run.add(Evades("git", f"sets {key}"))
    elif key.lower().startswith(
        ("alias.", "core.sshcommand", "core.fsmonitor", "core.pager", "core.editor", "diff.external")
    ):
        command = value.removeprefix("!")
        if value:
            run.shell.script(command, run.scope.fork(), DATA)
    elif key.lower() == "core.hookspath":
        for folder in run.paths(value):
            _hooks(run, folder + "/")
            if not folder.startswith(run.machine.cwd + "/"):
                run.add(Evades("git", "switches the repository's hooks off"))
    elif "insteadof" in key.lower():
        connect_urls(run, [key, value])


def _paths_after_dashes(args: list[str]) -> list[str] | None:
    return args[args.index("--") + 1 :] if "--" in args else None


def _checkout(run: Run) -> None:
    options, operands = split_options(run.args, "-b -B --orphan -s --source -c -C")
    if any(o in options for o in ("-b", "-B", "--orphan", "-c", "-C")):
        return
    paths = _paths_after_dashes(run.args)
    if paths is None:
        paths = operands if run.name == "git restore" else operands[1:] or [o for o in operands if "." in o or "/" in o]
        if run.name == "git switch":
            paths = []
    if run.name == "git restore" and "--staged" in options and "--worktree" not in options:
        return
    for path in paths:
        add_path(run, Writes, path, deep=True)
        if path in (".", "./", ":/", "*"):
            add_path(run, Writes, DEEP)
    if not paths and operands and operands[0] not in ("-",) and run.name == "git checkout":
        add_path(run, Writes, DEEP)


def _remove(run: Run) -> None:
    options, operands = split_options(run.args, "")
    if "--cached" in options and run.name == "git rm":
        for operand in operands:
            add_path(run, Writes, operand)
        return
    if run.name == "git mv":
        for operand in operands[:-1]:
            add_path(run, Deletes, operand)
        add_path(run, Creates, operands[-1] if operands else "")
        return
    for operand in operands:
        add_path(run, Deletes, operand, deep=True)


def _reset(run: Run) -> None:
    if any(arg in ("--hard", "--merge", "--keep") for arg in run.args):
        add_path(run, Writes, DEEP)


def _clean(run: Run) -> None:
    options, operands = split_options(run.args, "-e --exclude")
    if "-n" in options or "--dry-run" in options:
        return
    for operand in operands or [DEEP]:
        add_path(run, Deletes, operand, deep=bool(operands))


def _stash(run: Run) -> None:
    if not run.args or run.args[0] in (
        "push",
        "save",
        "-u",
        "--include-untracked",
        "-k",
        "--keep-index",
        "-q",
        "-a",
        "--all",
    ):
        run.machine.files.stashed = True
        run.machine.stash_mark = len(run.machine.facts)
        paths = _paths_after_dashes(run.args)
        for path in paths or [DEEP]:
            add_path(run, Writes, path)


def _apply(run: Run) -> None:
    options, operands = split_options(run.args, "-p --directory --exclude --include --whitespace -C")
    for pattern in options.get("--include", []):
        add_path(run, Writes, wild(pattern))
    if any(o in options for o in ("--include", "--exclude", "--check", "--stat", "--numstat", "--summary")):
        return
    texts: list[str] = []
    for operand in operands:
        if operand != "-":
            add_path(run, Reads, operand)
            texts.append(run.machine.files.contents.get(run.paths(operand)[-1]) or ANY)
    add_patch(run, texts or [run.stdin.text], (options.get("--directory") or ["."])[0])


_NAMES_ONLY = re.compile(r"-[a-zA-Z]*l|--files-with-matches|--name-only")
_SECRET_KEY = re.compile(r"credential|extraheader|token|passw|secret", re.IGNORECASE)


def _config(run: Run) -> None:
    operands = [arg for arg in run.args if not arg.startswith("-")]
    if not operands:
        return
    reads = (
        any(arg.startswith(("--get", "--list", "-l")) for arg in run.args)
        or len(operands) == 1
        or operands[0] in ("get", "list")
    )
    key = operands[1] if operands[0] in ("get", "set", "unset") and len(operands) > 1 else operands[0]
    removes = any(arg.startswith(("--unset", "--remove")) for arg in run.args)
    if "proxy" in key.lower() and (removes or not reads):
        run.add(Evades("git config", f"changes {key}"))
    elif reads and _SECRET_KEY.search(key) and not key.lower().endswith(".helper"):
        run.add(SeeksSecret("git config", key))
    elif not reads and len(operands) > 1:
        _setting(run, f"{key}={operands[-1]}")


def _credential(run: Run) -> None:
    run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))


def _fetch(run: Run) -> None:
    if run.name == "git clone" or (run.name == "git submodule" and "update" not in run.args):
        return
    remotes = [arg for arg in run.args if not arg.startswith("-")]
    if run.name == "git push" and (not remotes or re.fullmatch(r"[\w-]+", remotes[0])):
        # It goes to the remote that the checkout came with, and brings nothing back.
        return
    known_local = remotes and remotes[0].startswith(("/", ".", "file:"))
    if not known_local and not any("://" in arg or "@" in arg for arg in remotes) and run.name != "git remote":
        run.add(Connects(run.name, "", ""))
    if run.name == "git pull":
        add_path(run, Writes, DEEP)


def _rebase_exec(run: Run) -> None:
    options, _ = split_options(run.args, "-x --exec --onto -s -X")
    for command in options.get("-x", []) + options.get("--exec", []):
        run.shell.script(command, Scope(run.scope.cwds), DATA)
    if not any(arg in ("--abort", "--continue", "--skip", "--quit") for arg in run.args):
        add_path(run, Writes, DEEP)


def _runs_commands(run: Run) -> None:
    """Options of which git makes shell commands."""
    flags = ("-x", "--extcmd", "--tree-filter", "--index-filter", "--msg-filter", "--env-filter", "--commit-filter")
    for before, after in pairwise(run.args):
        if before in flags:
            run.shell.script(after, Scope(run.scope.cwds), DATA)
    for arg in run.args:
        if arg.startswith("--extcmd="):
            run.shell.script(arg.partition("=")[2], Scope(run.scope.cwds), DATA)
    if run.name == "git submodule" and "foreach" in run.args:
        words = [arg for arg in run.args[run.args.index("foreach") + 1 :] if arg != "--recursive"]
        scope = Scope(tuple(path for cwd in run.scope.cwds for path in (cwd, f"{cwd}/{ANY}")))
        run.shell.script(" ".join(words), scope, DATA)


def _hooks(run: Run, folder: str = "/.git/hooks/") -> None:
    """Hooks that the session has written run at some sub-commands."""
    for path, content in list(run.machine.files.contents.items()):
        if content and folder in path:
            run.shell.script(content, Scope(run.scope.cwds), DATA)


def _show(run: Run) -> None:
    for arg in run.args:
        if arg.startswith("--output="):
            add_path(run, Creates, arg.partition("=")[2])


def _update_index(run: Run) -> None:
    if any(arg.startswith(("--assume-unchanged", "--skip-worktree", "--chmod")) for arg in run.args):
        for arg in run.args:
            if not arg.startswith("-"):
                add_path(run, Writes, arg)


_SUBCOMMANDS: Mapping[str, Callable[[Run], None]] = {
    **dict.fromkeys(("checkout", "restore", "switch"), _checkout),
    **dict.fromkeys(("rm", "mv"), _remove),
    **dict.fromkeys(("fetch", "pull", "push", "ls-remote", "lfs"), _fetch),
    **dict.fromkeys(("show", "diff", "log", "format-patch", "archive"), _show),
    "reset": _reset,
    "clean": _clean,
    "stash": _stash,
    "apply": _apply,
    "am": _apply,
    "config": _config,
    "credential": _credential,
    "credential-store": _credential,
    "credential-cache": _credential,
    "rebase": _rebase_exec,
    "update-index": _update_index,
    "worktree": _work_tree,
    **dict.fromkeys(("difftool", "filter-branch", "submodule"), _runs_commands),
}

HANDLERS: Mapping[str, Callable[[Run], Output]] = {"git": _git}
