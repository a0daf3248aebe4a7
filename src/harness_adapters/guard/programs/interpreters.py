"""Interpreters: shells, Python, and languages that are only scanned. Code comes from `-c`, a file or the input."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from harness_adapters.guard.facts import Opaque, Reads, SeeksSecret
from harness_adapters.guard.machine import DATA, MAX_CONTENT, Output, Run
from harness_adapters.guard.notebooks import notebook_code
from harness_adapters.guard.programs import readers
from harness_adapters.guard.programs.generic import add_path, connect_urls, path_arguments, unknown_program
from harness_adapters.guard.python_code import python_facts
from harness_adapters.guard.script_text import awk_facts, script_facts
from harness_adapters.guard.values import ANY, MADE, hides, is_known, names

_STDIN = frozenset(("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"))
_SHELL_VALUES = frozenset(("-o", "+o", "-O", "+O", "--rcfile", "--init-file"))


def run_own_script(run: Run) -> Output | None:
    """A path that an earlier step wrote, run as a program; None where its content is not known."""
    content = run.machine.files.contents.get(run.paths(run.name)[-1])
    if content is None:
        return None
    first = content.partition("\n")[0]
    if "python" in first:
        return _python_text(run, content, run.name)
    if re.search(r"\b(node|perl|ruby|php|lua|deno)\b", first):
        script_facts(run, content, first)
        return DATA
    return _shell_text(run, content, run.args)


def _shell_text(run: Run, text: str, arguments: list[str]) -> Output:
    inner = run.scope.fork()
    inner.arguments = arguments
    return run.shell.script(text, inner, DATA)


def _shell(run: Run) -> Output:
    args = list(run.args)
    while args and args[0].startswith(("-", "+")) and args[0] != "-":
        arg = args.pop(0)
        if not arg.startswith("--") and arg.endswith("c") and args:
            return _inline_shell(run, args[0], args[1:])
        if arg in _SHELL_VALUES and args:
            args.pop(0)
        elif arg == "-s":
            return _piped_script(run, [operand for operand in args if operand != "--"])
    if args and args[0] not in _STDIN:
        return _script_file(run, args[0], args[1:])
    return _piped_script(run, args[1:])


def _inline_shell(run: Run, text: str, arguments: list[str]) -> Output:
    if MADE in text or ANY in text.partition(" ")[0]:
        run.add(Opaque(run.name, "script"))
    inner = run.scope.fork()
    inner.arguments = arguments[1:]
    if arguments:
        inner.variables["0"] = arguments[:1]
    return run.shell.script(text, inner, DATA)


def _script_file(run: Run, name: str, arguments: list[str]) -> Output:
    if name == ANY or MADE in name:
        # A process substitution, or a name that was computed.
        run.add(Opaque(run.name, "script"))
        return DATA
    add_path(run, Reads, name)
    content = run.machine.files.contents.get(run.paths(name)[-1])
    if content is not None:
        return _shell_text(run, content, arguments)
    readers.reads_arguments(Run(run.shell, run.scope, run.name, arguments, run.stdin))
    return DATA


def _piped_script(run: Run, arguments: list[str]) -> Output:
    """A script on the standard input. What a declared host or a plain file holds is not hidden; a decoder's is."""
    text = run.stdin.text
    if not text:
        return DATA
    if is_known(text):
        return _shell_text(run, text, arguments)
    if MADE in text or not (run.stdin.net or run.stdin.plain):
        run.add(Opaque(run.name, "script"))
        return DATA
    return _shell_text(run, text, arguments) if text.strip(ANY + "\n") else DATA


def _source(run: Run) -> Output:
    for name in run.args[:1]:
        if name == ANY or MADE in name:
            run.add(Opaque(run.name, "script"))
            return DATA
        add_path(run, Reads, name)
        content = run.machine.files.contents.get(run.paths(name)[-1])
        if content is not None:
            return run.shell.script(content, run.scope, run.stdin)
    return DATA


def _python(run: Run) -> Output:
    args = list(run.args)
    while args and args[0].startswith("-") and args[0] != "-":
        arg = args.pop(0)
        if arg in ("--version", "-V", "-VV", "--help", "-h"):
            return DATA
        if arg.startswith("-m") or (not arg.startswith("--") and arg.endswith("m") and args):
            module = arg[2:] if arg.startswith("-m") and len(arg) > 2 else (args.pop(0) if args else "")
            return _module(run, module, args)
        if not arg.startswith("--") and arg.endswith("c"):
            return _python_text(_with_arguments(run, ["-c", *args[1:]]), args[0] if args else "", "-c")
        if arg in ("-W", "-X") and args:
            args.pop(0)
    if args and args[0] not in _STDIN:
        return _python_file(run, args[0], args[1:])
    if MADE in run.stdin.text or (
        hides(run.stdin.text) and not (run.stdin.plain or run.stdin.net) and not run.stdin.text.strip(ANY)
    ):
        run.add(Opaque(run.name, "code"))
    return _python_text(_with_arguments(run, args), run.stdin.text, "-") if run.stdin.text else DATA


def _with_arguments(run: Run, arguments: list[str]) -> Run:
    """The same program with arguments of its own for its code, the code's name first."""
    scope = run.scope.fork()
    scope.arguments = arguments
    return Run(run.shell, scope, run.name, run.args, run.stdin)


def _python_text(run: Run, code: str, where: str) -> Output:
    if len(code) > MAX_CONTENT:
        run.add(Opaque(where, "size"))
        return DATA
    printed = python_facts(run, code, from_file=where not in ("-c", "-"))
    return Output(printed) if printed is not None else Output(MADE)


def _python_file(run: Run, name: str, arguments: list[str]) -> Output:
    add_path(run, Reads, name)
    content = run.machine.files.contents.get(run.paths(name)[-1])
    if content is not None:
        _python_text(_with_arguments(run, [name, *arguments]), content, name)
    readers.reads_arguments(Run(run.shell, run.scope, name, arguments, run.stdin))
    return DATA


def _module(run: Run, module: str, args: list[str]) -> Output:
    """`python -m`: the module as a program of the same name, where it has one."""
    names = {
        "http.server": "true",
        "venv": "mkdir",
        "json.tool": "jq",
        "zipfile": "jq",
        "tarfile": "jq",
        "py_compile": "jq",
        "compileall": "jq",
        "timeit": "jq",
        "cProfile": "",
        "pdb": "",
        "trace": "",
        "runpy": "",
    }
    name = names.get(module, module)
    if module == "http.server":
        for option, folder in pairwise(args):
            if option in ("-d", "--directory"):
                add_path(run, Reads, folder, deep=True)
    if module == "keyring":
        run.add(SeeksSecret(run.name, "keyring"))
    if not name:
        rest = [arg for arg in args if not arg.startswith("-")]
        return _python_file(run, rest[0], rest[1:]) if rest else DATA
    if name in ("webbrowser", "urllib.request"):
        connect_urls(run, args)
        return DATA
    own = module.replace(".", "/")
    for script in (f"{own}.py", f"{own}/__main__.py"):
        if run.machine.files.contents.get(run.paths(script)[-1]) is not None:
            return _python_file(run, script, args)
    if "." in name or name not in _PYTHON_PROGRAMS:
        return readers.reads_arguments(Run(run.shell, run.scope, f"python -m {module}", args, run.stdin))
    return run.again([name, *args])


_PYTHON_PROGRAMS = frozenset(
    names(
        "pip pytest unittest nose2 coverage tox nox ruff black isort mypy flake8 pylint autopep8 yapf uv "
        "pipx true mkdir jq keyring twine pre-commit poetry hatch doctest httpie"
    )
)


def _other(run: Run) -> Output:
    """node, perl, ruby …: code from `-e`, a known file or the input is scanned as text."""
    args = list(run.args)
    codes: list[str] = []
    loaded = [f"use {arg[2:]};" for arg in args if run.name == "perl" and re.match(r"-[mM]\w", arg)]
    loaded += [f"require '{arg[2:]}'" for arg in args if run.name == "ruby" and re.match(r"-r\w", arg)]
    in_place = run.name in ("perl", "ruby") and any(re.fullmatch(r"-[a-zA-Z0-9]*i[\w.]*", a) for a in args)
    files: list[str] = []
    while args:
        arg = args.pop(0)
        if re.fullmatch(r"-[a-zA-Z0-9.]*[eErp]|-eval|--execute", arg) or arg in (
            "--eval",
            "--print",
            "eval",
            "-c",
            "-M",
        ):
            if args[:1] == ["-e"]:
                args.pop(0)
            if args:
                codes.append(args.pop(0))
        elif arg.startswith("-e") and run.name == "Rscript":
            codes.append(arg[2:])
        elif not arg.startswith("-"):
            files.append(arg)
    if not codes and files:
        content = run.machine.files.contents.get(run.paths(files[0])[-1])
        codes += [content] if content is not None else []
    if not codes and not files and run.stdin.text:
        if MADE in run.stdin.text:
            run.add(Opaque(run.name, "code"))
        codes.append(run.stdin.text)
    beside = run.scope.fork()
    if files:
        # A module's relative paths may start at its own folder.
        beside.cwds += tuple(path.rpartition("/")[0] or "/" for path in run.paths(files[0]))
    for code in ["\n".join([*loaded, code]) for code in codes]:
        if len(code) > MAX_CONTENT:
            run.add(Opaque(run.name, "size"))
            continue
        script_facts(
            Run(run.shell, beside, run.name, run.args, run.stdin), code, run.name, writes=files if in_place else []
        )
    for value in path_arguments(files):
        add_path(run, Reads, value)
    return DATA


_GIVES_CODE = re.compile(r"-[a-zA-Z0-9.]*[eErp]|-eval|--eval|--print|--execute|eval|-c|-M")
_FIRST_FIELD = re.compile(r"\s*\{\s*print\s*\(?\$1\)?\s*;?\s*\}\s*")


def _awk(run: Run) -> Output:
    from harness_adapters.guard.programs.generic import split_options

    options, operands = split_options(run.args, "-F -v -f -i --assign --field-separator --file")
    programs = []
    for name in options.get("-f", []) + options.get("--file", []):
        add_path(run, Reads, name)
        known = run.machine.files.contents.get(run.paths(name)[-1])
        programs += [known] if known else []
    if not options.get("-f") and not options.get("--file"):
        programs, operands = operands[:1], operands[1:]
    in_place = "inplace" in options.get("-i", [])
    for program in programs:
        awk_facts(run, program, options.get("-v", []), operands if in_place else [])
    for operand in operands:
        if not re.match(r"^[A-Za-z_]\w*=", operand):
            add_path(run, Reads, operand)
    return Output(
        ANY,
        env=run.stdin.env
        and not operands
        and not ("=" in options.get("-F", []) and _FIRST_FIELD.fullmatch(" ".join(programs))),
        net=run.stdin.net,
        plain=not run.stdin.text or hides(run.stdin.text) or not programs,
    )


_MAKE_VARIABLE = re.compile(r"^(?:export\s+|override\s+)?(\w+)\s*[:?+]?:?=\s*(.*)$")
_INDENTED = re.compile(r"(?m)^[ \t]+")
_MAKE_INCLUDE = re.compile(r"(?m)^-?s?include[ \t]+([^\n#]+)")
_MAKE_SUBST = re.compile(r"\$\(subst ([^,()]*),([^,()]*),([^()]*)\)")
_MAKE_RULE = re.compile(r"^([^\s:#=]++(?:\s++[^\s:#=]++)*+)\s*+::?\s*([^=;]*?)(?:;(.*))?$")


def recipes(text: str) -> str:
    """The commands of a makefile as shell text: simple variables and `$@`, `$<`, `$^` filled in."""
    variables: dict[str, str] = {}
    commands: list[str] = []

    def fill(line: str) -> str:
        for _ in range(4):
            line = re.sub(r"\$[({](\w+)[)}]", lambda match: variables.get(match[1], match[0]), line)
            line = _MAKE_SUBST.sub(lambda match: match[3].replace(match[1], match[2]), line)
        return line

    for line in text.split("\n"):
        # A variable may be set below the rules that use it.
        if variable := _MAKE_VARIABLE.match(line):
            variables[variable[1]] = fill(variable[2])

    for line in text.replace("\\\n", " ").split("\n"):
        variable, rule = _MAKE_VARIABLE.match(line), _MAKE_RULE.match(line)
        if line.startswith("\t"):
            command = fill(line.lstrip("\t@+-"))
            for mark, value in (("@", "@"), ("<", "<"), ("^", "^")):
                command = command.replace(f"${mark}", variables.get(value, ""))
            commands.append(command.replace("$$", "$"))
        elif variable:
            variables[variable[1]] = fill(variable[2])
        elif rule:
            target, needed = fill(rule[1]), fill(rule[2])
            variables |= {"@": target.split()[0], "<": (needed.split() or [""])[0], "^": needed}
            if rule[3]:
                commands.append(fill(rule[3]).replace("$$", "$"))
    return "\n".join(commands)


def _with_included(run: Run, text: str, cwd: str) -> str:
    """A makefile with those that it includes, as far as the session has written them."""
    named = [name for line in _MAKE_INCLUDE.findall(text)[:16] for name in line.split()]
    files = run.machine.files.contents
    return "\n".join([text, *(files.get(run.machine.path(name, cwd)) or "" for name in named)])


def _make(run: Run) -> Output:
    """`make`: every recipe of a makefile that the session has written, whichever target is asked for."""
    from harness_adapters.guard.programs.generic import split_options

    options, _ = split_options(run.args, "-f -C -j -I -l -o -W --file --directory --makefile")
    folder = (options.get("-C") or options.get("--directory") or ["."])[0]
    named = options.get("-f", []) + options.get("--file", []) + options.get("--makefile", [])
    scope = run.scope.fork()
    scope.cwds = tuple(run.paths(folder))
    just = run.name == "just"
    for name in named or (["justfile", "Justfile", ".justfile"] if just else ["Makefile", "makefile", "GNUmakefile"]):
        text = run.stdin.text if name in _STDIN else None
        for path in [run.machine.path(name, cwd) for cwd in scope.cwds]:
            text = text or run.machine.files.text_of(path)
        if text and just:
            text = _INDENTED.sub("\t", text)
        if text:
            run.shell.script(recipes(_with_included(run, text, scope.cwds[-1])), scope, DATA)
    return readers.reads_arguments(run)


def _notebook(run: Run) -> Output:
    """`jupyter nbconvert --execute`, `papermill`: what the session has put into the notebook runs."""
    runs = run.name in ("papermill", "jupyter-execute") or any(
        arg in ("--execute", "execute", "run") for arg in run.args
    )
    for arg in run.args if runs else ():
        for path in run.paths(arg) if arg.endswith(".ipynb") else ():
            python_facts(run, notebook_code(run.machine.files.text_of(path)), from_file=True)
    return unknown_program(run)


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(names("sh bash zsh dash ksh ash fish rbash"), _shell),
    **dict.fromkeys((".", "source"), _source),
    **dict.fromkeys(names("python pypy ipython python3 bpython"), _python),
    **dict.fromkeys(
        names(
            "node nodejs perl ruby php lua luajit deno bun Rscript R julia osascript tclsh wish groovy scala swift "
            "elixir iex crystal clojure clj racket guile sbcl raku runghc runhaskell ocaml dart janet erl nim kotlin "
            "kotlinc"
        ),
        _other,
    ),
    **dict.fromkeys(("make", "gmake", "just"), _make),
    **dict.fromkeys(names("jupyter jupyter-nbconvert jupyter-execute papermill"), _notebook),
    **dict.fromkeys(names("awk gawk mawk nawk"), _awk),
}
