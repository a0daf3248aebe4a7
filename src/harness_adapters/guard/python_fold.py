"""Constant folding over a Python syntax tree: which strings an expression may be.

Variables are taken without regard to order: a name has every value that is assigned to it anywhere, function
parameters have those of all call sites. What cannot be folded is `ANY`, what a decoder makes is `MADE`.
"""

from __future__ import annotations

import ast
import os.path

from harness_adapters.guard.python_methods import METHODS, decode
from harness_adapters.guard.values import ANY, MADE, STAR, is_known, join, names, union

MAX_STEPS = 20_000
_MAX_DEPTH = 24
_MAX_TEXT = 4096
_DECODERS = frozenset(
    names("b64decode b32decode b16decode a85decode b85decode unhexlify fromhex decompress rot13 decode loads decrypt")
)
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


class Folder:
    """Folds expressions of one module."""

    def __init__(self, tree: ast.Module, *, cwd: str, home: str) -> None:
        self.cwd = cwd
        self.home = home
        self.imports: dict[str, str] = {}
        self._values: dict[str, list[ast.expr]] = {}
        self._loops: dict[str, list[ast.expr]] = {}
        self._functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._active: set[str] = set()
        self._steps = 0
        self._collect(tree)

    @property
    def exhausted(self) -> bool:
        """Whether the module took more steps than allowed: everything folded after that is unknown."""
        return self._steps > MAX_STEPS

    def _collect(self, tree: ast.Module) -> None:
        calls: list[ast.Call] = []
        for node in ast.walk(tree):
            match node:
                case ast.Import():
                    for name in node.names:
                        self.imports[name.asname or name.name.partition(".")[0]] = (
                            name.name if name.asname else name.name.partition(".")[0]
                        )
                case ast.ImportFrom():
                    for name in node.names:
                        self.imports[name.asname or name.name] = f"{node.module or ''}.{name.name}"
                case ast.Assign():
                    for target in node.targets:
                        self._bind(target, node.value)
                case ast.AnnAssign(value=value) if value is not None:
                    self._bind(node.target, value)
                case ast.AugAssign():
                    self._bind(node.target, ast.BinOp(node.target, node.op, node.value))
                case ast.NamedExpr():
                    self._bind(node.target, node.value)
                case ast.For() | ast.AsyncFor() | ast.comprehension():
                    if isinstance(node.target, ast.Name):
                        self._loops.setdefault(node.target.id, []).append(node.iter)
                case ast.withitem(optional_vars=ast.Name(id=name), context_expr=value):
                    self._values.setdefault(name, []).append(value)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._functions[node.name] = node
                case ast.Call():
                    calls.append(node)
        for call in calls:
            self._bind_parameters(call)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._values.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, its_value in zip(target.elts, value.elts, strict=False):
                self._bind(one, its_value)

    def _bind_parameters(self, call: ast.Call) -> None:
        function = self._functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if function is None:
            return
        names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        for name, value in zip(names, call.args, strict=False):
            self._values.setdefault(name, []).append(value)
        for keyword in call.keywords:
            if keyword.arg:
                self._values.setdefault(keyword.arg, []).append(keyword.value)

    def name_of(self, node: ast.expr) -> str:
        """The full dotted name of a function, imports and `__import__`/`import_module` resolved."""
        name = dotted(node)
        imported = _imported_module(node)
        if imported:
            return f"{imported}.{name.rpartition('.')[2]}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "getattr"
            and len(node.args) > 1
        ):
            inner = self.name_of(node.args[0])
            return f"{inner}.{self.fold(node.args[1])[0]}"
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
                        else value
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
            case ast.Subscript():
                return self._subscript(node, depth)
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
        self._active.add(name)
        try:
            known = [value for expression in self._values.get(name, []) for value in self.fold(expression, depth)]
            looped = [value for iterable in self._loops.get(name, []) for value in self.elements(iterable, depth)]
        finally:
            self._active.discard(name)
        return union(known, looped) or [ANY]

    def elements(self, node: ast.expr, depth: int = 0) -> list[str]:
        """The strings that iterating over `node` may give."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return union(*(self.fold(element, depth) for element in node.elts)) if node.elts else []
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
        if isinstance(node.value, ast.Dict):
            return union(*(self.fold(value, depth) for value in node.value.values)) if node.value.values else [ANY]
        if isinstance(node.value, ast.Name):
            inner = [v for v in self._values.get(node.value.id, []) if isinstance(v, ast.Dict | ast.List | ast.Tuple)]
            items = [x for v in inner for x in (v.values if isinstance(v, ast.Dict) else v.elts)]
            return union(*(self.fold(item, depth) for item in items)) if items else [ANY]
        return [ANY]

    def _call(self, node: ast.Call, depth: int) -> list[str]:
        name = self.name_of(node.func)
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
            return [
                (f"{b}/" if b else "") + p.replace("**", "\x05").replace("*", STAR)
                for b in base
                for p in self.fold(first, depth)
            ]
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
        if last in ("open", "with_name", "with_suffix", "mkdtemp", "mktemp"):
            return self.fold(first, depth) if last == "open" and first is not None else [ANY]
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
            parts = start + [self.fold(argument, depth) for argument in node.args]
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
        if isinstance(items, ast.GeneratorExp | ast.ListComp):
            return [MADE]
        return [ANY]

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
