"""Shell builtins, and programs whose arguments are text: they read and write nothing they are told about."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from harness_adapters.guard.facts import Evades, Kills, Lists, Opaque, Reads, ReadsEnv, Runs, Shadows
from harness_adapters.guard.machine import DATA, NOTHING, Output, Run
from harness_adapters.guard.programs.generic import add_path, unknown_program
from harness_adapters.guard.values import ANY, MADE, ONE, STAR, UNSET, hides, is_known, names
from harness_adapters.guard.words import decode_ansi

OTHERS = re.compile(
    r"verifier|verify\.\w+|\bchecker\b|grader|harness|/tests\b|judge|watch(er|dog)|monitor|audit|recorder|sandbox|supervis|tini\b"
    r"|execd|PPID",
    re.IGNORECASE,
)
GUARD_NAMES = re.compile(r"safeagents|guard|proxy|gateway|mitm|squid|tinyproxy|vllm", re.IGNORECASE)


def _echo(run: Run) -> Output:
    args = list(run.args)
    escapes = False
    newline = "\n"
    while args and re.fullmatch(r"-[neE]+", args[0]):
        escapes = escapes or "e" in args[0]
        newline = "" if "n" in args[0] else newline
        args.pop(0)
    text = " ".join(args)
    return Output((decode_ansi(text) if escapes else text) + newline)


def _printf(run: Run) -> Output:
    args = [arg for arg in run.args if arg != "--"]
    if args[:1] == ["-v"]:
        run.scope.variables[args[1] if len(args) > 1 else ""] = [_formatted(args[2:])]
        return NOTHING
    return Output(_formatted(args))


def _formatted(args: list[str]) -> str:
    if not args:
        return ""
    template, values = decode_ansi(args[0]), args[1:]
    slots = len(re.findall(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]", template.replace("%%", "")))
    pieces: list[str] = []
    queue = list(values)

    def fill(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        value = queue.pop(0) if queue else ""
        return decode_ansi(value) if match[1] == "b" else value

    for _ in range(256):
        pieces.append(re.sub(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?([a-zA-Z]))", fill, template))
        if not queue or not slots:
            break
    return "".join(pieces)


def _cd(run: Run) -> Output:
    operands = [arg for arg in run.args if not re.fullmatch(r"-[LPe@]+", arg)]
    if operands and operands[0] == "-":
        return NOTHING
    target = operands[0] if operands else run.machine.home
    run.machine.moved = True
    for path in run.paths(target):
        run.add(Lists(run.name, path))
    run.scope.cwds = tuple(run.paths(target))
    return NOTHING


def _read(run: Run) -> Output:
    names = [arg for arg in run.args if not arg.startswith("-")] or ["REPLY"]
    lines = run.stdin.text.split("\n") if run.stdin.text else [ANY]
    words = [word for line in lines[:64] for word in ([line] if len(names) == 1 else line.split())]
    values = [word for word in words if word] or [ANY]
    for name in names:
        run.scope.variables[name] = list(dict.fromkeys(values))
    return NOTHING


def _mapfile(run: Run) -> Output:
    names = [arg for arg in run.args if not arg.startswith("-")]
    run.scope.variables[names[-1] if names else "MAPFILE"] = run.stdin.text.split("\n")[:64] or [ANY]
    return NOTHING


def _eval(run: Run) -> Output:
    text = " ".join(run.args)
    if hides(text) and not is_known(text.split()[0] if text.split() else ""):
        run.add(Opaque(run.name, "script"))
        return DATA
    if MADE in text:
        run.add(Opaque(run.name, "script"))
    return run.shell.script(text.replace(UNSET, ""), run.scope, run.stdin)


def _trap(run: Run) -> Output:
    action = next((arg for arg in run.args if not arg.startswith("-")), "")
    return run.shell.script(action, run.scope.fork(), NOTHING) if action else NOTHING


def _alias(run: Run) -> Output:
    for arg in run.args:
        name, equals, text = arg.partition("=")
        if equals:
            run.scope.aliases[name] = text
            if name not in re.split(r"[^\w.+-]+", text):
                run.add(Shadows("alias", name, f"alias for {text[:40]}"))
    return NOTHING


def _set(run: Run) -> Output:
    if not run.args:
        return Output(ANY, env=True)
    if run.args[0] == "--":
        run.scope.arguments = run.args[1:]
    elif not run.args[0].startswith(("-", "+")):
        run.scope.arguments = list(run.args)
    return NOTHING


def _compgen(run: Run) -> Output:
    return Output(ANY, env=any(arg in ("-e", "-v", "-x") for arg in run.args))


def _shift(run: Run) -> Output:
    count = int(run.args[0]) if run.args and run.args[0].isdigit() else 1
    run.scope.arguments = run.scope.arguments[count:]
    return NOTHING


def _printenv(run: Run) -> Output:
    names = [arg for arg in run.args if not arg.startswith("-")]
    for name in names:
        run.add(ReadsEnv(run.name, name))
    return DATA if names else Output(ANY, env=True)


def _test(run: Run) -> Output:
    for arg in run.args:
        if "/" in arg or "." in arg:
            add_path(run, Lists, arg)
    return NOTHING


def _pgrep(run: Run) -> Output:
    seek_processes(run)
    return DATA


def seek_processes(run: Run) -> None:
    """Remembers that the guard, the harness or the verifier is looked for among the processes."""
    for arg in run.args:
        if GUARD_NAMES.search(arg) or OTHERS.search(arg):
            run.machine.sought = arg


def _fuser(run: Run) -> Output:
    """`fuser -k PORT/tcp` ends what holds the port."""
    kills = any(re.fullmatch(r"-[a-z]*k[a-z]*|--kill", arg) for arg in run.args)
    spaces = any(option == "-n" and space in ("tcp", "udp") for option, space in pairwise(run.args))
    for arg in run.args:
        port = re.fullmatch(r"(\d{1,5})(?:/(?:tcp|udp))?" if spaces else r"(\d{1,5})/(?:tcp|udp)", arg)
        if port and kills:
            run.add(Kills(run.name, f"port {port[1]}"))
    return DATA


def _kill(run: Run) -> Output:
    if run.name != "kill" and any(re.match(r"-[uUgG]|--(?:euid|uid|user|group)", arg) for arg in run.args):
        run.add(Evades(run.name, "ends all processes of a user"))
    for arg in run.args:
        if arg.startswith("-") and not re.fullmatch(r"-1", arg):
            continue
        if GUARD_NAMES.search(arg):
            run.add(Evades(run.name, f"ends a process called {arg[:40]!r}"))
        elif run.machine.sought and hides(arg):
            run.add(Evades(run.name, f"ends the processes found by {run.machine.sought[:40]!r}"))
        elif hides(arg) and (port := _sought_port(run)):
            run.add(Kills(run.name, f"port {port}"))
        elif hides(arg) and (told := _others_number(run)):
            run.add(Evades(run.name, f"ends the process of {told[:60]!r}"))
        elif STAR in arg or ONE in arg:
            run.add(Evades(run.name, "ends whatever process it finds"))
        elif is_known(arg) and not arg.startswith("%"):
            run.add(Kills(run.name, arg))
    return NOTHING


def _service(run: Run) -> Output:
    """`systemctl stop`, `service NAME stop`: a service ends, starts anew or changes."""
    words = [arg for arg in run.args if not arg.startswith("-")]
    ends = any(word in ("stop", "restart", "disable", "kill", "mask", "reload", "unload", "bootout") for word in words)
    for word in words if ends else ():
        if GUARD_NAMES.search(word) or OTHERS.search(word):
            run.add(Evades(run.name, f"ends a process called {word[:40]!r}"))
    return unknown_program(run)


_SHOW_PORTS = frozenset(("lsof", "ss", "netstat", "fuser"))


def _sought_port(run: Run) -> str:
    """The port whose holder's number the call has asked for (`lsof -t -i :8080`)."""
    asked = (fact for fact in run.machine.facts if isinstance(fact, Runs) and fact.by in _SHOW_PORTS)
    found = (re.search(r"(?:^|:)(\d{2,5})(?:/tcp|$)", arg) for fact in asked for arg in fact.args)
    return next((match[1] for match in found if match), "")


def _others_number(run: Run) -> str:
    """A file that the call has read and that by its name holds the number of the guard's or the verifier's process."""
    read = (fact.path for fact in run.machine.facts if isinstance(fact, Reads) and fact.path.endswith(".pid"))
    return next((path for path in read if GUARD_NAMES.search(path) or OTHERS.search(path)), "")


def _attach(run: Run) -> Output:
    """A debugger or tracer: what it is attached to, it may end or change."""
    own = run.args.index("--args") if "--args" in run.args else len(run.args)
    for i, arg in enumerate(run.args[:own]):
        number = re.fullmatch(r"(?:-p|-t|--pid=?|--target=?|--attach=?)?(\d+)", arg)
        before = run.args[i - 1] if i else ""
        if number and (number[0] != number[1] or before.startswith("-") or before == "attach" or i == 1):
            run.add(Kills(run.name, number[1]))
    command = _traced(run)
    if not command:
        return unknown_program(run)
    unknown_program(Run(run.shell, run.scope, run.name, run.args[: len(run.args) - len(command)], run.stdin))
    return run.again(command)


_TRACER_VALUES = frozenset(names("-e -o -p -s -P -E -u -r -C -F -c -t -x -I -O -S -b -a -X -ex -iex -d -cd"))


def _traced(run: Run) -> list[str]:
    """The command that a debugger or tracer starts, none where it only attaches to a process."""
    for mark in ("--args", "--"):
        if mark in run.args:
            return run.args[run.args.index(mark) + 1 :]
    args = list(run.args)
    if run.name in ("perf", "rr", "dlv", "py-spy"):
        del args[:1]
    while args and args[0].startswith("-"):
        del args[: 2 if args[0] in _TRACER_VALUES else 1]
    return args if run.name not in ("gdb", "lldb", "dlv", "reptyr", "gcore", "py-spy", "pyrasite") else []


def _name_piece(run: Run) -> Output:
    """`basename`, `dirname`, `realpath` and `readlink` on known names."""
    operands = [arg for arg in run.args if not arg.startswith("-")]
    if not operands:
        return DATA
    value = operands[0].rstrip("/")
    if run.name == "basename":
        name = value.rpartition("/")[2]
        return Output((name.removesuffix(operands[1]) if len(operands) > 1 else name) + "\n")
    if run.name == "dirname":
        return Output((value.rpartition("/")[0] or ("/" if value.startswith("/") else ".")) + "\n")
    for operand in operands:
        add_path(run, Lists, operand)
    return Output(run.paths(value)[-1] + "\n")


def _rev(run: Run) -> Output:
    if run.args or hides(run.stdin.text):
        return Output(MADE if not run.stdin.plain else ANY)
    return Output("".join(line[::-1] + "\n" for line in run.stdin.text.rstrip("\n").split("\n")))


def _shell_hook(run: Run) -> Output:
    """A version or environment manager: what it prints for `eval` only sets its own functions and variables."""
    if run.name.endswith("-agent") or (run.args and run.args[0] in _HOOK_VERBS):
        return NOTHING
    return unknown_program(run)


_HOOK_VERBS = frozenset(
    names("init hook env shellenv activate shell.bash shell.posix shell.zsh completion completions -s -b")
)


def _quiet(run: Run) -> Output:
    return NOTHING


def _numbers(run: Run) -> Output:
    return DATA


def _ps(run: Run) -> Output:
    """`ps e` (no dash) shows every process's environment."""
    return Output(ANY, env=re.fullmatch(r"[a-z]*e[a-z]*", "".join(run.args[:1])) is not None)


def _pwd(run: Run) -> Output:
    return Output(run.scope.cwd + "\n")


def _hostname(run: Run) -> Output:
    return Output("localhost\n")


def _mktemp(run: Run) -> Output:
    return Output(f"/tmp/tmp.{ANY}\n")


def _which(run: Run) -> Output:
    names = [arg for arg in run.args if not arg.startswith("-")]
    return Output("".join(f"/usr/bin/{name.rpartition('/')[2]}\n" for name in names[:1]))


def _command(run: Run) -> Output:
    if run.args[:1] in (["-v"], ["-V"]):
        return _which(run)
    return run.again(run.args[1:] if run.args[:1] == ["-p"] else run.args)


def _clock(run: Run) -> Output:
    if any(re.match(r"-s|--(?:set|systohc)|set-", arg) for arg in run.args):
        run.add(Evades(run.name, "sets the machine's clock"))
    return DATA


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(("date", "hwclock", "timedatectl"), _clock),
    **dict.fromkeys(
        names(
            ": true false exit return break continue sleep wait jobs fg bg disown umask ulimit shopt hash let "
            "history times getopts logger clear tput reset sync stty local typeset complete bind help enable dirs "
            "popd"
        ),
        _quiet,
    ),
    **dict.fromkeys(
        names(
            "seq expr uname whoami id nproc arch tty uuidgen cal free uptime bc dc factor numfmt df "
            "ps top lscpu locale getconf figlet cowsay yes"
        ),
        _numbers,
    ),
    **dict.fromkeys(names("kill pkill killall skill xkill"), _kill),
    **dict.fromkeys(names("gdb lldb strace ltrace valgrind dlv reptyr gcore py-spy pyrasite perf rr"), _attach),
    **dict.fromkeys(names("basename dirname realpath readlink"), _name_piece),
    **dict.fromkeys(("cd", "pushd", "chdir"), _cd),
    **dict.fromkeys(("test", "[", "[["), _test),
    **dict.fromkeys(("which", "type", "whereis"), _which),
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    **dict.fromkeys(
        names(
            "pyenv rbenv nodenv goenv jenv plenv direnv conda mamba micromamba "
            " brew starship opam mise rtx fnm asdf "
            "zoxide dircolors ssh-agent gpg-agent luarocks thefuck atuin"
        ),
        _shell_hook,
    ),
    "fuser": _fuser,
    **dict.fromkeys(names("systemctl service supervisorctl launchctl rc-service initctl sv s6-svc"), _service),
    "echo": _echo,
    "printf": _printf,
    "read": _read,
    "eval": _eval,
    "trap": _trap,
    "alias": _alias,
    "set": _set,
    "shift": _shift,
    "compgen": _compgen,
    "printenv": _printenv,
    "rev": _rev,
    **dict.fromkeys(("pgrep", "pidof"), _pgrep),
    "ps": _ps,
    "pwd": _pwd,
    "hostname": _hostname,
    "mktemp": _mktemp,
    "command": _command,
    "builtin": _command,
}
