"""Programs that read the files they are given and change none of them, and text filters.

Filters pass on whether their input held the environment: a search that cannot match a credential's name makes a dump
harmless, a count does too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from harness_adapters.guard.facts import Creates, DumpsEnv, Lists, Opaque, Reads, ReadsEnv, SeeksSecret, Writes
from harness_adapters.guard.machine import DATA, Output, Run
from harness_adapters.guard.programs.generic import (
    add_path,
    connect_urls,
    mention_files,
    mention_input,
    mention_paths,
    output_options,
    path_arguments,
    split_options,
    statement_files,
)
from harness_adapters.guard.values import ANY, MADE, ONE, STAR, hides, is_known, names

_COMPILERS = frozenset(names("gcc g++ cc c++ clang clang++ cpp rustc javac"))


def reads_arguments(run: Run) -> Output:
    """Every argument that is a path is read; options that name an output write."""
    connect_urls(run, run.args)
    if "-" in run.args:
        mention_input(run)
    if run.name in _COMPILERS:
        mention_files(run, path_arguments(run.args))
        folders = [arg[2:] or after for arg, after in pairwise([*run.args, ""]) if arg.startswith("-I")]
        named = [after for arg, after in pairwise(run.args) if arg in ("-include", "-imacros")]
        for folder in folders:
            for name in named:
                add_path(run, Reads, f"{folder.rstrip('/')}/{name}")
    return _reads_text(run)


def _reads_text(run: Run) -> Output:
    """As `reads_arguments`, for programs to which a URL is text."""
    used = output_options(run)
    for value in path_arguments([arg for i, arg in enumerate(run.args) if i not in used]):
        add_path(run, Reads, value)
    mention_paths(run)
    return Output(ANY, plain=True)


def _query(run: Run) -> Output:
    """`jq`, `yq`: `env` and `$ENV` are the environment, or one variable of it."""
    program = next((arg for arg in run.args if not arg.startswith("-")), "")
    for name in _JQ_ENV.findall(program)[:32]:
        run.add(ReadsEnv(run.name, name) if name else DumpsEnv(run.name))
    if "=" in program:
        for name in run.args[run.args.index(program) + 1 :]:
            for path in run.paths(name) if not name.startswith("-") else ():
                run.machine.put(run.name, path, program)
    return _reads_text(run)


_JQ_ENV = re.compile(r"(?:\$ENV|(?<![\w.\"])env)(?:\.(\w+)|\b(?!\s*[:(\[]))")


def _reads_statements(run: Run) -> Output:
    """A data base in a file: its statements, as arguments, as input or in a file that `.read` names, name others."""
    mention_input(run)
    for arg in run.args:
        mention_files(run, _READ_STATEMENT.findall(arg))
    told = "\n".join([*run.args, run.stdin.text])
    for name in _WRITTEN.findall(told)[:32]:
        add_path(run, Creates, name)
    statement_files(run, told)
    if _CHANGES.search(told):
        for name in [arg for arg in run.args if not arg.startswith("-")][:1]:
            add_path(run, Writes, name)
    return _reads_text(run)


_CHANGES = re.compile(
    r"(?i)\b(?:update|insert|delete|replace|drop|alter|create|attach|vacuum)\b|\.(?:import|restore|clone|save)\b"
)
_WRITTEN = re.compile(r"(?m)^[ \t]*\.(?:output|once|save|backup|log|excel)\s+([\w./~-]{1,200})")
_READ_STATEMENT = re.compile(r"(?m)^[ \t]*\.(?:read|import)\s+(\S+)")


def _split(run: Run) -> Output:
    """`split`, `csplit`: files that begin with the prefix are made."""
    options, operands = split_options(run.args, "-l -b -n -C -a -t -f --prefix --lines --bytes --number")
    prefixes = options.get("-f", []) + options.get("--prefix", [])
    if run.name == "split":
        prefixes += operands[1:2]
    for prefix in prefixes:
        add_path(run, Creates, prefix + STAR)
    return _filter(run)


def _filter(run: Run) -> Output:
    """A text filter: reads its operands, passes its input's nature on."""
    for value in path_arguments(run.args):
        add_path(run, Reads, value)
    operands = [arg for arg in run.args if not arg.startswith("-")]
    if operands:
        return Output(ANY, plain=True)
    return Output(
        ANY if hides(run.stdin.text) else run.stdin.text, env=run.stdin.env, net=run.stdin.net, plain=run.stdin.plain
    )


def _cat(run: Run) -> Output:
    operands = [arg for arg in run.args if not arg.startswith("-")]
    for operand in operands:
        add_path(run, Reads, operand)
    if not operands:
        return run.stdin
    contents = [run.machine.files.contents.get(run.paths(operand)[-1]) for operand in operands]
    if any(content is None for content in contents):
        return Output(ANY, plain=True)
    return Output("".join(content or "" for content in contents))


def _head(run: Run) -> Output:
    _, operands = split_options(run.args, "-n -c --lines --bytes")
    for operand in operands:
        add_path(run, Reads, operand)
    if operands:
        return Output(ANY, plain=True)
    return (
        run.stdin
        if not run.args
        else Output(ANY if is_known(run.stdin.text) else run.stdin.text, run.stdin.env, run.stdin.net, run.stdin.plain)
    )


def _count(run: Run) -> Output:
    for value in path_arguments(run.args):
        add_path(run, Reads, value)
    return DATA


def _cut(run: Run) -> Output:
    _, operands = split_options(run.args, "-d -f -c -b --delimiter --fields --characters --bytes --output-delimiter")
    for operand in operands:
        add_path(run, Reads, operand)
    names_only = {"-d=", "-f1"} <= {*run.args, *map("".join, pairwise(run.args))}
    return Output(ANY, env=run.stdin.env and not operands and not names_only, plain=True)


_CLASSES = {
    "lower": "abcdefghijklmnopqrstuvwxyz",
    "upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "digit": "0123456789",
    "space": " \t\n",
}


def _tr(run: Run) -> Output:
    text = run.stdin.text
    sets = [arg for arg in run.args if not arg.startswith("-")]
    if hides(text) or not text:
        return Output(text, run.stdin.env, run.stdin.net, run.stdin.plain)
    if any(arg.startswith("-d") for arg in run.args) and sets and len(sets[0]) < 64:
        return Output("".join(c for c in text if c not in sets[0].replace("\\n", "\n")))
    if len(sets) == 2 and not any(arg.startswith("-") for arg in run.args) and is_known("".join(sets)):
        old, new = _characters(sets[0]), _characters(sets[1])
        if old and new:
            table = dict(zip(old, new + new[-1] * (len(old) - len(new)), strict=False))
            return Output("".join(table.get(character, character) for character in text))
    return Output(text.replace(" ", "\n") if sets[-1:] == ["\\n"] else MADE)


def _characters(text: str) -> str:
    """A set of `tr` written out: ranges, classes and the usual escapes; empty where it holds something else."""
    for name, members in _CLASSES.items():
        text = text.replace(f"[:{name}:]", members)
    if "[" in text or len(text) > 256:
        return ""
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    return re.sub(r"(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), min(ord(m[2]), ord(m[1]) + 255) + 1))), text)


def _sort(run: Run) -> Output:
    options, operands = split_options(
        run.args, "-o -k -t -S -T --output --key --field-separator --compress-program --files0-from"
    )
    for target in options.get("-o", []) + options.get("--output", []):
        add_path(run, Creates, target)
    for program in options.get("--compress-program", []):
        run.again([program])
    for operand in operands:
        add_path(run, Reads, operand)
    return Output(ANY if operands else run.stdin.text, env=run.stdin.env and not operands, plain=True)


def _uniq(run: Run) -> Output:
    _, operands = split_options(run.args, "-f -s -w")
    for operand in operands[:1]:
        add_path(run, Reads, operand)
    for operand in operands[1:2]:
        add_path(run, Creates, operand)
    return Output(ANY if operands else run.stdin.text, env=run.stdin.env and not operands, plain=True)


def _list(run: Run) -> Output:
    """`ls`, `stat`, `file`, `du` …: names and properties."""
    operands = [arg for arg in run.args if not arg.startswith(("-", "+"))]
    deep = run.name == "tree" or any(re.fullmatch(r"-[A-Za-z]*R[A-Za-z]*|--recursive", arg) for arg in run.args)
    for operand in operands or ["."]:
        add_path(run, Lists, operand, deep=deep and operand not in ("/", "."))
    if run.name != "ls":
        return DATA
    if any(re.fullmatch(r"-[A-Za-z]*[lsi][A-Za-z]*", arg) for arg in run.args):
        return DATA
    # What `ls` prints of a folder are its names; of a glob, the glob's matches.
    return Output(
        "".join((operand if STAR in operand or ONE in operand else STAR) + "\n" for operand in operands or ["."])
    )


def _base64(run: Run) -> Output:
    decode = any(arg in ("-d", "--decode", "-D", "-di", "-id", "-r", "-rp", "-p -r", "-ps") for arg in run.args)
    _, operands = split_options(run.args, "-w -i --wrap -c -l -s")
    for operand in operands:
        add_path(run, Reads, operand)
    source = run.stdin.text
    if operands:
        source = run.machine.files.contents.get(run.paths(operands[0])[-1]) or ANY
    if not decode:
        return Output(ANY, env=run.stdin.env, plain=True)
    if not is_known(source):
        return Output(MADE)
    return Output(_decoded(run.name, source))


def _decoded(name: str, text: str) -> str:
    packed = "".join(text.split())
    try:
        if name == "base64":
            raw = base64.b64decode(packed + "=" * (-len(packed) % 4))
        elif name == "base32":
            raw = base64.b32decode(packed + "=" * (-len(packed) % 8))
        else:
            raw = bytes.fromhex(packed)
    except (ValueError, binascii.Error):
        return MADE
    return raw.decode("utf-8", "replace")


def _decoder(run: Run) -> Output:
    """`gunzip -c`, `openssl enc`, `uudecode` …: the output cannot be known."""
    if any(arg.startswith("--export-secret") for arg in run.args):
        run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))
    reads_arguments(run)
    return Output(MADE)


def _sed(run: Run) -> Output:
    options, operands = split_options(run.args, "-e -f -l --expression --file --line-length")
    scripts = options.get("-e", []) + options.get("--expression", [])
    for file in options.get("-f", []) + options.get("--file", []):
        add_path(run, Reads, file)
        known = run.machine.files.contents.get(run.paths(file)[-1])
        scripts += [known] if known else []
    if not scripts and not options.get("-f"):
        scripts, operands = operands[:1], operands[1:]
    in_place = any(o == "-i" or o.startswith(("-i", "--in-place")) for o in options)
    for operand in operands:
        add_path(run, Writes if in_place else Reads, operand)
        for path in run.paths(operand) if in_place else ():
            run.machine.put(run.name, path, "\n".join(scripts))
    for script in scripts:
        for target in re.findall(r"(?:^|[;}\n/\d$!gpI ])w\s+(\S+)", script):
            add_path(run, Writes, target)
        if re.search(r"(?:^|[;}\n\d$])\s*e(?:\s+\S|$)|/[gIp\d]*e[gIp\d]*\s*(?:$|[;}\n])", script) and not re.search(
            r"^\s*\w+\s*$", script
        ):
            for command in re.findall(r"(?:^|[;}\n\d])\s*e\s+(.+)", script):
                run.shell.script(command, run.scope.fork(), run.stdin)
    known_input = is_known(run.stdin.text) and run.stdin.text != "" and not operands
    names_only = any(re.fullmatch(r"s([/|,#])=\.\*(\$)?\1\1g?", script) for script in scripts)
    return Output(
        MADE if known_input else ANY,
        env=run.stdin.env and not operands and not names_only,
        net=run.stdin.net,
        plain=not known_input,
    )


def _checker(run: Run) -> Output:
    """Linters and formatters: readers unless an option asks for changes.

    Those over a whole tree keep what its tests mean, so they count for the folder that they name only; but for `2to3`,
    which changes meanings.
    """
    changes = {"--fix", "--write", "-w", "--in-place", "-i", "--fix-only", "--unsafe-fixes", "--apply"}
    formats = run.name in ("black", "isort", "yapf", "autopep8", "autoflake", "prettier") or run.args[:1] == ["format"]
    dry = any(arg in ("--check", "--diff", "--check-only", "-l", "--list-different") for arg in run.args)
    writes = any(arg in changes for arg in run.args) or (
        formats and not dry and run.name not in ("prettier", "yapf", "autopep8")
    )
    if not writes:
        return reads_arguments(run)
    options, operands = split_options(run.args, _CHECKER_VALUES)
    narrowed = any("exclude" in option or "skip" in option for option in options)
    for operand in operands:
        add_path(run, Writes, operand, deep=run.name == "2to3" and not narrowed)
    return DATA


_CHECKER_VALUES = (
    "--exclude --extend-exclude --force-exclude --skip --skip-glob --config -l --line-length --select --ignore "
    "--target-version -t --profile --settings-path"
)


def _tee(run: Run) -> Output:
    append = "-a" in run.args or "--append" in run.args
    for operand in [arg for arg in run.args if not arg.startswith("-")]:
        if MADE in operand:
            run.add(Opaque(run.name, "path"))
        add_path(run, Writes if append else Creates, operand)
        for path in run.paths(operand):
            run.machine.files.write(path, run.stdin.text if is_known(run.stdin.text) else None, append=append)
            run.machine.put(run.name, path, run.stdin.text)
    return run.stdin


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(
        names(
            "less more bat batcat tac nl od hexdump strings md5sum sha1sum sha256sum sha512sum cksum b2sum sum "
            "diff cmp comm diff3 sdiff colordiff vimdiff iconv zcat zless zgrep bzcat xzcat xmllint csvlook "
            "csvcut csvstat csvsort csvgrep mlr pdftotext view pygmentize ldd nm objdump readelf size look "
            "shasum"
        ),
        _reads_text,
    ),
    **dict.fromkeys(
        names(
            "cmake ninja meson bazel tsc rustc gcc g++ cc clang clang++ javac java gradle dotnet rake hatch "
            "jest vitest mocha tap ava pre-commit hyperfine"
        ),
        reads_arguments,
    ),
    **dict.fromkeys(names("paste join column fold fmt expand unexpand shuf pr ts"), _filter),
    **dict.fromkeys(("split", "csplit"), _split),
    **dict.fromkeys(("head", "tail"), _head),
    **dict.fromkeys(names("ls stat file du tree exa eza lsattr getfacl mkdir rmdir mountpoint dir vdir lsof"), _list),
    **dict.fromkeys(("base64", "base32", "xxd"), _base64),
    **dict.fromkeys(names("gunzip zstd unxz bunzip2 uudecode basenc gpg"), _decoder),
    **dict.fromkeys(
        names("pytest py.test nosetests nose2 tox nox unittest doctest coverage behave robot ctest bats phpunit rspec"),
        reads_arguments,
    ),
    **dict.fromkeys(
        names(
            "2to3 ruff flake8 mypy pylint pyright bandit black isort yapf autopep8 autoflake eslint prettier "
            "shellcheck gofmt rustfmt clang-format pyflakes pycodestyle"
        ),
        _checker,
    ),
    **dict.fromkeys(("jq", "yq", "gojq", "jaq"), _query),
    "sqlite3": _reads_statements,
    "cat": _cat,
    "wc": _count,
    "cut": _cut,
    "tr": _tr,
    "sort": _sort,
    "uniq": _uniq,
    "sed": _sed,
    "gsed": _sed,
    "tee": _tee,
    "sponge": _tee,
}
