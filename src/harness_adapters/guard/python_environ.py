"""What Python code does with the environment: variables read, set or shown, and proxies left out."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from harness_adapters.guard.facts import DumpsEnv, Evades, ReadsEnv, SetsEnv
from harness_adapters.guard.machine import Run
from harness_adapters.guard.python_fold import Folder, dotted

_ENVIRON = ("os.environ", "environ", "os.environb")


class Environ:
    """Finds uses of `os.environ` and of proxy settings in one module."""

    def __init__(self, run: Run, folder: Folder, parents: Mapping[ast.AST, ast.AST]) -> None:
        self._run = run
        self._folder = folder
        self._parents = parents

    def is_environ(self, node: ast.expr) -> bool:
        name = dotted(node)
        told = name in _ENVIRON or self._folder.imports.get(name) in _ENVIRON
        return told and not isinstance(node, ast.Call) and self._folder.name_of(node) in _ENVIRON

    def set_variable(self, key: ast.expr, values: list[str]) -> None:
        for name in self._folder.fold(key):
            for value in values:
                self._run.add(SetsEnv("os.environ", name, value))

    def use(self, node: ast.expr) -> None:
        """What is done with `os.environ`: one name is read or set, or all of it is shown."""
        parent = self._parents.get(node)
        match parent:
            case ast.Subscript(ctx=ast.Load()) if parent.value is node:
                self._read_env(parent.slice)
            case ast.Subscript(ctx=ast.Store()) if parent.value is node:
                owner = self._parents.get(parent)
                value = owner.value if isinstance(owner, ast.Assign) else None
                self.set_variable(parent.slice, self._folder.fold(value))
            case ast.Attribute(attr=attribute):
                self._method(parent, attribute)
            case ast.comprehension() | ast.For() | ast.FormattedValue():
                self._run.add(DumpsEnv("os.environ"))
            case ast.Call(func=function):
                if dotted(function).rpartition(".")[2] in (
                    "print",
                    "str",
                    "repr",
                    "list",
                    "sorted",
                    "dumps",
                    "pprint",
                    "write",
                    "format",
                    "items",
                    "dump",
                ) or (dotted(function) == "dict" and self._is_shown(parent)):
                    self._run.add(DumpsEnv("os.environ"))

    def _method(self, parent: ast.Attribute, attribute: str) -> None:
        call = self._parents.get(parent)
        arguments = call.args if isinstance(call, ast.Call) and call.func is parent else []
        if attribute in ("get", "pop", "setdefault") and arguments:
            if attribute == "get":
                self._read_env(arguments[0])
            else:
                self.set_variable(arguments[0], [""] if attribute == "pop" else self._folder.fold(arguments[-1]))
        elif attribute in ("items", "values", "keys"):
            self._run.add(DumpsEnv("os.environ"))
        elif attribute == "clear":
            self._run.add(SetsEnv("os.environ", "http_proxy", ""))
        elif attribute == "update" and isinstance(call, ast.Call):
            for keyword in call.keywords:
                for value in self._folder.fold(keyword.value):
                    self._run.add(SetsEnv("os.environ", keyword.arg or "", value))
            for item in arguments:
                if isinstance(item, ast.Dict):
                    for name, value_node in zip(item.keys, item.values, strict=False):
                        if name is not None:
                            self.set_variable(name, self._folder.fold(value_node))
        elif attribute == "copy" and isinstance(call, ast.Call) and self._is_shown(call):
            self._run.add(DumpsEnv("os.environ"))

    def _is_shown(self, node: ast.AST) -> bool:
        parent = self._parents.get(node)
        return isinstance(parent, ast.Call) and dotted(parent.func).rpartition(".")[2] in (
            "print",
            "dumps",
            "pprint",
            "str",
            "repr",
            "dump",
            "write",
        )

    def _read_env(self, key: ast.expr) -> None:
        for name in self._folder.fold(key):
            self._run.add(ReadsEnv("os.environ", name))

    def call(self, node: ast.Call, name: str, last: str) -> None:
        if last == "in_dll" and any(
            "environ" in value for value in self._folder.fold(node.args[-1] if node.args else None)
        ):
            self._run.add(DumpsEnv(name))
        if last == "getenv" and node.args:
            self._read_env(node.args[0])
        elif last in ("putenv", "unsetenv") and node.args:
            self.set_variable(node.args[0], self._folder.fold(node.args[1]) if len(node.args) > 1 else [""])
        elif last == "ProxyHandler":
            self._proxies(node.args[0] if node.args else None)
        for keyword in node.keywords:
            if keyword.arg == "proxies":
                self._proxies(keyword.value)
            elif keyword.arg == "trust_env" and isinstance(keyword.value, ast.Constant) and not keyword.value.value:
                self._run.add(Evades(name, "ignores the proxy environment"))

    def _proxies(self, value: ast.expr | None) -> None:
        if isinstance(value, ast.Dict):
            values = [v for item in value.values for v in self._folder.fold(item)] or [""]
            for item in values:
                self._run.add(SetsEnv("proxies", "http_proxy", "" if item == "None" else item))
        elif value is not None:
            self._run.add(SetsEnv("proxies", "http_proxy", self._folder.fold(value)[0]))

    def assigned(self, node: ast.Assign) -> None:
        for target in node.targets:
            if (
                isinstance(target, ast.Attribute)
                and target.attr == "trust_env"
                and isinstance(node.value, ast.Constant)
                and not node.value.value
            ):
                self._run.add(Evades("trust_env", "ignores the proxy environment"))
            elif isinstance(target, ast.Attribute) and target.attr == "proxies":
                self._proxies(node.value)
