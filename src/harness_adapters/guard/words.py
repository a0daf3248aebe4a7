"""Shell words to the strings they may expand to: quoting, variables, substitutions, braces, globs.

A word gives a list: the fields it splits into and the alternatives it may have are not told apart, since every rule
asks "may one of these be …".

Invariant: quoting is honoured; a quoted `*` is a star character, an unquoted one is the `STAR` marker.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

from harness_adapters.guard.facts import DumpsEnv, ReadsEnv
from harness_adapters.guard.machine import Machine, Scope
from harness_adapters.guard.syntax import Node, Source
from harness_adapters.guard.values import ANY, DEEP, MADE, ONE, STAR, UNSET, hides, is_known, join, without_brackets

Substitute = Callable[["Node", Source, Scope], str]

_SPLIT = "\x06"
_OPEN, _COMMA, _CLOSE = "\x0e", "\x0f", "\x10"
_MAX_RANGE = 16
_MAX_EXPANSIONS = 256
_MAX_TRIMMED = 2048
_MAX_BRACED = 2048
_SPECIAL_DIGITS = frozenset("?$!#-_") | {
    "RANDOM",
    "SECONDS",
    "BASHPID",
    "PPID",
    "UID",
    "EUID",
    "LINENO",
    "EPOCHSECONDS",
}
_EXPANSION = re.compile(r"^\$\{(?P<flag>[#!]?)(?P<name>\w+|[@*#?$!-])(?P<index>\[[^]]*\])?(?P<rest>.*)\}$", re.DOTALL)
_INNER = re.compile(r"\$\{?(\w+)\}?")
_PLAIN = frozenset({"word", "number", "variable_name"})
_MARKED = re.compile(r"[\\*?\[{,}]")
"""What an unquoted piece may hold that does not stand for itself."""
_OWN_MARKS = re.compile(f"[{_SPLIT}{_OPEN}{_COMMA}{_CLOSE}]")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_ANSI_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)


_UNKNOWN_NAME = "__unknown__"
_COMPUTED_NAME = "__computed__"


_ONE_OF = re.compile(r"(?<=[\s/])@\([\w|./*-]*\)")
_EXTENDED = re.compile(r"[@?*+!]\([\w|./*-]*\)")
"""Patterns that the grammar does not take as part of a word: they stand for what a `*` does."""


def as_shell_text(value: str) -> str:
    """A value as shell text to parse again: wild cards as written, unknown pieces as variables that stay unknown."""
    if "@(" in value or "extglob" in value:
        value = (_EXTENDED if "extglob" in value else _ONE_OF).sub("*", value)
    if is_known(value):
        return value
    value = value.replace(STAR, "*").replace(ONE, "?").replace(DEEP, "**").replace(UNSET, "")
    return value.replace(ANY, f"${{{_UNKNOWN_NAME}}}").replace(MADE, f"${{{_COMPUTED_NAME}}}")


class Words:
    """Evaluates word nodes; `substitute` runs a command substitution and gives its output."""

    def __init__(self, machine: Machine, substitute: Substitute) -> None:
        self.machine = machine
        self._substitute = substitute

    def fields(self, node: Node, source: Source, scope: Scope) -> list[str]:
        """The strings that one word expands to."""
        known = self._known(node, source)
        if known is not None:
            return [known]
        values = self._parts(node, source, scope, quoted=False)
        fields = [field for value in values for field in value.split(_SPLIT) if field or _SPLIT not in value]
        if any("[" in field for field in fields) and not _QUOTED.search(source.text(node.start_byte, node.end_byte)):
            fields = [field if "://" in field else without_brackets(field) for field in fields]
        return [_literal(f) for field in fields for f in _expand_braces(field)]

    def all_fields(self, nodes: Sequence[Node], source: Source, scope: Scope) -> list[str]:
        """The strings that words expand to. The grammar ends a word at the second `$` of `$a/$b/c`: what follows
        without a blank belongs to it."""
        fields: list[str] = []
        last: list[str] = []
        end = -1
        for node in nodes:
            now = self.fields(node, source, scope)
            name = _NAME.match(now[0]) if node.start_byte == end and now and last and last[-1].endswith("$") else None
            if name:
                del fields[len(fields) - len(last) :]
                values = self.variable(name[0], scope)
                now = [start[:-1] + value + rest[name.end() :] for start in last for value in values for rest in now]
            fields += now
            last, end = now, node.end_byte
        return fields

    def _known(self, node: Node, source: Source) -> str | None:
        """The one string that most words are, without a look at what they might hold; None for any other."""
        while node.type == "command_name" and len(node.children) == 1:
            node = node.children[0]
        if node.type in _PLAIN and not node.children:
            text = source.text(node.start_byte, node.end_byte)
            return None if _MARKED.search(text) else text
        if node.type == "raw_string":
            return source.text(node.start_byte + 1, node.end_byte - 1)
        if node.type == "string" and len(node.children) == 3 and node.children[1].type == "string_content":
            inner = node.children[1]
            if inner.start_byte == node.start_byte + 1 and inner.end_byte == node.end_byte - 1:
                return _in_quotes(source.text(inner.start_byte, inner.end_byte))
        return None

    def text(self, node: Node, source: Source, scope: Scope) -> list[str]:
        """The strings of a word that is neither split nor globbed (an assignment's value)."""
        values = [_literal(value) for value in self._parts(node, source, scope, quoted=True)]
        if any(part.type == "command_substitution" for part in (node, *node.children)):
            return values  # what a command printed has been expanded before
        return [value.replace(STAR, "*").replace(ONE, "?") for value in values]

    def printed(self, node: Node, source: Source, scope: Scope) -> str:
        """What the commands of a substitution print."""
        return self._substitute(node, source, scope)

    def body(self, node: Node, source: Source, scope: Scope) -> str:
        """A here-document's body after expansion."""
        return self._joined(node, source, scope, quoted=True)[0]

    def _parts(self, node: Node, source: Source, scope: Scope, *, quoted: bool) -> list[str]:
        match node.type:
            case (
                "word" | "number" | "extglob_pattern" | "regex" | "test_operator" | "variable_name" | "brace_expression"
            ):
                if node.named_children and node.type not in ("brace_expression",):
                    return self._joined(node, source, scope, quoted=False)
                return [_unquoted(source.text(node.start_byte, node.end_byte))]
            case "raw_string":
                return [source.text(node.start_byte, node.end_byte)[1:-1]]
            case "ansi_c_string":
                return [decode_ansi(source.text(node.start_byte, node.end_byte)[2:-1])]
            case "string" | "translated_string":
                return self._joined(node, source, scope, quoted=True)
            case "concatenation" | "command_name":
                return self._joined(node, source, scope, quoted=False)
            case "simple_expansion" | "expansion":
                values = self._expansion(node, source, scope)
                plain = "IFS" not in scope.variables
                return (
                    values
                    if quoted
                    else [
                        value if plain and not _SPLITS.search(value) else _SPLIT.join(_split(value, scope))
                        for value in map(_globbed, values)
                    ]
                )
            case "command_substitution":
                value = self._substitute(node, source, scope).rstrip("\n")
                return [value if quoted else _SPLIT.join(_split(value, scope))]
            case "process_substitution":
                self.printed(node, source, scope)
                return [ANY]
            case "arithmetic_expansion":
                self._run_children(node, source, scope)
                return [ANY]
            case "array":
                return [v for child in node.named_children for v in self.fields(child, source, scope)]
            case _:
                self._run_children(node, source, scope)
                return [_unquoted(source.text(node.start_byte, node.end_byte))]

    def _joined(self, node: Node, source: Source, scope: Scope, *, quoted: bool) -> list[str]:
        """The concatenation of a node's parts. Text between children belongs to it: the grammar drops some blanks."""
        with self.machine.deeper():
            return join(self._pieces(node, source, scope, quoted=quoted))

    def _pieces(self, node: Node, source: Source, scope: Scope, *, quoted: bool) -> list[list[str]]:
        parts: list[list[str]] = []
        at = node.start_byte
        for child in node.children:
            if child.start_byte > at:
                gap = source.text(at, child.start_byte)
                parts.append([_in_quotes(gap) if quoted else _unquoted(gap)])
            at = child.end_byte
            if child.is_named and child.type not in ("string_content", "heredoc_content"):
                parts.append(self._parts(child, source, scope, quoted=quoted))
            elif child.type not in ('"', '$"'):
                text = source.text(child.start_byte, child.end_byte)
                parts.append([_in_quotes(text) if quoted else _unquoted(text)])
        if at < node.end_byte:
            tail = source.text(at, node.end_byte)
            parts.append([_in_quotes(tail) if quoted else _unquoted(tail)])
        return parts

    def _run_children(self, node: Node, source: Source, scope: Scope) -> None:
        for child in node.named_children:
            if child.type in ("command_substitution", "simple_expansion", "expansion", "concatenation", "string"):
                self._parts(child, source, scope, quoted=True)

    def _expansion(self, node: Node, source: Source, scope: Scope) -> list[str]:
        text = source.text(node.start_byte, node.end_byte)
        match = _EXPANSION.match(text)
        if match is None:
            return self.variable(text.lstrip("$"), scope)
        flag, name, rest = match["flag"], match["name"], match["rest"]
        nested = [
            child for child in node.named_children if child.type in ("command_substitution", "concatenation", "string")
        ]
        for child in nested:
            self._parts(child, source, scope, quoted=True)
        if flag == "#":
            return [ANY]
        if flag == "!":
            return self._indirect(name, rest, scope)
        if rest.startswith((":+", "+")):
            word = self._word(rest.lstrip(":+"), scope)
            known = scope.variables.get(name)
            return [word, ""] if known is None else [word if value else "" for value in known]
        if rest[:2] in (":-", ":=") or rest[:1] in ("-", "="):
            word = (
                MADE
                if any(child.type == "command_substitution" for child in nested)
                else self._word(rest.lstrip(":-="), scope)
            )
            known = scope.variables.get(name)
            if known is None:
                self.variable(name, scope)
                return [word]
            return [value or word for value in known]
        return [_operate(value, rest) for value in self.variable(name, scope)]

    def _indirect(self, name: str, rest: str, scope: Scope) -> list[str]:
        if rest in ("*", "@"):
            return [name + ANY]
        names = scope.variables.get(name, [MADE])
        if not rest.lstrip(":").startswith("+") and any(n.endswith(ANY) and n[:-1].isidentifier() for n in names):
            self.machine.add(DumpsEnv("$"))
        return [v for n in names for v in (self.variable(n, scope) if is_known(n) and n.isidentifier() else [MADE])]

    def _word(self, text: str, scope: Scope) -> str:
        """The default value inside an expansion: variables replaced, quotes dropped."""
        replaced = _INNER.sub(lambda m: (self.variable(m[1], scope) or [""])[0], text)
        return replaced.replace('"', "").replace("'", "")

    def variable(self, name: str, scope: Scope) -> list[str]:
        """The values that a variable may have."""
        if name in scope.variables:
            return scope.variables[name]
        if name in (_UNKNOWN_NAME, _COMPUTED_NAME):
            return [ANY if name == _UNKNOWN_NAME else MADE]
        if name == "HOME":
            return [self.machine.home]
        if name in ("PWD", "OLDPWD"):
            return list(scope.cwds)
        if name == "TMPDIR":
            return ["/tmp"]
        if name in ("0", "BASH_SOURCE"):
            return ["bash"]
        if name in ("@", "*"):
            return scope.arguments
        if name.isdigit():
            return scope.arguments[int(name) - 1 : int(name)] or [""]
        if name in _SPECIAL_DIGITS:
            # Some number: never a program, a host or a part of a name that a policy would hold.
            return ["0"]
        self.machine.add(ReadsEnv("$", name))
        return [UNSET]


def decode_ansi(text: str) -> str:
    """The escapes of `$'…'` and of `printf` decoded; NUL ends the string as in the shell."""

    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            number = int(code[1:], 16)
        elif code[0] in "01234567":
            number = int(code, 8) & 0xFF
        else:
            return _ANSI.get(code, code[1:] if len(code) > 1 else code)
        return chr(number) if 6 < number < 0x110000 and not 0xD800 <= number < 0xE000 else ""

    return _ANSI_ESCAPE.sub(one, text)


_QUOTED = re.compile(r"['\"\\]")
_NAME = re.compile(r"[A-Za-z_]\w*|\d")


_SPLITS = re.compile(r"[ \n]")


def _globbed(value: str) -> str:
    """A variable's value where it stands unquoted: its wild cards count."""
    if "://" in value or not ("*" in value or "?" in value):
        return value
    return value.replace("*", STAR).replace("?", ONE)


def _split(value: str, scope: Scope) -> list[str]:
    """A value's words: split at blanks, and at the signs that `IFS` was set to."""
    signs = "".join(scope.variables.get("IFS", ()))
    if not signs or not is_known(signs):
        return value.split()
    return [word for word in re.split(f"[{re.escape(signs)}]", value) if word]


def _unquoted(text: str) -> str:
    """An unquoted piece: escapes resolved, globs and braces marked."""
    if not _MARKED.search(text):
        return text
    text = without_brackets(text)
    out: list[str] = []
    i = 0
    marks = {"*": STAR, "?": ONE, "{": _OPEN, ",": _COMMA, "}": _CLOSE}
    while i < len(text):
        if text[i] == "\\":
            following = text[i + 1 : i + 2]
            out.append("" if following == "\n" else following)
            i += 2
        else:
            out.append(marks.get(text[i], text[i]))
            i += 1
    joined = "".join(out)
    return re.sub(f"(^|/){STAR}{{2}}(?=/|$)", rf"\1{DEEP}", joined)


_PAIR = "\x0e"
"""Stands for an escaped backslash; no parsed text holds it."""


def _in_quotes(text: str) -> str:
    """Text between double quotes, its escapes resolved: by plain replacements, since a text may hold a million."""
    if "\\" not in text:
        return text
    text = text.replace("\\\\", _PAIR).replace("\\\n", "")
    for sign in '$`"':
        text = text.replace(f"\\{sign}", sign)
    return text.replace(_PAIR, "\\")


def _literal(field: str) -> str:
    if not _OWN_MARKS.search(field):
        return field
    return field.replace(_OPEN, "{").replace(_COMMA, ",").replace(_CLOSE, "}").replace(_SPLIT, " ")


def _expand_braces(field: str) -> list[str]:
    """All expansions of the braces in a field; one unknown value where there are too many."""
    if _CLOSE not in field:
        return [field]
    if len(field) > _MAX_BRACED:
        return [field.partition(_OPEN)[0] + ANY]
    done: list[str] = []
    todo = [field]
    for _ in range(_MAX_EXPANSIONS):
        if not todo:
            return done
        current = todo.pop()
        close = current.find(_CLOSE)
        start = current.rfind(_OPEN, 0, close) if close >= 0 else -1
        if start < 0:
            done.append(current)
            continue
        before, inner, after = current[:start], current[start + 1 : close], current[close + 1 :]
        todo += [before + choice + after for choice in _choices(inner)]
    literal = field.partition(_OPEN)[0]
    return [literal + ANY]


def _choices(inner: str) -> list[str]:
    span = re.fullmatch(r"(-?\w+)\.\.(-?\w+)(?:\.\.-?\d+)?", inner)
    if span:
        return _range(span[1], span[2])
    return inner.split(_COMMA) if _COMMA in inner else ["{" + inner + "}"]


def _range(first: str, last: str) -> list[str]:
    if len(first) == 1 and len(last) == 1 and first.isalpha() and last.isalpha():
        low, high = sorted((ord(first), ord(last)))
        return [chr(code) for code in range(low, high + 1)]
    try:
        low, high = sorted((int(first), int(last)))
    except ValueError:
        return [f"{{{first}..{last}}}"]
    return [str(n) for n in range(low, high + 1)] if high - low < _MAX_RANGE else [ANY]


def _operate(value: str, rest: str) -> str:
    """`${v#p}`, `${v%p}`, `${v/a/b}`, `${v:o:n}`, `${v^^}` and the like on a value."""
    if not rest:
        return value
    if rest in ("^^", "^", ",,", ","):
        return {
            "^^": value.upper(),
            ",,": value.lower(),
            "^": value[:1].upper() + value[1:],
            ",": value[:1].lower() + value[1:],
        }[rest]
    if "$" in rest or "`" in rest:
        return MADE
    if rest[0] in "#%":
        return _trim(value, rest)
    if rest[0] == "/":
        old, _, new = rest.lstrip("/").partition("/")
        return value.replace(old, new) if rest.startswith("//") else value.replace(old, new, 1)
    span = re.fullmatch(r":\s*(-?\d+)(?::\s*(-?\d+))?", rest)
    if span and is_known(value):
        start = int(span[1])
        end = len(value) if span[2] is None else int(span[2]) + (start if int(span[2]) >= 0 else len(value))
        return value[start:end]
    return ANY if hides(value) else value if rest[0] in "?:@" else MADE


def _trim(value: str, rest: str) -> str:
    if len(value) > _MAX_TRIMMED:
        return ANY
    greedy = rest[:2] in ("##", "%%")
    pattern = rest[2:] if greedy else rest[1:]
    pattern = pattern.strip("'\"")
    front = rest[0] == "#"
    cuts = range(len(value) + 1) if front else range(len(value), -1, -1)
    for cut in reversed(cuts) if greedy else cuts:
        piece = value[:cut] if front else value[cut:]
        if fnmatch.fnmatchcase(piece, pattern):
            return value[cut:] if front else value[:cut]
    return value
