"""Which names of a Python module are bound to what: imports, assignments, loops, parameters, functions.

Asymmetry: order and scope are left out; a name has every value that it is given anywhere in the module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

_BIND_NOTHING = frozenset({ast.Name, ast.Constant, ast.Attribute, ast.Expr, ast.keyword, ast.Subscript, ast.BinOp})


class Bindings:
    """The bindings in a module's nodes; not changed once they are collected."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self.imports: dict[str, str] = {}
        self.values: dict[str, list[ast.expr]] = {}
        self.loops: dict[str, list[ast.expr]] = {}
        self.chosen: set[str] = set()
        """Loop variables that do not stand for tests: the loop leaves them out."""
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._collect(nodes)

    def _collect(self, nodes: Iterable[ast.AST]) -> None:
        calls: list[ast.Call] = []
        for node in nodes:
            if type(node) in _BIND_NOTHING:
                continue
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
                        self.loops.setdefault(node.target.id, []).append(node.iter)
                        if _leaves_tests_out(node):
                            self.chosen.add(node.target.id)
                case ast.withitem(optional_vars=ast.Name(id=name), context_expr=value):
                    self.values.setdefault(name, []).append(value)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.functions[node.name] = node
                case ast.Call():
                    calls.append(node)
        for call in calls:
            self._bind_parameters(call)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.values.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, its_value in zip(target.elts, value.elts, strict=False):
                self._bind(one, its_value)

    def _bind_parameters(self, call: ast.Call) -> None:
        function = self.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if function is None:
            return
        names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        for name, value in zip(names, call.args, strict=False):
            self.values.setdefault(name, []).append(value)
        for keyword in call.keywords:
            if keyword.arg:
                self.values.setdefault(keyword.arg, []).append(keyword.value)


_TESTS = re.compile(r"test|spec|fixture|golden|snap", re.IGNORECASE)


def _leaves_tests_out(loop: ast.For | ast.AsyncFor | ast.comprehension) -> bool:
    """Whether a loop goes on to the next item where a text that names tests is found in this one."""
    if isinstance(loop, ast.comprehension):
        conditions = [test for test in loop.ifs if _is_negated(test)]
    else:
        skips = (node for node in loop.body if isinstance(node, ast.If) and isinstance(node.body[0], ast.Continue))
        conditions = [node.test for node in skips if not _is_negated(node.test)]
    texts = (inner.value for test in conditions for inner in ast.walk(test) if isinstance(inner, ast.Constant))
    return any(isinstance(text, str) and _TESTS.search(text) for text in texts)


def _is_negated(test: ast.expr) -> bool:
    return any(isinstance(inner, ast.Not | ast.NotIn | ast.NotEq) for inner in ast.walk(test))
