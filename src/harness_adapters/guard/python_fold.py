"""Constant folding over a Python syntax tree: which strings an expression may be.

Variables are taken without regard to order: a name has every value that is assigned to it anywhere, function
parameters have those of all call sites. What cannot be folded is `ANY`, what a decoder makes is `MADE`.
"""

from __future__ import annotations

import ast
import os.path
from collections.abc import Sequence

from harness_adapters.guard.python_methods import METHODS, decode
from harness_adapters.guard.python_tree import Module
from harness_adapters.guard.values import ANY, DEEP, MADE, STAR, is_known, join, names, union, wild

MAX_STEPS = 20_000
_MAX_DEPTH = 24
_MAX_TEXT = 4096
_DECODERS = frozenset(
    names("b64decode b32decode b16decode a85decode b85decode unhexlify fromhex decompress rot13 decode loads decrypt")
)
_CODECS = {"rot13": "rot13", "hex": "fromhex", "base64": "b64decode"}
_PATH_MAKERS = frozenset(
    names(
        "Path PurePath PosixPath PurePosixPath abspath realpath expanduser expandvars normpath fspath str "
        "resolve absolute"
    )
)


def dotted(node: ast.expr) -> str:
    """`a.b.c` for a chain of names, with calls and indexes left out; empty for anything else."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Name):
            parts.append(node.id)
            return ".".join(reversed(parts))
        else:
            return ".".join(reversed(parts))


_TEST_TOOLS = frozenset(
    names("pytest _pytest pluggy unittest doctest nose hypothesis coverage tox xdist pytest_timeout")
)
_LISTS_OF_PATHS = frozenset(names("glob.glob glob.iglob"))


class Folder:
    """Folds expressions of one module."""

    def __init__(self, module: Module, *, cwd: str, home: str, argv: Sequence[str] = ()) -> None:
        """`argv` is the command line of the script, its own name first, where it is known."""
        self._argv = argv
        self.cwd = cwd
        self.home = home
        self.imports = module.bindings.imports
        self._values = module.bindings.values
        self._loops = module.bindings.loops
        self._chosen = module.bindings.chosen
        self._functions = module.bindings.functions
        self._active: set[str] = set()
        self._names: dict[str, list[str]] = {}
        self._steps = 0

    @property
    def exhausted(self) -> bool:
        """Whether the module took more steps than allowed: everything folded after that is unknown."""
        return self._steps > MAX_STEPS

    def name_of(self, node: ast.expr, depth: int = 0) -> str:
        """The full dotted name of a function, imports and `__import__`/`import_module` resolved."""
        name = dotted(node)
        if depth > _MAX_DEPTH:
            return name
        imported = _imported_module(node)
        if imported:
            return f"{imported}.{name.rpartition('.')[2]}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "getattr"
            and len(node.args) > 1
        ):
            inner = self.name_of(node.args[0], depth + 1)
            return f"{inner}.{self.fold(node.args[1], depth + 1)[0]}"
        head, dot, rest = name.partition(".")
        full = self.imports.get(head, head)
        if full == head and dot and head in self._values and len(self._values[head]) == 1 and head not in self._active:
            self._active.add(head)
            try:
                value = self._values[head][0]
                full = (
                    self.name_of(
                        value.func
                        if isinstance(value, ast.Call) and dotted(value.func) not in ("__import__",)
                        else value,
                        depth + 1,
                    )
                    or head
                )
            finally:
                self._active.discard(head)
        return full + dot + rest

    def fold(self, node: ast.expr | None, depth: int = 0) -> list[str]:
        """The strings that `node` may be."""
        self._steps += 1
        if node is None or depth > _MAX_DEPTH or self.exhausted:
            return [ANY]
        values = [value[:_MAX_TEXT] for value in self._fold(node, depth + 1)]
        return values or [ANY]

    def _fold(self, node: ast.expr, depth: int) -> list[str]:
        match node:
            case ast.Constant(value=str() as text):
                return [text]
            case ast.Constant(value=bytes() as raw):
                return [raw.decode("utf-8", "replace")]
            case ast.Constant(value=value):
                return [str(value)]
            case ast.JoinedStr():
                return join(
                    self.fold(part.value if isinstance(part, ast.FormattedValue) else part, depth)
                    for part in node.values
                )
            case ast.BinOp(op=ast.Add()):
                return join([self.fold(node.left, depth), self.fold(node.right, depth)])
            case ast.BinOp(op=ast.Div()):
                return join([self.fold(node.left, depth), ["/"], self.fold(node.right, depth)])
            case ast.BinOp(op=ast.Mod()):
                return self._percent(node, depth)
            case ast.BoolOp():
                return union(*(self.fold(value, depth) for value in node.values))
            case ast.IfExp():
                return union(self.fold(node.body, depth), self.fold(node.orelse, depth))
            case ast.Name():
                return self._name(node.id, depth)
            case ast.List() | ast.Tuple() | ast.Set():
                return union(*(self.fold(e, depth) for e in node.elts)) if node.elts else []
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return self.fold(elt, depth)
            case ast.Subscript():
                return self._subscript(node, depth)
            case ast.Attribute(attr="executable") if self.name_of(node, depth) == "sys.executable":
                return ["python3"]
            case ast.Attribute(attr="__file__"):
                module = self.name_of(node.value, depth)
                known = module.partition(".")[0] in _TEST_TOOLS
                return [f"/usr/lib/python3/site-packages/{module.replace('.', '/')}.py" if known else ANY]
            case ast.Attribute(attr="sep") if self.name_of(node, depth) in ("os.sep", "os.path.sep"):
                return ["/"]
            case ast.Attribute(attr="parent"):
                return [value.rstrip("/").rpartition("/")[0] or "." for value in self.fold(node.value, depth)]
            case ast.Attribute():
                return [ANY]
            case ast.Call():
                return self._call(node, depth)
            case ast.Starred() | ast.Await():
                return self.fold(node.value, depth)
            case _:
                return [ANY]

    def _name(self, name: str, depth: int) -> list[str]:
        if name in self._active:
            return []
        if name in self._names:
            return self._names[name]
        self._active.add(name)
        try:
            known = [value for expression in self._values.get(name, []) for value in self.fold(expression, depth)]
            looped = [value for iterable in self._loops.get(name, []) for value in self.elements(iterable, depth)]
        finally:
            self._active.discard(name)
        values = union(known, looped) or [ANY]
        if name in self._chosen:
            values = [value.replace(STAR, ANY).replace(DEEP, ANY) for value in values]
        if not self._active:  # otherwise it may lack what the names that are being worked out stand for
            self._names[name] = values
        return values

    def elements(self, node: ast.expr, depth: int = 0) -> list[str]:
        """The strings that iterating over `node` may give."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return union(*(self.fold(element, depth) for element in node.elts)) if node.elts else []
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            return self.fold(node.elt, depth)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and self._argv:
            first = node.slice.lower.value if isinstance(node.slice.lower, ast.Constant) else 0
            if self.name_of(node.value, depth) == "sys.argv" and isinstance(first, int):
                return list(self._argv[first:]) or [ANY]
        if isinstance(node, ast.Name):
            return (
                union(*(self.elements(value, depth + 1) for value in self._values.get(node.id, [])))
                if depth < _MAX_DEPTH
                else [ANY]
            )
        if isinstance(node, ast.Call):
            name = dotted(node.func).rpartition(".")[2]
            if name in (
                "glob",
                "iglob",
                "rglob",
                "iterdir",
                "listdir",
                "scandir",
                "split",
                "sorted",
                "list",
                "reversed",
                "set",
            ):
                return (
                    self.elements(node.args[0], depth + 1)
                    if name in ("sorted", "list", "reversed", "set") and node.args
                    else self.fold(node, depth)
                )
        return [ANY]

    def vector(self, node: ast.expr | None, depth: int = 0) -> list[ast.expr] | None:
        """The items of a list or tuple, also by way of a name that is bound once, of `+` and of `*`; None where it is
        something else."""
        if depth > _MAX_DEPTH or node is None or self.exhausted:
            return None
        node = self._bound(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.vector(node.left, depth + 1), self.vector(node.right, depth + 1)
            self._steps += len(left or ()) + len(right or ())
            return None if left is None or right is None else [*left, *right]
        if not isinstance(node, ast.List | ast.Tuple):
            return None
        items: list[ast.expr] = []
        for item in node.elts:
            inner = self.vector(item.value, depth + 1) if isinstance(item, ast.Starred) else None
            items += inner if inner is not None else [item]
        self._steps += len(items)
        return items

    def _percent(self, node: ast.BinOp, depth: int) -> list[str]:
        values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        parts: list[list[str]] = []
        template = self.fold(node.left, depth)[0]
        pieces = template.split("%s")
        for i, piece in enumerate(pieces):
            parts.append([piece])
            if i < len(pieces) - 1:
                parts.append(self.fold(values[i], depth) if i < len(values) else [ANY])
        return join(parts)

    def _subscript(self, node: ast.Subscript, depth: int) -> list[str]:
        if isinstance(node.slice, ast.Slice):
            step = node.slice.step
            backwards = isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
            values = self.fold(node.value, depth)
            if backwards and node.slice.lower is None and node.slice.upper is None:
                return [value[::-1] if is_known(value) else MADE for value in values]
            return [ANY]
        if self._argv and self.name_of(node.value, depth) == "sys.argv":
            number = node.slice.value if isinstance(node.slice, ast.Constant) else None
            known = isinstance(number, int) and number < len(self._argv)
            return [self._argv[number]] if known and isinstance(number, int) else [ANY]
        if isinstance(node.value, ast.Dict):
            return union(*(self.fold(value, depth) for value in node.value.values)) if node.value.values else [ANY]
        if isinstance(node.value, ast.Name):
            inner = [v for v in self._values.get(node.value.id, []) if isinstance(v, ast.Dict | ast.List | ast.Tuple)]
            items = [x for v in inner for x in (v.values if isinstance(v, ast.Dict) else v.elts)]
            return union(*(self.fold(item, depth) for item in items)) if items else [ANY]
        if isinstance(node.value, ast.Call) and self.name_of(node.value.func, depth) in _LISTS_OF_PATHS:
            return self.fold(node.value, depth)
        return [ANY]

    def _call(self, node: ast.Call, depth: int) -> list[str]:
        name = self.name_of(node.func, depth)
        last = name.rpartition(".")[2]
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        first = node.args[0] if node.args else None
        if last in _PATH_MAKERS:
            source = (
                first
                if first is not None
                and not (receiver is not None and last in ("resolve", "absolute", "expanduser") and not node.args)
                else receiver
            )
            parts = (
                [self.fold(argument, depth) for argument in node.args]
                if last in ("Path", "PurePath", "PosixPath") and node.args
                else [self.fold(source, depth)]
            )
            return join([piece for part in parts for piece in (part, ["/"])][:-1]) if len(parts) > 1 else parts[0]
        if last in ("join", "joinpath"):
            return self._join(node, receiver, name, depth)
        if last in ("getcwd", "cwd"):
            return [self.cwd]
        if last == "home":
            return [self.home]
        if last in METHODS and receiver is not None:
            return METHODS[last](self.fold(receiver, depth), [self.fold(a, depth) for a in node.args])
        if last == "format" and receiver is not None:
            return self._format(node, receiver, depth)
        if last in ("glob", "iglob", "rglob"):
            base = self.fold(receiver, depth) if receiver is not None and "glob" not in dotted(receiver) else [""]
            below = f"{DEEP}/" if last == "rglob" else ""
            return [(f"{b}/" if b else "") + below + wild(p) for b in base for p in self.fold(first, depth)]
        if last in ("iterdir", "listdir", "scandir"):
            return [
                f"{value}/{STAR}" if last == "iterdir" else STAR
                for value in self.fold(receiver if last == "iterdir" else first, depth)
            ]
        if (
            last == "chr"
            and isinstance(first, ast.Constant)
            and isinstance(first.value, int)
            and 6 < first.value < 0xD800
        ):
            return [chr(first.value)]
        if last in ("bytes", "bytearray") and first is not None and (spelt := _characters(self._bound(first))):
            return [spelt]
        if last in ("open", "with_name", "with_suffix", "mkdtemp", "mktemp"):
            return self.fold(first, depth) if last == "open" and first is not None else [ANY]
        if name in ("codecs.decode", "codecs.encode") and len(node.args) > 1:
            how = _CODECS.get(self.fold(node.args[1], depth)[0].replace("_", "").replace("-", ""), last)
            return [decode(how, value) for value in self.fold(first, depth)]
        if last in _DECODERS:
            return [decode(last, value) for value in self.fold(first if first is not None else receiver, depth)]
        return self._result(node, last, depth)

    def _result(self, node: ast.Call, last: str, depth: int) -> list[str]:
        function = self._functions.get(last)
        if function is None or last in self._active:
            return (
                [MADE] if last in ("join", "fromhex", "chr", "bytes", "bytearray", "translate", "maketrans") else [ANY]
            )
        self._active.add(last)
        try:
            returns = [r.value for r in ast.walk(function) if isinstance(r, ast.Return) and r.value is not None]
            return union(*(self.fold(value, depth) for value in returns)) if returns else [ANY]
        finally:
            self._active.discard(last)

    def _join(self, node: ast.Call, receiver: ast.expr | None, name: str, depth: int) -> list[str]:
        if "path" in name.lower() or name.endswith("joinpath"):
            start = [self.fold(receiver, depth)] if name.endswith("joinpath") and receiver is not None else []
            parts = start + [self.fold(argument, depth) for argument in self._spread(node.args, depth)]
            folded = join([piece for part in parts for piece in (part, ["/"])][:-1])
            return [os.path.normpath(value) if is_known(value) and value else value for value in folded]
        separator = self.fold(receiver, depth)
        items = node.args[0] if node.args else None
        if isinstance(items, ast.Name):
            bound = [v for v in self._values.get(items.id, []) if isinstance(v, ast.List | ast.Tuple)]
            items = bound[0] if bound else items
        if isinstance(items, ast.List | ast.Tuple):
            parts = [self.fold(element, depth) for element in items.elts]
            return join([piece for part in parts for piece in (part, separator)][:-1])
        spelt = self._spelt(items) if items is not None else ""
        if spelt:
            return [separator[0].join(spelt)]
        return [MADE] if isinstance(items, ast.GeneratorExp | ast.ListComp | ast.Call) else [ANY]

    def _spread(self, arguments: list[ast.expr], depth: int) -> list[ast.expr]:
        """Arguments with those that are given as `*list` in their places, where the list is known."""
        spread: list[ast.expr] = []
        for argument in arguments:
            inner = self.vector(argument.value, depth) if isinstance(argument, ast.Starred) else None
            spread += [argument] if inner is None else inner
        return spread

    def _spelt(self, node: ast.expr) -> str:
        """The text that `map(chr, [...])` or `chr(n) for n in [...]` spells; empty where it is something else."""
        match node:
            case ast.Call(func=ast.Name(id="reversed"), args=[text]):
                values = self.fold(text)
                return values[0][::-1] if len(values) == 1 and is_known(values[0]) else ""
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="chr"), numbers]):
                return _characters(self._bound(numbers))
            case ast.GeneratorExp(elt=elt, generators=[loop]) | ast.ListComp(elt=elt, generators=[loop]):
                same = isinstance(elt, ast.Call) and dotted(elt.func) == "chr" and len(elt.args) == 1
                if same and isinstance(elt, ast.Call) and ast.dump(elt.args[0]) == _as_read(loop.target):
                    return _characters(self._bound(loop.iter))
        return ""

    def _bound(self, node: ast.expr) -> ast.expr:
        """What a name stands for, where it was bound to one thing."""
        values = self._values.get(node.id, []) if isinstance(node, ast.Name) else []
        return values[0] if len(values) == 1 else node

    def _format(self, node: ast.Call, receiver: ast.expr, depth: int) -> list[str]:
        template = self.fold(receiver, depth)[0]
        pieces = template.split("{}")
        parts: list[list[str]] = []
        for i, piece in enumerate(pieces):
            parts.append([piece])
            if i < len(pieces) - 1:
                parts.append(self.fold(node.args[i], depth) if i < len(node.args) else [ANY])
        folded = join(parts)
        return folded if not node.keywords else [ANY if "{" in value else value for value in folded]


def _characters(node: ast.expr) -> str:
    """The text of a list or tuple of code points, or of a bytes literal; empty where it is something else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        return node.value.decode("latin-1")
    if not isinstance(node, ast.List | ast.Tuple):
        return ""
    codes = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, int)]
    plain = len(codes) == len(node.elts) and all(6 < code < 0xD800 for code in codes)
    return "".join(map(chr, codes)) if plain else ""


def _as_read(target: ast.expr) -> str:
    """How a loop's variable looks where it is read."""
    return ast.dump(ast.Name(target.id, ast.Load())) if isinstance(target, ast.Name) else ""


def _imported_module(node: ast.expr) -> str:
    """`os` for `__import__("os").system` and `importlib.import_module("os").system`."""
    inner = node.value if isinstance(node, ast.Attribute) else node
    if (
        isinstance(inner, ast.Call)
        and dotted(inner.func).rpartition(".")[2] in ("__import__", "import_module")
        and inner.args
    ):
        first = inner.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
    return ""
