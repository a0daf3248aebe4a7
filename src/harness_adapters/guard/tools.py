"""A tool call to facts: by the harness's tool map where it knows the tool, by the arguments' names where not.

Arguments that no role of the map covers are judged generically too: harnesses accept aliases (`file_path` for `path`)
and repair strings into lists, so a map alone would see less than the harness does.

Invariant: nothing here raises on any arguments; what is over a budget ends as an `Opaque(size)` fact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness_adapters.guard.facts import (
    Connects,
    Creates,
    Delegates,
    Deletes,
    Fact,
    Kills,
    Lists,
    LooksUp,
    Mentions,
    Opaque,
    PathFact,
    Reads,
    SearchesWeb,
    Touches,
    Writes,
)
from harness_adapters.guard.hosts import bare_endpoint, url_endpoints
from harness_adapters.guard.hubs import changes_in
from harness_adapters.guard.machine import DATA, MAX_CONTENT, Exhausted, Machine, Run, Scope
from harness_adapters.guard.nesting import is_deep, is_wide, parse_json
from harness_adapters.guard.programs.files import added_lines, patched_paths
from harness_adapters.guard.python_code import python_facts
from harness_adapters.guard.script_text import script_facts
from harness_adapters.guard.shell import Shell
from harness_adapters.guard.values import STAR, clean, names, wild
from harness_adapters.records import Call, Effect, ToolMap

_COMMAND_KEYS = frozenset(names("command cmd commands shell script bash shell_command"))
_CODE_KEYS = frozenset(names("code source_code python"))
_PATH_KEYS = frozenset(
    names(
        "path file_path filepath file filename file_name notebook_path target target_file destination "
        "dest directory dir folder paths files old_path new_path source output output_path root "
        "relative_path absolute_path uri"
    )
)
_URL_KEYS = frozenset(names("url urls link links href uri endpoint base_url website"))
_CWD_KEYS = frozenset(names("cwd workdir working_directory working_dir workingdirectory directory_path"))
_TEXT_KEYS = frozenset(
    names(
        "content contents text new_string old_string newstring oldstring oldtext newtext edits "
        "description prompt todos message body pattern query regex thought reason title explanation "
        "new_str old_str file_text insert_text format include glob"
    )
)
_PATCH_KEYS = frozenset(names("patch diff patch_text patchtext input"))
_READ_NAMES = re.compile(r"read|view|cat|grep|glob|find|^ls$|list|search|open|show|get|fetch|inspect", re.IGNORECASE)
_LIST_NAMES = re.compile(r"glob|find|^ls$|list", re.IGNORECASE)
_WRITE_NAMES = re.compile(
    r"write|edit|patch|create|replace|insert|delete|remove|move|rename|apply|save|append|multi", re.IGNORECASE
)
_SHELL_NAMES = re.compile(r"bash|shell|terminal|command|exec|run|powershell|cmd|process", re.IGNORECASE)
_CODE_NAMES = re.compile(r"python|execute_code|code|repl|notebook|jupyter", re.IGNORECASE)
_FETCH_NAMES = re.compile(r"fetch|web|http|url|browse|extract|crawl|download|scrape|navigate", re.IGNORECASE)
_SEARCH_NAMES = re.compile(
    r"(web|internet|google|online|exa|tavily|brave)_?-?search|search_?-?(web|internet)|websearch", re.IGNORECASE
)
_DELEGATE_NAMES = re.compile(r"^(?:sub)?_?-?(?:task|agent|delegate|spawn)|delegate|subagent", re.IGNORECASE)
_ENDS = re.compile(r"(?:kill|stop|terminate|end|signal|sig(?:kill|term|stop))", re.IGNORECASE)
_SQUEEZED_PATH_KEYS = frozenset(key.replace("_", "") for key in _PATH_KEYS)
_JSON_LIST = re.compile(r"\s*\[\s*[{\"]")
_PARTIAL = re.compile(r"edit|new|old|insert|diff|patch", re.IGNORECASE)
"""Names of arguments that hold a piece of a file, not the whole of it."""
_ODD_SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_MAX_VARIABLES = 256
_MAX_STRINGS = 512
_MAX_VALUES = 4_096
_MAX_NESTING = 16


def facts_of(call: Call, tools: ToolMap, machine: Machine) -> list[Fact]:
    """Everything that the call would do, as far as its text tells; files it writes are remembered in the machine."""
    try:
        _ToolCall(call, tools, machine).read()
    except Exhausted as why:
        machine.add(Opaque(str(why), "size"))
    return machine.facts


class _ToolCall:
    def __init__(self, call: Call, tools: ToolMap, machine: Machine) -> None:
        self.name = call.name
        self.arguments = _as_object(call.arguments)
        self.effects = tools.tools.get(call.name, ())
        self.lasting = tools.lasting.get(call.name, "")
        self.machine = machine
        self.shell = Shell(machine)
        self.strings: list[tuple[str, str]] = []
        """Every string in the arguments with the name of the nearest key."""

    def read(self) -> None:
        if isinstance(self.arguments, str):
            self._raw(self.arguments)
            return
        if is_wide(self.arguments, _MAX_VALUES):
            self.machine.exhaust("too many arguments")
        for key, value in _strings(self.arguments):
            if len(self.strings) >= _MAX_STRINGS:
                self.machine.exhaust("too many arguments")
            self.strings.append((key, clean(value)))
        self._ended()
        scope = Scope((self._cwd(),))
        if self.lasting == "all":
            scope.variables = {name: list(values) for name, values in self.machine.variables.items()}
        used: set[str] = set()
        for effect in self.effects:
            used |= self._effect(effect, scope)
        if len(used) < len(self.arguments):
            used |= self._argument_vectors(used, scope)
        for key, value in self.strings:
            if key not in used:
                self._generic(key.lower(), value, scope)

    def _ended(self) -> None:
        """A process that a tool for processes is told to end."""
        assert isinstance(self.arguments, dict)
        named = [self.arguments[key] for key in ("pid", "session_id", "name") if key in self.arguments]
        if named and any(_ENDS.match(value) for key, value in self.strings if key in ("action", "signal")):
            self.machine.add(Kills(self.name, clean(str(named[0]))))

    def _argument_vectors(self, judged: set[str], scope: Scope) -> set[str]:
        """A command given as a list of its words, which no shell splits again."""
        assert isinstance(self.arguments, dict)
        found: set[str] = set()
        for key, value in self.arguments.items():
            if key in judged or key.lower().replace("-", "_") not in _COMMAND_KEYS:
                continue
            words = _words(value)
            if words:
                self.shell.command(words, scope)
                found.add(key)
        return found

    def _cwd(self) -> str:
        assert isinstance(self.arguments, dict)
        named = {effect.roles["cwd"] for effect in self.effects if "cwd" in effect.roles}
        for key, value in self.arguments.items():
            if (key.lower() in _CWD_KEYS or key in named) and isinstance(value, str) and value:
                return self.machine.path(clean(value), self.machine.cwd)
        return self.machine.resumed if self.lasting and self.machine.resumed else self.machine.cwd

    # -- by the tool map ----------------------------------------------------------------------------------------

    def _effect(self, effect: Effect, scope: Scope) -> set[str]:
        """Adds one effect's facts; the names of the arguments that it covers."""
        assert isinstance(self.arguments, dict)
        used: set[str] = set()
        texts: dict[str, list[str]] = {}
        for role, argument in effect.roles.items():
            value = self.arguments.get(argument)
            if value is None:
                continue
            used.add(argument)
            words = _words(value) if role == "command" else []
            if words:
                self.shell.command(words, scope)
            elif isinstance(value, str) and not _JSON_LIST.match(value):
                texts[role] = [clean(value)]
            else:
                texts[role] = [clean(text) for _, text in _strings({argument: value})]
        for command in texts.get("command", []):
            self._shell(command, scope)
        for patch in texts.get("patch", []):
            self._patch(patch, scope)
        for query in texts.get("query", []):
            self.machine.add(SearchesWeb(self.name, query[:200]))
        for prompt in texts.get("prompt", []):
            self._delegate(prompt)
        for code in texts.get("code", []):
            self._code(code, scope)
        for url in texts.get("url", []):
            self._url(url)
        for path in texts.get("path", []):
            partial = "content" in effect.roles and _PARTIAL.search(effect.roles["content"]) is not None
            kind = _KINDS.get(effect.kind, Touches)
            self._path(Writes if partial and kind is Creates else kind, path, scope)
            if effect.kind == "write" and not partial:
                self._remember(path, "".join(texts.get("content", [])) if "content" in texts else None, scope)
            elif effect.kind == "write":
                self._edited(path, scope)
        return used

    def _edited(self, path: str, scope: Scope) -> None:
        """Replacements in a file whose content is known; what is put in counts even where the old text is not found."""
        target = self.machine.path(_as_harnesses_read(path), scope.cwd)
        pieces = [(key.lower(), text) for key, text in self.strings]
        olds = [text for key, text in pieces if key.startswith("old")]
        news = [text for key, text in pieces if key.startswith(("new", "insert"))]
        for new in news:
            self.machine.put(self.name, target, new)
            self.machine.files.add_fragment(target, new)
        content = self.machine.files.contents.get(target)
        if content is None:
            return
        for old, new in zip(olds, news, strict=False):
            content = content.replace(old, new, 1) if old and old in content else f"{content}\n{new}"
        self.machine.files.write(target, content)

    # -- by the names of tool and argument ------------------------------------------------------------------------

    def _generic(self, key: str, value: str, scope: Scope) -> None:
        flat = key.replace("-", "_")
        if flat in _CWD_KEYS:
            self._path(Lists, value, scope)
        elif flat in _COMMAND_KEYS:
            self._shell(value, scope)
        elif flat in _CODE_KEYS and (_CODE_NAMES.search(self.name) or flat == "code"):
            self._code(value, scope)
        elif _SEARCH_NAMES.search(self.name):
            self.machine.add(SearchesWeb(self.name, value[:200]))
        elif flat in _URL_KEYS or (_FETCH_NAMES.search(self.name) and "://" in value and flat not in _TEXT_KEYS):
            self._url(value)
        elif flat in _PATCH_KEYS and ("*** " in value or "+++ " in value or "diff --git" in value):
            self._patch(value, scope)
        elif flat in _PATH_KEYS or flat.replace("_", "") in _SQUEEZED_PATH_KEYS:
            self._path(self._path_kind(flat), value, scope)
            if self._content() is None and any(key.lower().startswith("new") for key, _ in self.strings):
                self._edited(value, scope)
            else:
                self._remember(value, self._content(), scope)
        elif _DELEGATE_NAMES.search(self.name) and not self.effects:
            self._delegate(value)
        elif flat not in _TEXT_KEYS and flat.replace("_", "") not in _TEXT_KEYS:
            self._unknown_text(value, scope)

    def _path_kind(self, key: str) -> type[PathFact]:
        if _WRITE_NAMES.search(self.name):
            if re.search(r"delete|remove", self.name, re.IGNORECASE):
                return Deletes
            return Creates if self._content() is not None else Writes
        if _LIST_NAMES.search(self.name) and "grep" not in self.name:
            return Lists
        return Reads if _READ_NAMES.search(self.name) else Touches

    def _content(self) -> str | None:
        assert isinstance(self.arguments, dict)
        if not re.search(r"write|create|save", self.name, re.IGNORECASE):
            return None
        found = [
            v
            for k, v in self.arguments.items()
            if k.lower() in ("content", "contents", "file_text", "text") and isinstance(v, str)
        ]
        return clean(found[0]) if found else None

    def _unknown_text(self, value: str, scope: Scope) -> None:
        if "://" in value and " " not in value.strip():
            self._url(value)
        elif re.fullmatch(r"[~/][\w./~-]+", value):
            self._path(Touches, value, scope)
        elif _SHELL_NAMES.search(self.name) and " " in value:
            self.shell.script(value, scope)

    def _shell(self, command: str, scope: Scope) -> None:
        self.shell.script(command, scope)
        self.machine.left = scope.cwd
        if self.lasting == "all" and len(scope.variables) <= _MAX_VARIABLES:
            self.machine.variables = scope.variables

    def _patch(self, patch: str, scope: Scope) -> None:
        for path in patched_paths(patch):
            new = f"*** Add File: {path}" in patch
            self._path(Creates if new else Writes, path, scope)
        for path, added in added_lines(patch):
            target = self.machine.path(path, scope.cwd)
            self.machine.put(self.name, target, added)
            if f"*** Add File: {path}" in patch or "new file mode" in patch:
                self.machine.files.write(target, added)

    def _delegate(self, task: str) -> None:
        """Another agent is told this, and what the files that the text names hold."""
        files = self.machine.files.contents
        plans = [
            content
            for path, content in files.items()
            if content and (path in task or path.removeprefix(self.machine.cwd + "/") in task)
        ]
        self.machine.add(Delegates(self.name, "\n".join([task, *plans])[:MAX_CONTENT]))

    # -- shared ---------------------------------------------------------------------------------------------------

    def _path(self, kind: type[PathFact], value: str, scope: Scope) -> None:
        value = _as_harnesses_read(value)
        as_glob = kind is Lists or (kind is Reads and "*" in value)
        marked = wild(value) if as_glob else value
        if value and "\n" not in value and "://" not in value.removeprefix("file://"):
            deep = kind is Reads and ("grep" in self.name or "search" in self.name)
            self.machine.add(kind(self.name, self.machine.path(marked, scope.cwd), deep))

    def _remember(self, path: str, content: str | None, scope: Scope) -> None:
        if _WRITE_NAMES.search(self.name) or content is not None:
            target = self.machine.path(_as_harnesses_read(path), scope.cwd)
            self.machine.files.write(target, content)
            self.machine.put(self.name, target, content or "")

    def _url(self, value: str) -> None:
        ends = url_endpoints(value) or [bare_endpoint(value)]
        if value.startswith("file:"):
            self._path(Reads, value, Scope((self.machine.cwd,)))
            return
        for end in ends:
            self.machine.add(Connects(self.name, end.host, end.port))
        for change in changes_in(value):
            self.machine.add(LooksUp(self.name, change))

    def _code(self, code: str, scope: Scope) -> None:
        if len(code) > MAX_CONTENT:
            self.machine.add(Opaque(self.name, "size"))
            return
        run = Run(self.shell, scope, self.name, [], DATA)
        if re.search(r"javascript|node|ruby|perl", self.name):
            script_facts(run, code, self.name)
        else:
            python_facts(run, code)

    def _raw(self, text: str) -> None:
        """Arguments that are not a JSON object: a harness may repair them, so what they mention counts."""
        text = clean(text)
        for end in url_endpoints(text):
            self.machine.add(Connects(self.name, end.host, end.port))
        for path in re.findall(r"(?<![\w.])[~/][\w./~*-]{2,}", text)[:_MAX_STRINGS]:
            self.machine.add(Mentions(self.name, self.machine.path(path.replace("*", STAR), self.machine.cwd)))
        if not re.match(r"\s*\{", text) and not self.effects:
            return
        command = re.search(r"\"(?:command|cmd)\"\s*:\s*\"((?:[^\"\\]|\\.)*)", text)
        if command:
            self.shell.script(command[1].replace('\\"', '"').replace("\\n", "\n"), Scope((self.machine.cwd,)))
        write = _WRITE_NAMES.search(self.name)
        for path in re.findall(r"\"(?:path|file_?[pP]ath|file)\"\s*:\s*\"((?:[^\"\\]|\\.)*)", text):
            kind = Writes if write else Reads
            self.machine.add(kind(self.name, self.machine.path(_as_harnesses_read(path), self.machine.cwd)))


_KINDS: Mapping[str, type[PathFact]] = {"read": Reads, "write": Creates, "delete": Deletes, "list": Lists}


def _as_harnesses_read(path: str) -> str:
    """A path argument as harnesses understand it: a leading `@` marks a mention, odd Unicode spaces are spaces."""
    return _ODD_SPACES.sub(" ", path).removeprefix("@")


def _as_object(arguments: Any) -> dict[str, Any] | str:
    """Arguments as an object, or as the text that a harness would have to repair."""
    if isinstance(arguments, dict | str):
        return arguments
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if arguments is None:
        return {}
    return "" if is_deep(arguments) else str(arguments)


def _words(value: Any) -> list[str]:
    """The words of a command that is given as a list, or as JSON text of one; none where it is a text for a shell."""
    words = _opened(value) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or len(words) < 2 or not all(isinstance(word, str) for word in words):
        return []
    return [] if " " in words[0] else [clean(word) for word in words]


def _strings(value: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every string in the arguments with the name of the nearest key; a string that holds a JSON list is opened."""
    if isinstance(value, str):
        opened = _opened(value) if depth < 4 and "[" in value else None
        if opened is not None:
            yield from _strings(opened, key, depth + 1)
        else:
            yield key, value
    elif isinstance(value, dict | list | tuple):
        if depth >= _MAX_NESTING:
            raise Exhausted("arguments nested too deeply")
        for inner, item in value.items() if isinstance(value, dict) else ((key, item) for item in value):
            if isinstance(item, str | dict | list | tuple):
                yield from _strings(item, str(inner), depth + 1)


def _opened(text: str) -> Any:
    if len(text) > MAX_CONTENT or not _JSON_LIST.match(text):
        return None
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return None
