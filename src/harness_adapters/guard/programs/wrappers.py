"""Programs that run another program: `env`, `sudo`, `timeout`, `xargs`, `find -exec` …"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from harness_adapters.guard.facts import (
    Connects,
    Delegates,
    Deletes,
    Evades,
    Lists,
    LooksUp,
    Opaque,
    Reads,
    SeeksSecret,
    SetsEnv,
    UsesRegistry,
    Writes,
)
from harness_adapters.guard.machine import DATA, Output, Run
from harness_adapters.guard.programs import searches
from harness_adapters.guard.programs.generic import add_path
from harness_adapters.guard.values import ANY, DEEP, MADE, STAR, hides, names, wild

_VALUE_OPTIONS: Mapping[str, frozenset[str]] = {
    "sudo": frozenset(names("-u -g -h -p -C -r -t -D")),
    "doas": frozenset(("-u", "-C")),
    "timeout": frozenset(names("-s -k --signal --kill-after")),
    "nice": frozenset(("-n",)),
    "ionice": frozenset(names("-c -n -p")),
    "stdbuf": frozenset(names("-i -o -e")),
    "time": frozenset(names("-f -o --format --output")),
    "watch": frozenset(names("-n -d --interval")),
    "flock": frozenset(names("-w -E")),
    "chrt": frozenset(("-p",)),
    "exec": frozenset(("-a",)),
    "prlimit": frozenset(),
    "taskset": frozenset(),
}
_LEADING_OPERANDS = {"timeout": 1, "flock": 1, "chroot": 1, "taskset": 1, "chrt": 1}
_SECRET_FILE = re.compile(
    r"\.netrc|\.env\b|id_rsa|id_ed25519|\.pem|token|credential|secret|\.aws|\.npmrc|\.pypirc|kaggle\.json",
    re.IGNORECASE,
)


def _wrapper(run: Run) -> Output:
    """The command after the wrapper's own options and operands."""
    takes = _VALUE_OPTIONS.get(run.name, frozenset())
    args = list(run.args)
    leading = _LEADING_OPERANDS.get(run.name, 0)
    if run.name == "sudo":
        run = _in_folder(run)
    while args:
        if args[0] == "--":
            args = args[1:]
            break
        if args[0].startswith("-") and len(args[0]) > 1:
            args = args[2:] if args[0] in takes else args[1:]
        elif re.match(r"^[A-Za-z_]\w*=", args[0]):
            name, _, value = args.pop(0).partition("=")
            run.add(SetsEnv(run.name, name, value))
        elif leading:
            leading -= 1
            args = args[1:]
        else:
            break
    if run.name == "exec" and not args:
        return DATA
    if run.name == "watch":
        return run.shell.script(" ".join(args), run.scope.fork(), run.stdin)
    return run.again(args) if args else DATA


def _in_folder(run: Run) -> Run:
    """`sudo -D FOLDER`: the command starts there."""
    named = [b for a, b in pairwise(run.args) if a in ("-D", "--chdir")]
    named += [arg.partition("=")[2] for arg in run.args if arg.startswith("--chdir=")]
    if not named:
        return run
    add_path(run, Lists, named[0])
    scope = run.scope.fork()
    scope.cwds = tuple(run.paths(named[0]))
    return Run(run.shell, scope, run.name, run.args, run.stdin)


def _env(run: Run) -> Output:
    """`env`: its own options and assignments, then the command. An emptied environment matters to what connects."""
    args = list(run.args)
    scope = run.scope.fork()
    emptied = False
    while args:
        arg = args[0]
        if arg in ("-i", "-", "--ignore-environment"):
            emptied = True
            args = args[1:]
        elif arg in ("-u", "--unset", "-C", "--chdir", "-S", "--split-string"):
            value = args[1] if len(args) > 1 else ""
            if arg in ("-u", "--unset"):
                run.add(SetsEnv(run.name, value, ""))
            elif arg in ("-S", "--split-string"):
                return run.shell.script(" ".join([value, *args[2:]]), run.scope.fork(), run.stdin)
            else:
                add_path(run, Lists, value)
                scope.cwds = tuple(run.paths(value))
            args = args[2:]
        elif arg.startswith("--unset=") or re.match(r"^-u.", arg):
            run.add(SetsEnv(run.name, arg.partition("=")[2] if "=" in arg else arg[2:], ""))
            args = args[1:]
        elif re.match(r"^[A-Za-z_]\w*=", arg):
            name, _, value = arg.partition("=")
            run.add(SetsEnv(run.name, name, value))
            args = args[1:]
        elif arg.startswith(("--chdir=", "-C")):
            value = arg.removeprefix("--chdir=").removeprefix("-C")
            add_path(run, Lists, value)
            scope.cwds = tuple(run.paths(value))
            args = args[1:]
        elif arg.startswith("-"):
            args = args[1:]
        else:
            break
    if not args:
        return Output(ANY, env=True)
    before = len(run.machine.facts)
    output = Run(run.shell, scope, run.name, run.args, run.stdin).again(args)
    if emptied and any(isinstance(fact, Connects | UsesRegistry) for fact in run.machine.facts[before:]):
        run.add(SetsEnv(run.name, "http_proxy", ""))
    return output


def _xargs(run: Run) -> Output:
    """The command with its input's words as arguments; `-I{}` puts them where the mark is."""
    args = list(run.args)
    mark = ""
    inputs = run.stdin.text
    while args and args[0].startswith("-") and len(args[0]) > 1:
        arg = args.pop(0)
        if arg.startswith("-I"):
            mark = arg[2:] or (args.pop(0) if args else "{}")
        elif arg in ("-a", "--arg-file") and args:
            name = args.pop(0)
            add_path(run, Reads, name)
            inputs = run.machine.files.contents.get(run.paths(name)[-1]) or ANY
        elif arg in ("-n", "-P", "-L", "-d", "-s", "-E", "--max-args", "--max-procs", "--delimiter") and args:
            args.pop(0)
        elif arg == "-i":
            mark = "{}"
    words = inputs.replace("\0\n", "\n").split()[:64] or ([ANY] if hides(inputs) else [])
    command = args or ["echo"]
    if mark:
        output = DATA
        for word in words or [ANY]:
            output = run.again([piece.replace(mark, word) for piece in command])
        return output
    first = command[0].rpartition("/")[2]
    if (
        first in ("sh", "bash", "zsh", "eval")
        and not any(arg.startswith("-c") or arg == "-c" for arg in command)
        and any(hides(w) for w in words)
    ):
        run.add(Opaque("xargs", "script"))
    return run.again([*command, *words])


def _find(run: Run) -> Output:
    """Roots and tests to a path with wild cards; `-exec`, `-delete` and `-fprint` act on it."""
    roots: list[str] = []
    args = list(run.args)
    while args and not args[0].startswith(("-", "(", "!")):
        roots.append(args.pop(0))
    roots = roots or ["."]
    names, excluded = _name_tests(args)
    for root in roots:
        add_path(run, Lists, root)
    if any(_SECRET_FILE.search(name) for name in names) and any(searches.outside(run, root) for root in roots):
        run.add(SeeksSecret("find", " ".join(names)))
    if any(searches.names_solution(name) for name in names) and any(searches.outside(run, root) for root in roots):
        run.add(LooksUp("find", "hidden files"))
    deep = ANY if excluded else DEEP
    results = [f"{root.rstrip('/')}/{deep}" + (f"/{name}" if name else "") for root in roots for name in names or [""]]
    if names and any("/" in name for name in names):
        results = [name if name.startswith("/") else f"{roots[0]}/{name.removeprefix('./')}" for name in names]
    if args and "-maxdepth" in args and args[args.index("-maxdepth") + 1 : args.index("-maxdepth") + 2] == ["1"]:
        results = [f"{root.rstrip('/')}/{name}" for root in roots for name in names or [STAR]]
    _actions(run, args, results)
    return Output("\n".join(results) + "\n")


_SYSTEM_FOLDER = re.compile(r"/(?:proc|sys|dev|run|snap|boot)\b")
"""Leaving these out takes nothing away that a policy would name."""


def _name_tests(args: list[str]) -> tuple[list[str], bool]:
    names: list[str] = []
    excluded = False
    for i, arg in enumerate(args):
        negated = i > 0 and args[i - 1] in ("!", "-not")
        if arg in ("-name", "-iname", "-path", "-ipath", "-wholename", "-regex") and i + 1 < len(args):
            if negated or _is_pruned(args, i + 2):
                excluded = excluded or not _SYSTEM_FOLDER.match(args[i + 1])
            elif arg not in ("-regex",):
                pattern = wild(args[i + 1])
                names.append(pattern if "path" in arg or arg == "-wholename" else pattern.replace("/", ""))
    return names, excluded


def _is_pruned(args: list[str], start: int) -> bool:
    """Whether what is tested here is left out: only further tests of names stand before the `-prune`."""
    for arg in args[start:]:
        if arg == "-prune":
            return True
        if arg.startswith("-") and arg not in (
            "-o",
            "-or",
            "-path",
            "-ipath",
            "-wholename",
            "-name",
            "-iname",
            "-type",
        ):
            return False
    return False


def _actions(run: Run, args: list[str], results: list[str]) -> None:
    for i, arg in enumerate(args):
        if arg == "-delete":
            for result in results:
                add_path(run, Deletes, result)
        elif arg in ("-fprint", "-fprintf", "-fls", "-fprint0") and i + 1 < len(args):
            add_path(run, Writes, args[i + 1])
        elif arg in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((j for j in range(i + 1, len(args)) if args[j] in (";", "+", "\\;")), len(args))
            for result in results:
                run.again([piece.replace("{}", result) for piece in args[i + 1 : end]])


def _parallel(run: Run) -> Output:
    args = [arg for arg in run.args if not arg.startswith("-")]
    if ":::" in args:
        cut = args.index(":::")
        command, inputs = args[:cut], args[cut + 1 :]
    else:
        command, inputs = args, run.stdin.text.split()[:64] or [ANY]
    template = " ".join(command)
    for word in inputs:
        text = template.replace("{}", word) if "{}" in template else f"{template} {word}"
        if MADE in text:
            run.add(Opaque("parallel", "script"))
        run.shell.script(text, run.scope.fork(), DATA)
    return DATA


def _isolate(run: Run) -> Output:
    """`unshare`, `nsenter`, `proxychains` …: a way out of the network that the guard watches."""
    run.add(Evades(run.name, f"runs a command under {run.name}"))
    args = list(run.args)
    while args and args[0].startswith("-"):
        args.pop(0)
    return run.again(args) if args else DATA


def _scheduled(run: Run) -> Output:
    """`at`, `batch`, `crontab`: what they are given runs later, out of sight."""
    args = list(run.args)
    texts: list[str] = []
    if run.name != "crontab" and "-f" in args[:-1]:
        name = args[args.index("-f") + 1]
        add_path(run, Reads, name)
        texts.append(run.machine.files.contents.get(run.paths(name)[-1]) or "")
    elif run.name == "crontab" and [arg for arg in args if not arg.startswith("-")]:
        name = args[-1]
        add_path(run, Reads, name)
        texts.append(run.machine.files.contents.get(run.paths(name)[-1]) or "")
    elif "-l" in args:
        return Output(ANY + "\n", plain=True)
    elif not any(arg in ("-r", "-e") for arg in args):
        texts.append(run.stdin.text)
    for text in texts:
        run.shell.script(scheduled_commands(text) if run.name == "crontab" else text, run.scope.fork(), DATA)
    return DATA


def scheduled_commands(text: str) -> str:
    """The commands of a crontab: each line without its five times and, where there is one, its user."""
    commands = []
    for line in text.split("\n"):
        match = _CRON_LINE.match(line.strip())
        if match:
            commands.append(match[1])
    return "\n".join(commands)


_CRON_LINE = re.compile(
    r"^(?:@\w+|(?:[\d*,/-]+\s+){4}[\w*,/-]+)\s+(?:(?:root|agent|nobody|www-data|ubuntu|app)\s+)?(.+)$"
)


def _agent(run: Run) -> Output:
    """Another agent, at work beside the guard; with its permissions switched off it may do anything."""
    if any(_UNCHECKED.match(arg) for arg in run.args) or _UNASKED.search(" ".join(run.args)):
        run.add(Evades(run.name, "starts another agent that asks for no permission"))
    run.machine.add(Delegates(run.name, "\n".join(run.args)))
    return DATA


_UNCHECKED = re.compile(r"--dangerously|--yolo|--full-auto|--auto-approve|--yes-always|--skip-permissions|--no-sandbox")


_UNASKED = re.compile(
    r"bypassPermissions|danger-full-access|approval_policy\W{1,3}never"
    r"|\bapprovals?\b\W{1,3}(?:\w+ )?(?:off|never|none|false)\b"
)


def _busybox(run: Run) -> Output:
    return run.again(run.args) if run.args else DATA


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(
        names(
            "sudo doas timeout gtimeout nice ionice stdbuf nohup setsid time watch flock chroot "
            "exec unbuffer fakeroot chrt taskset prlimit setarch linux64 caffeinate coproc"
        ),
        _wrapper,
    ),
    **dict.fromkeys(names("unshare nsenter proxychains proxychains4 torsocks torify tsocks firejail"), _isolate),
    **dict.fromkeys(("busybox", "toybox"), _busybox),
    **dict.fromkeys(("at", "batch", "crontab"), _scheduled),
    **dict.fromkeys(names("claude codex opencode hermes pi aider gemini goose amp qwen crush cursor-agent"), _agent),
    "env": _env,
    "xargs": _xargs,
    "gxargs": _xargs,
    "find": _find,
    "gfind": _find,
    "parallel": _parallel,
}
