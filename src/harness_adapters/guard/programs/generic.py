"""The default for arguments: what is a URL, what is a path, what is an option that names an output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from harness_adapters.guard.facts import Connects, Mentions, PathFact, Reads, Touches, Writes
from harness_adapters.guard.hosts import SCP_ADDRESS, normalise, scp_endpoint, url_endpoints
from harness_adapters.guard.machine import DATA, Output, Run
from harness_adapters.guard.values import is_known, names

OUTPUT_OPTION = re.compile(
    r"^--?[\w-]*(out|report|log|junit|save|dest|target|write|basetemp|html)[\w-]*$", re.IGNORECASE
)
_OPTION_VALUE = re.compile(r"^(--?[\w.-]+)=(.*)$", re.DOTALL)
_ASSIGNMENT = re.compile(r"^[A-Za-z_][\w.-]*=(.*)$", re.DOTALL)
_INNER_PATH = re.compile(r"(?<![\w.:/@-])/[\w./-]{3,}")
_NAMED_HOST = re.compile(
    r"(?i)\b(?:\w*endpoint|host(?:name|addr)?|server)['\"]?\s*(?:=>|=|:|\s)\s*['\"]([\w-]+(?:\.[\w-]+)+)['\"]"
)
"""A host in the language of a data base's or mail client: `SET s3_endpoint='h'`."""
_RUN_BY = re.compile(r"(?i:\bprogram\s+)'([^'\n]{1,400})'|(?m:^[ \t]*(?:\\!|\.shell|\.system|system)[ \t]+(.{1,400})$)")
_READ_BY = re.compile(
    r"\b(?:readfile|pg_read_(?:binary_)?file|load_file|read_(?:csv|text|blob|json|parquet|ndjson)\w*|(?:infile|from)(?=\s*'))"
    r"\s*\(?\s*\[?'([\w./~-][\w./~*-]{1,200})'",
    re.IGNORECASE,
)
_WRITTEN_BY = re.compile(
    r"\b(?:writefile\s*\(|to|into\s+outfile|into\s+dumpfile)\s*'([\w./~-]{2,200}\.\w{1,8})'", re.IGNORECASE
)
_STATEMENT = re.compile(
    r"\s*(?:select|with|from|copy|set|insert|update|delete|create|attach|explain|pragma)\b", re.IGNORECASE
)
_COMPARED = re.compile(
    r"(?:\b(?:where|and|or|on|when|not)\s+[\w.\"]{1,80}\s*(?:=|<>|!=)|\b(?:i?like|glob|regexp|similar\s+to))\s*'[^']{0,400}'",
    re.IGNORECASE,
)
"""A text that a statement for a data base compares with: an address in it is data."""
_TEXT_TOOLS = frozenset(
    names(
        "pandoc asciidoctor markdown mdcat glow xclip xsel pbcopy wl-copy cowsay figlet iconv recode xxd hexdump od "
        "shellcheck shfmt prettier black ruff mdformat markdownlint vale aspell hunspell codespell yamllint hadolint "
        "write wall logger lp lpr espeak say dot mmdc plantuml lolcat boxes fmt fold par"
    )
)
"""Programs to which the addresses in their input are text."""
_LOOKING_VERBS = frozenset(names("test tests check spec bench build compile lint analyze analyse eunit ct verify"))
"""First words of a build tool's command line that say that it only looks at the files that it is given."""
_SAYS_WHERE = frozenset(names("list-bin --show-bin-path --print-bin --print-out-paths"))
"""Words that ask a build tool where the program lies that it has built."""
_SHORT_PATH = re.compile(r"^-[A-Za-z]([/~].*)$")


def unknown_program(run: Run) -> Output:
    """A program that may do anything with its arguments, and with what its input tells it."""
    connect_urls(run, [_COMPARED.sub(" ", arg) if _STATEMENT.match(arg) else arg for arg in run.args])
    verb = next((arg for arg in run.args if not arg.startswith("-")), "")
    kind = Reads if verb in _LOOKING_VERBS else Touches
    output_options(run)
    for value in path_arguments(run.args):
        add_path(run, kind, value)
    mention_paths(run)
    mention_files(run, path_arguments(run.args))
    if _SAYS_WHERE & set(run.args):
        return Output(f"{run.scope.cwd}/build/{run.name}\n", plain=True)
    told = mention_input(run)
    for arg in run.args:
        if _STATEMENT.match(arg):
            statement_files(run, arg)
    if told and _STATEMENT.match(told):
        statement_files(run, told)
    if told and run.name not in _TEXT_TOOLS:
        connect_urls(run, [told])
        for host in _NAMED_HOST.findall(told)[:32]:
            run.add(Connects(run.name, normalise(host)))
    return DATA


def statement_files(run: Run, told: str) -> None:
    """Files that statements for a data base read and write by name, and commands that they run."""
    for quoted, line in _RUN_BY.findall(told)[:8]:
        run.shell.script(quoted or line, run.scope.fork(), DATA)
    for name in _READ_BY.findall(told)[:32]:
        add_path(run, Reads, name)
    for name in _WRITTEN_BY.findall(told)[:32]:
        add_path(run, Writes, name)


def mention_input(run: Run) -> str:
    """Absolute paths in the input of a program that takes it as commands; the input, where it is known."""
    told = run.stdin.text if is_known(run.stdin.text) else ""
    for path in inner_paths(told):
        add_path(run, Mentions, path)
    return told


def inner_paths(text: str) -> list[str]:
    """The first absolute paths in a text in some program's own language."""
    return _INNER_PATH.findall(text)[:32]


def mention_files(run: Run, given: Iterable[str]) -> None:
    """Absolute paths in files of the session that a program is given: they may be its commands."""
    for value in given if run.machine.files.contents else ():
        for path in run.paths(value):
            for inner in inner_paths(run.machine.files.contents.get(path) or ""):
                add_path(run, Mentions, inner)


def mention_paths(run: Run) -> None:
    """Absolute paths inside arguments that are commands in the program's own language (`.output /logs/x`)."""
    for arg in run.args:
        if re.search(r"\s", arg):
            for path in inner_paths(arg):
                add_path(run, Mentions, path)


def add_path(run: Run, kind: Callable[..., PathFact], value: str, *, deep: bool = False) -> None:
    """One path fact for each folder the shell may be in."""
    if value and ("://" not in value or value.startswith("file:")):
        for path in run.paths(value):
            run.add(kind(run.name, path, deep))


def path_arguments(args: list[str]) -> Iterator[str]:
    """Every piece of the arguments that could be a path, option values included."""
    for arg in args:
        option = _OPTION_VALUE.match(arg)
        short = _SHORT_PATH.match(arg)
        assigned = _ASSIGNMENT.match(arg)
        if option:
            yield option[2]
        elif short:
            yield short[1]
        elif not arg.startswith("-") and arg:
            yield arg.removeprefix("@")
            if assigned:
                yield assigned[1].removeprefix("@")


def output_options(run: Run) -> set[int]:
    """Adds a write for every option that names an output; the indexes of the arguments used up."""
    used: set[int] = set()
    for i, arg in enumerate(run.args):
        option = _OPTION_VALUE.match(arg)
        if option and OUTPUT_OPTION.match(option[1]):
            add_path(run, Writes, option[2])
            used.add(i)
        elif OUTPUT_OPTION.match(arg) and arg.startswith("--") and i + 1 < len(run.args):
            add_path(run, Writes, run.args[i + 1])
            used |= {i, i + 1}
    return used


def connect_urls(run: Run, args: list[str]) -> bool:
    """Adds a connection for every URL and `user@host:path` in the arguments; whether there was any."""
    found = False
    for arg in args:
        ends = url_endpoints(arg)
        if SCP_ADDRESS.match(arg):
            ends.append(scp_endpoint(arg))
        for end in ends:
            run.add(Connects(run.name, end.host, end.port))
            found = True
    return found


def split_options(args: list[str], with_value: str) -> tuple[dict[str, list[str]], list[str]]:
    """Options and operands, by the names (blank-separated, `-x` or `--long`) of the options that take a value."""
    takes = set(with_value.split())
    options: dict[str, list[str]] = {}
    operands: list[str] = []
    i = 0
    while i < len(args):
        arg = args[i]
        if arg == "--":
            operands += args[i + 1 :]
            break
        long = _OPTION_VALUE.match(arg) if arg.startswith("--") else None
        if long:
            options.setdefault(long[1], []).append(long[2])
        elif arg in takes:
            options.setdefault(arg, []).append(args[i + 1] if i + 1 < len(args) else "")
            i += 1
        elif arg[:2] in takes and len(arg) > 2 and not arg.startswith("--"):
            options.setdefault(arg[:2], []).append(arg[2:])
        elif arg.startswith("-") and len(arg) > 1:
            letters = arg[1:] if not arg.startswith("--") else ""
            options.setdefault(arg, []).append("")
            for n, letter in enumerate(letters):
                flag = f"-{letter}"
                if flag in takes:
                    rest = letters[n + 1 :]
                    options.setdefault(flag, []).append(rest or (args[i + 1] if i + 1 < len(args) else ""))
                    i += 0 if rest else 1
                    break
                options.setdefault(flag, []).append("")
        else:
            operands.append(arg)
        i += 1
    return options, operands
