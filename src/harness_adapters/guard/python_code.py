"""Python code to facts, from its syntax tree: files, hosts, commands, the environment.

Code that does not parse is scanned as text. A fact needs a call (or a subscript of `os.environ`): a string that is only
printed or compared does nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from harness_adapters.guard.facts import (
    Connects,
    Creates,
    Deletes,
    Evades,
    GetsPackage,
    Lists,
    Mentions,
    Opaque,
    PathFact,
    Reads,
    SeeksSecret,
    Touches,
    UsesDataset,
    Writes,
)
from harness_adapters.guard.hosts import URL, Endpoint, endpoint, is_loopback, url_endpoints
from harness_adapters.guard.hubs import place_of
from harness_adapters.guard.machine import DATA, Run
from harness_adapters.guard.python_calls import (
    CHANGERS,
    CLIENTS,
    COPIERS,
    DELETERS,
    DOWNLOADS,
    FILE_MODULES,
    HOST_CLIENTS,
    HUB_CALLS,
    LINKERS,
    LISTERS,
    MOCKED,
    MOVERS,
    READ_CALLS,
    RUNNERS,
    SECRET_CALLS,
    SERVICES,
    TEXT_CALLS,
    TEXT_NAMES,
    WRITE_CALLS,
)
from harness_adapters.guard.python_environ import Environ
from harness_adapters.guard.python_fold import Folder, dotted
from harness_adapters.guard.python_tree import Module, Refused, parse_module
from harness_adapters.guard.values import ANY, MADE, STAR, hides, is_known


def python_facts(run: Run, code: str, *, from_file: bool = False) -> str | None:
    """Adds what the code does; what it prints, where that is a known text, else None.

    A long file of the project is honest and only scanned; no call has to hold as much code itself.
    """
    module = parse_module(code)
    if module is Refused.SYNTAX or (module is Refused.SIZE and from_file):
        _scan(run, code)
    elif isinstance(module, Refused):
        run.add(Opaque("python", "size"))
    else:
        return _Reader(run, module, offline=MOCKED.search(code) is not None, given=not from_file).read()
    return None


def _scan(run: Run, code: str) -> None:
    from harness_adapters.guard.script_text import script_facts

    script_facts(run, code, "python")


class _Reader:
    """Walks one module. `offline`: the code puts something of its own in the place of the network. `given`: it stands
    in the call itself, and not in a file of the project, which may be made to speak to a model."""

    def __init__(self, run: Run, module: Module, *, offline: bool, given: bool) -> None:
        self.run = run
        self.given = given
        self.offline = offline
        self.module = module
        self.folder = Folder(module, cwd=run.scope.cwd, home=run.machine.home, argv=run.scope.arguments)
        self.environ = Environ(run, self.folder, module.parents)
        self.printed: list[str] = []
        self.written: list[str] = []

    def read(self) -> str | None:
        imported = self.folder.imports.values()
        uses_environ = not self.module.identifiers.isdisjoint(("environ", "environb")) or "os.environ" in imported
        for node in self.module.nodes:
            match node:
                case ast.Call():
                    self._call(node)
                case ast.Attribute() | ast.Name() if uses_environ:
                    if isinstance(node.ctx, ast.Load) and self.environ.is_environ(node):
                        self.environ.use(node)
                case ast.Delete() if uses_environ:
                    for target in node.targets:
                        if isinstance(target, ast.Subscript) and self.environ.is_environ(target.value):
                            self.environ.set_variable(target.slice, [""])
                case ast.Assign():
                    self.environ.assigned(node)
                case ast.Import() | ast.ImportFrom():
                    self._imports(node)
        if self.folder.exhausted:
            self.run.add(Opaque("python", "size"))
        self._put_texts()
        text = "".join(f"{line}\n" for line in self.printed)
        return text if text and not hides(text) else None

    def _imports(self, node: ast.Import | ast.ImportFrom) -> None:
        """A module that the session has written runs when it is imported: the paths that it uses count."""
        machine = self.run.machine
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for module in modules if machine.files.contents else ():
            for path in self.run.paths(module.replace(".", "/") + ".py"):
                code = machine.files.contents.get(path)
                if not code or path in machine.imported:
                    continue
                machine.imported.add(path)
                before = len(machine.facts)
                with machine.deeper():
                    python_facts(self.run, code, from_file=True)
                machine.keep(before, PathFact)

    def _put_texts(self) -> None:
        """What the code may put into the files that it writes: its texts, without asking which goes where."""
        written = [path for path in self.written if is_known(path.rpartition("/")[2])]
        if not written:
            return
        wordy = [text for text in self.module.texts if re.search(r"\s", text.strip())]
        for path in list(dict.fromkeys(written))[:16]:
            for text in wordy[:32]:
                self.run.machine.put("python", path, text)

    # -- calls --------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> None:
        name = self.folder.name_of(node.func)
        last = name.rpartition(".")[2]
        if last == "print" and node.args:
            self.printed.append(" ".join(self.folder.fold(argument)[0] for argument in node.args))
        if name in ("exec", "eval", "compile", "builtins.exec", "builtins.eval"):
            self._dynamic(node)
        elif RUNNERS.match(name):
            self._command(node, name)
        elif CLIENTS.match(name):
            self._client(node, name)
        elif HOST_CLIENTS.match(name):
            self._host_client(node, name)
        elif HUB_CALLS.search(name):
            self._hub(node, name)
        elif self.given and (hosts := [host for called, host in SERVICES if called.match(name)]):
            if not any(
                keyword.arg in ("base_url", "api_base", "http_client", "transport") for keyword in node.keywords
            ):
                self._add_host(name, hosts[0], "")
            self._urls(node, last)
        elif DOWNLOADS.match(name):
            self._add_host(name, "", "")
        elif name in ("os.kill", "os.killpg") and self._seeks_processes():
            self.run.add(Evades(name, "ends whatever process it finds"))
        elif SECRET_CALLS.search(name):
            self.run.add(SeeksSecret(name, last))
        elif name.endswith("chdir") and node.args:
            self.run.scope.cwds = tuple(p for value in self.folder.fold(node.args[0]) for p in self.run.paths(value))
            self.folder.cwd = self.run.scope.cwd
        elif name.startswith("inspect.getsource") and node.args:
            self._source(node.args[0])
        elif name.startswith("sys.path."):
            for _, values in self._arguments(node):
                self._path(Mentions, [value for value in values if value.startswith("/")], name)
        elif name in ("glob.glob", "glob.iglob") and node.args:
            self._path(Lists, self.folder.fold(node), name)
        else:
            self._paths(node, name, last)
            self._urls(node, last)
        self.environ.call(node, name, last)

    def _source(self, thing: ast.expr) -> None:
        """The source of a module: outside the project's folder it is that of the installed package."""
        work = self.run.machine.cwd
        if not any(cwd == work or cwd.startswith(work + "/") for cwd in self.run.scope.cwds):
            self.run.add(GetsPackage("inspect", self.folder.name_of(thing).partition(".")[0], True))

    def _arguments(self, node: ast.Call) -> Iterator[tuple[str, list[str]]]:
        for argument in node.args:
            yield "", self.folder.fold(argument)
        for keyword in node.keywords:
            yield keyword.arg or "", self.folder.fold(keyword.value)

    def _dynamic(self, node: ast.Call) -> None:
        for value in self.folder.fold(node.args[0] if node.args else None):
            if MADE in value:
                self.run.add(Opaque("exec", "code"))
            elif is_known(value):
                with self.run.machine.deeper():
                    python_facts(self.run, value)

    def _command(self, node: ast.Call, name: str) -> None:
        first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg in ("args", "cmd")), None)
        scope = self.run.scope.fork()
        for keyword in node.keywords:
            if keyword.arg == "cwd":
                scope.cwds = tuple(p for value in self.folder.fold(keyword.value) for p in self.run.paths(value))
        vector = self.folder.vector(first)
        if vector is not None:
            self.run.shell.command([self.folder.fold(e)[0] for e in vector], scope, DATA)
        elif re.search(r"\.(exec|spawn)[lv]", name) or name.endswith("create_subprocess_exec"):
            words = [
                value
                for argument in node.args
                for value in (
                    self.folder.elements(argument)
                    if isinstance(argument, ast.List | ast.Tuple)
                    else self.folder.fold(argument)
                )
            ]
            self.run.shell.command(words, scope, DATA)
        else:
            for value in self.folder.fold(first):
                if MADE in value:
                    self.run.add(Opaque(name, "program"))
                elif value.strip(ANY):
                    self.run.shell.script(value.replace(ANY, "''"), scope, DATA)

    def _client(self, node: ast.Call, name: str) -> None:
        position = 1 if name.endswith((".request", ".stream")) and not name.startswith("urllib.request") else 0
        argument = (
            node.args[position]
            if len(node.args) > position
            else next((k.value for k in node.keywords if k.arg == "url"), None)
        )
        for value in self.folder.fold(argument):
            ends = url_endpoints(value)
            for end in ends:
                self._add_host(name, end.host, end.port)
            if not ends and not value.startswith(("/", "file:")):
                inner = argument.args[0] if isinstance(argument, ast.Call) and argument.args else None
                if not (
                    inner is not None
                    and "Request"
                    in dotted(argument.func if isinstance(argument, ast.Call) else argument or ast.Constant(""))
                ):
                    for end in self._own_servers() if value == ANY else [Endpoint("")]:
                        self._add_host(name, end.host, end.port)
            elif value.startswith("file:"):
                self._path(Reads, [value], name)
        if name.endswith("urlretrieve") and len(node.args) > 1:
            self._path(Creates, self.folder.fold(node.args[1]), name)

    def _seeks_processes(self) -> bool:
        """Whether the code goes through the machine's processes."""
        if not self.module.identifiers.isdisjoint(("process_iter", "pids")):
            return True
        return any(text.startswith("/proc") for text in self.module.texts)

    def _own_servers(self) -> list[Endpoint]:
        """Where the code gets an address from data: the machine's own servers, if its texts name no other address."""
        ends = [end for text in self.module.texts for end in url_endpoints(text)]
        own = bool(ends) and all(is_loopback(end.host) and end.port.isdigit() for end in ends)
        return ends if own else [Endpoint("")]

    def _host_client(self, node: ast.Call, name: str) -> None:
        if not node.args and not node.keywords:
            return
        first = node.args[0] if node.args else node.keywords[0].value
        if name.endswith("sendto") and len(node.args) > 1:
            first = node.args[-1]
        port = ""
        if isinstance(first, ast.Tuple) and first.elts:
            port = self.folder.fold(first.elts[1])[0] if len(first.elts) > 1 else ""
            first = first.elts[0]
        elif len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            port = self.folder.fold(node.args[1])[0]
        for value in self.folder.fold(first):
            if value.startswith("/"):
                continue
            end = (url_endpoints(value) or [endpoint(value)])[0]
            self._add_host(name, end.host, end.port or (port if port.isdigit() else ""))

    def _hub(self, node: ast.Call, name: str) -> None:
        values = [value for _, found in self._arguments(node) for value in found]
        local_kinds = ("csv", "json", "parquet", "text", "imagefolder", "pandas", "arrow")
        if values and values[0] in local_kinds and not any("://" in value for value in values):
            return
        if values and values[0].startswith(("/", "./")):
            return
        for value in values:
            self.run.add(UsesDataset(name, value))
        host = "kaggle.com" if "kaggle" in name or "competition" in name else "huggingface.co"
        self._add_host(name, place_of(host, values[0] if values else ""), "")

    def _add_host(self, name: str, host: str, port: str) -> None:
        if not self.offline:
            self.run.add(Connects(name, host, port))

    # -- files --------------------------------------------------------------------------------------------------

    def _path(self, kind: type[PathFact], values: list[str], name: str, *, deep: bool = False) -> None:
        for value in values:
            if value and "\n" not in value and len(value) < 1024 and "://" not in value.removeprefix("file://"):
                if MADE in value and kind in (Creates, Writes):
                    self.run.add(Opaque(name, "path"))
                for path in self.run.paths(value):
                    self.run.add(kind(name, path, deep))
                    if kind in (Creates, Writes):
                        self.written.append(path)

    def _paths(self, node: ast.Call, name: str, last: str) -> None:
        receiver = self.folder.fold(node.func.value) if isinstance(node.func, ast.Attribute) else []
        module = name.rpartition(".")[0]
        on_module = module in FILE_MODULES
        own = [] if on_module else receiver
        arguments = [self.folder.fold(argument) for argument in node.args]
        first = arguments[0] if arguments else []
        if last == "open" and (on_module or "." not in name or own != [ANY]):
            self._open(
                node, name, own if own and "." in name and not on_module else first, method=bool(own) and "." in name
            )
        elif last in DELETERS:
            self._path(Deletes, (first if on_module or "." not in name else own), name, deep=True)
        elif last in MOVERS and (on_module or own != [ANY]) and len(arguments) < 3:
            sources, targets = (
                (first, arguments[1] if len(arguments) > 1 else []) if on_module or len(arguments) > 1 else (own, first)
            )
            if not (last == "replace" and len(arguments) == 2 and not on_module):
                self._path(Deletes, sources, name)
                self._path(Creates, targets, name)
        elif last in COPIERS and on_module:
            self._path(Reads, first, name, deep=last == "copytree")
            targets = arguments[1] if len(arguments) > 1 else []
            for old, new in zip(first, targets, strict=False):
                if is_known(old) and is_known(new):
                    self.run.machine.copied(name, self.run.paths(old)[-1], self.run.paths(new)[-1])
            self._path(
                Creates,
                [*targets, *(f"{t}/{s.rpartition('/')[2].replace(STAR, ANY)}" for t in targets for s in first)],
                name,
            )
        elif last in LINKERS:
            source, link = (first, arguments[1] if len(arguments) > 1 else []) if on_module else (first, own)
            self._path(Reads, source, name)
            self._path(Creates, link, name)
            self._link(source, link)
        elif last in CHANGERS:
            targets = first if on_module else own
            self._path(Creates if last in ("write_text", "write_bytes") else Writes, targets, name)
            if last == "write_text" and targets and arguments and is_known(first[0]):
                for path in self.run.paths(targets[0]):
                    self.run.machine.files.write(path, first[0])
                    self.run.machine.put(name, path, first[0])
        elif last == "walk" and first == ["/"] and self._opens_found():
            self._path(Reads, first, name, deep=True)
        elif last in LISTERS:
            self._path(Lists, first if on_module else own, name, deep=last == "walk" and first != ["/"])
        elif last in ("read_text", "read_bytes"):
            self._path(Reads, own, name)
        elif last == "extract" and "file." in name:
            self._extracted(node, arguments, name)
        elif name == "fileinput.input":
            in_place = any(k.arg == "inplace" for k in node.keywords)
            self._path(Writes if in_place else Reads, first, name)
        else:
            self._other_call(node, name, last)

    def _open(self, node: ast.Call, name: str, values: list[str], *, method: bool) -> None:
        position = 0 if method else 1
        mode_node = (
            node.args[position]
            if len(node.args) > position
            else next((k.value for k in node.keywords if k.arg in ("mode", "flags")), None)
        )
        if name == "os.open":
            flags = ast.dump(mode_node) if mode_node is not None else ""
            self._path(Writes if re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)", flags) else Reads, values, name)
            return
        modes = self.folder.fold(mode_node) if mode_node is not None else ["r"]
        writes = any(letter in mode for mode in modes for letter in "wax+")
        if writes:
            self._path(Creates if all("w" in m or "x" in m for m in modes) else Writes, values, name)
        elif any(hides(mode) for mode in modes):
            self._path(Touches, values, name)
        else:
            self._path(Reads, values, name)

    def _opens_found(self) -> bool:
        """Whether the code opens files whose names it does not hold."""
        calls = (node for node in self.module.nodes if isinstance(node, ast.Call))
        opens = (node for node in calls if dotted(node.func).rpartition(".")[2] in ("open", "read_text", "read_bytes"))
        return any(not (node.args and isinstance(node.args[0], ast.Constant)) for node in opens)

    def _extracted(self, node: ast.Call, arguments: list[list[str]], name: str) -> None:
        """A member of an archive, under the name that the code may have given to it before."""
        folders = [self.folder.fold(k.value) for k in node.keywords if k.arg == "path"] or arguments[1:2] or [["."]]
        given = [
            value
            for other in self.module.nodes
            if isinstance(other, ast.Assign)
            and any(
                isinstance(target, ast.Attribute) and target.attr in ("filename", "name") for target in other.targets
            )
            for value in self.folder.fold(other.value)
        ]
        members = [value for value in [*(arguments[0] if arguments else []), *given] if value != ANY]
        self._path(Creates, [f"{folder}/{member}" for folder in folders[0] for member in members], name)

    def _link(self, sources: list[str], links: list[str]) -> None:
        for source, link in zip(sources, links, strict=False):
            target, name = self.run.paths(source)[-1], self.run.paths(link)[-1]
            if is_known(target) and is_known(name) and target != name:
                self.run.machine.files.links[name] = target

    def _other_call(self, node: ast.Call, name: str, last: str) -> None:
        """A function that is not known: its name says whether a path in its arguments is read or written."""
        if last in TEXT_CALLS:
            return
        kind: type[PathFact] = Writes if WRITE_CALLS.match(last) else Reads if READ_CALLS.match(last) else Mentions
        for _, values in self._arguments(node):
            for value in values:
                if _is_path_text(value):
                    self._path(kind, [value], name)

    def _urls(self, node: ast.Call, last: str) -> None:
        """A whole URL given to a function that does not treat it as text is fetched."""
        if last in TEXT_CALLS or last == "Request" or TEXT_NAMES.match(last):
            return
        for _, values in self._arguments(node):
            for value in values:
                if URL.match(value) and " " not in value and not value.startswith("sqlite:"):
                    for end in url_endpoints(value):
                        self._add_host(last, end.host, end.port)


def _is_path_text(value: str) -> bool:
    return is_known(value) and bool(re.fullmatch(r"[~./\w][\w./~@+-]*", value)) and ("/" in value or "." in value)
