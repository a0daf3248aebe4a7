"""An abstract shell: walks a syntax tree and adds to the machine what running it would do.

It keeps what can be known (variables, folder, functions, files written) and says "unknown" for the rest. Both sides of
every branch are walked, loop bodies once for each known value.

Traps of the grammar that are minded here: `a && b > f` hangs the redirect on the whole list, yet it belongs to `b`,
after `a` has changed folder; `cat <<E | sh` nests the rest of the pipeline inside the here-document; `cat 2> f g` takes
`g` for a second target of the redirect, yet it is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness_adapters.guard import programs
from harness_adapters.guard.facts import DumpsEnv, Lists, Mentions, Opaque, ReadsEnv, SetsEnv, Shadows
from harness_adapters.guard.machine import DATA, NOTHING, Machine, Output, Run, Scope
from harness_adapters.guard.redirects import Redirects, Targets
from harness_adapters.guard.syntax import MAX_TEXT, Node, Source, parse, plain_words
from harness_adapters.guard.values import ANY, is_known, names
from harness_adapters.guard.words import Words, as_shell_text

_COMMANDS = frozenset(
    names(
        "command list pipeline redirected_statement subshell compound_statement if_statement "
        "while_statement for_statement c_style_for_statement case_statement function_definition "
        "negated_command test_command declaration_command unset_command variable_assignment "
        "variable_assignments do_group elif_clause else_clause case_item ERROR"
    )
)
_REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")


_RUN_LATER = frozenset(
    names("PROMPT_COMMAND PS4 BASH_ENV PAGER GIT_PAGER MANPAGER LESSOPEN GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_EDITOR")
)
"""Variables whose value some shell or program runs."""


class Shell:
    """Implements `machine.Interpreter` over tree-sitter-bash."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._words = Words(machine, self._substitute)
        self._redirects = Redirects(machine, self._words)

    def script(self, text: str, scope: Scope, stdin: Output = NOTHING) -> Output:
        """Run a shell text in `scope`; its output. A text over the limits is one `Opaque(size)` fact."""
        with self.machine.deeper():
            text = as_shell_text(text)
            self.machine.spend_text(min(len(text), MAX_TEXT))
            words = plain_words(text)
            if words is not None:
                return self._sink(self.command(words, scope, stdin))
            source = parse(text)
            if source is None:
                self.machine.add(Opaque("shell text over the limits", "size"))
                return DATA
            return self._all(source.root.children, source, scope, stdin)

    def command(self, words: Sequence[str], scope: Scope, stdin: Output = NOTHING) -> Output:
        """Run one simple command, already expanded."""
        self.machine.spend_command(len(words))
        if not words:
            return NOTHING
        first, args = words[0], list(words[1:])
        body = scope.functions.get(first)
        if body is not None:
            return self._function(body, args, scope, stdin)
        alias = scope.aliases.get(first)
        if alias is not None:
            inner = scope.fork()
            inner.aliases.pop(first, None)
            return self.script(" ".join([alias, *(f"'{a}'" for a in args if "'" not in a)]), inner, stdin)
        return programs.run(Run(self, scope, first, args, stdin))

    def _function(self, body: tuple[bytes, object], args: list[str], scope: Scope, stdin: Output) -> Output:
        inner = scope.fork()
        inner.arguments = args
        text = body[0].decode("utf-8", "replace")
        output = self.script(text, inner, stdin)
        scope.merge(inner)
        return output

    # -- statements ---------------------------------------------------------------------------------------------

    def _all(self, nodes: Sequence[Node], source: Source, scope: Scope, stdin: Output) -> Output:
        """Statements in order; what they print is joined."""
        outputs = [self._sink(self._statement(node, source, scope, stdin)) for node in nodes if node.type in _COMMANDS]
        return _joined(outputs)

    def _sink(self, output: Output) -> Output:
        """Output that nobody filters any more: a dump of the environment is now seen."""
        if output.env:
            self.machine.add(DumpsEnv("env"))
        return Output(output.text, False, output.net, output.plain)

    def _statement(self, node: Node, source: Source, scope: Scope, stdin: Output) -> Output:
        with self.machine.deeper():
            return self._dispatch(node, source, scope, stdin)

    def _dispatch(self, node: Node, source: Source, scope: Scope, stdin: Output) -> Output:
        match node.type:
            case "command":
                return self._simple(node, source, scope, stdin)
            case "list":
                return self._list(node, source, scope, stdin, [])
            case "pipeline":
                return self._pipeline(_stages(node), source, scope, stdin)
            case "redirected_statement":
                return self._redirected(node, source, scope, stdin)
            case "subshell":
                return self._all(node.children, source, scope.fork(), stdin)
            case "if_statement" | "case_statement" | "while_statement" | "elif_clause" | "else_clause" | "case_item":
                return self._branches(node, source, scope, stdin)
            case "for_statement":
                return self._for(node, source, scope, stdin)
            case "function_definition":
                return self._define(node, source, scope)
            case "declaration_command" | "unset_command":
                return self._declaration(node, source, scope, stdin)
            case "variable_assignment":
                self._assign(node, source, scope)
                return NOTHING
            case "test_command":
                self._test(node, source, scope)
                return NOTHING
            case _:
                return self._all(node.children, source, scope, stdin)

    def _list(self, node: Node, source: Source, scope: Scope, stdin: Output, redirects: Sequence[Node]) -> Output:
        """`a && b || c`: each in turn; what follows `||` may not run. Redirects belong to the last one."""
        parts: list[tuple[str, Node]] = []
        while node.type == "list":
            operator = next((child.type for child in node.children if not child.is_named), "&&")
            named = [child for child in node.children if child.type in _COMMANDS]
            if len(named) < 2:
                break
            parts.append((operator, named[-1]))
            node = named[0]
        outputs = [self._sink(self._statement(node, source, scope, stdin))]
        for number, (operator, part) in enumerate(reversed(parts), 1):
            inner = scope.fork() if operator == "||" else scope
            if number == len(parts) and redirects:
                outputs.append(self._with_redirects([part], redirects, source, inner, stdin))
            else:
                outputs.append(self._sink(self._statement(part, source, inner, stdin)))
            if inner is not scope:
                scope.merge(inner)
        return _joined(outputs)

    def _pipeline(self, stages: Sequence[Node], source: Source, scope: Scope, stdin: Output) -> Output:
        output = stdin
        for stage in stages:
            if output.env and stage.type not in ("command", "redirected_statement", "negated_command"):
                output = self._sink(output)
            output = self._statement(stage, source, scope.fork(), output)
        return output

    def _redirected(self, node: Node, source: Source, scope: Scope, stdin: Output) -> Output:
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        bodies = [child for child in node.children if child.type in _COMMANDS]
        if bodies and bodies[0].type == "list":
            return self._list(bodies[0], source, scope, stdin, redirects)
        return self._with_redirects(bodies, redirects, source, scope, stdin)

    def _with_redirects(
        self, bodies: Sequence[Node], redirects: Sequence[Node], source: Source, scope: Scope, stdin: Output
    ) -> Output:
        targets: Targets = []
        extra: list[str] = []
        tails: list[Node] = []
        for redirect in redirects:
            if redirect.type == "heredoc_redirect":
                stdin = self._redirects.heredoc(redirect, source, scope)
                extra += self._redirects.arguments(redirect, source, scope)
                tails.append(redirect)
                for child in redirect.children:
                    if child.type == "file_redirect":
                        stdin = self._redirects.file(child, source, scope, stdin, targets)
                        extra += self._redirects.arguments(child, source, scope)
            elif redirect.type == "herestring_redirect":
                words = [f for c in redirect.named_children for f in self._words.text(c, source, scope)]
                stdin = Output(words[0] if words else "")
            else:
                stdin = self._redirects.file(redirect, source, scope, stdin, targets)
                extra += self._redirects.arguments(redirect, source, scope)
        output = NOTHING
        for body in bodies:
            if body.type == "command" and extra:
                output = self._simple(body, source, scope, stdin, extra)
            elif body.type == "pipeline" and len(bodies) == 1:
                output = self._pipeline(_stages(body), source, scope, stdin)
            else:
                output = self._statement(body, source, scope, stdin)
        self._redirects.store(output, targets)
        if targets:
            output = self._sink(output) if output.env else output
        return self._after_heredoc(tails, source, scope, output)

    def _after_heredoc(self, redirects: Sequence[Node], source: Source, scope: Scope, output: Output) -> Output:
        """The pipeline or list that the grammar nests in a here-document."""
        for redirect in redirects:
            for child in redirect.children:
                if child.type == "pipeline":
                    output = self._pipeline(_stages(child), source, scope, output)
                elif child.type in _COMMANDS:
                    self._sink(output)
                    output = self._statement(child, source, scope, NOTHING)
        return output

    # -- compound statements ------------------------------------------------------------------------------------

    def _branches(self, node: Node, source: Source, scope: Scope, stdin: Output) -> Output:
        """Conditions and bodies alike are walked; what a body sets is added to what was set before."""
        outputs: list[Output] = []
        in_condition = node.type in ("if_statement", "elif_clause", "while_statement")
        for child in node.children:
            if child.type in ("then", "do_group"):
                in_condition = False
            if child.type in _COMMANDS:
                inner = scope if in_condition else scope.fork()
                outputs.append(self._sink(self._statement(child, source, inner, stdin)))
                if inner is not scope:
                    scope.merge(inner)
            elif child.is_named and child.type not in ("variable_name",):
                self._words.fields(child, source, scope)
        return _joined(outputs)

    def _for(self, node: Node, source: Source, scope: Scope, stdin: Output) -> Output:
        name_node = node.child_of_field("variable")
        name = source.text(name_node.start_byte, name_node.end_byte) if name_node else ""
        words = node.children_of_field("value")
        values = [field for word in words for field in self._words.fields(word, source, scope)]
        if not words:
            values = list(scope.arguments)
        outputs: list[Output] = []
        before = {key: list(value) for key, value in scope.variables.items()}
        for value in dict.fromkeys(values or [ANY]):
            scope.variables[name] = [value]
            outputs += [self._statement(c, source, scope, stdin) for c in node.children if c.type == "do_group"]
        for key, old in before.items():
            scope.variables[key] = list(dict.fromkeys(old + scope.variables.get(key, [])))[:16]
        return _joined(outputs)

    def _define(self, node: Node, source: Source, scope: Scope) -> Output:
        name_node = node.child_of_field("name")
        body = node.child_of_field("body")
        if name_node is not None and body is not None:
            name = source.text(name_node.start_byte, name_node.end_byte)
            text = source.text(body.start_byte, body.end_byte)
            scope.functions[name] = (text.encode("utf-8", "replace"), None)
            if name not in re.split(r"[^\w.+-]+", text):
                self.machine.add(Shadows("function", name, "a shell function"))
        return NOTHING

    def _test(self, node: Node, source: Source, scope: Scope) -> None:
        """`[ … ]` and `[[ … ]]`: file tests look at names; variables that are only tested are not read."""
        found_before = len(self.machine.facts)
        words: list[str] = []
        todo = list(node.named_children)
        while todo:
            child = todo.pop()
            if child.type.endswith("_expression"):
                todo.extend(child.named_children)
            elif child.type != "test_operator":
                words += self._words.fields(child, source, scope)
        self.machine.forget(found_before, ReadsEnv)
        for word in words:
            if "/" in word or "." in word:
                for cwd in scope.cwds:
                    self.machine.add(Lists("test", self.machine.path(word, cwd)))

    # -- simple commands ----------------------------------------------------------------------------------------

    def _simple(self, node: Node, source: Source, scope: Scope, stdin: Output, extra: Sequence[str] = ()) -> Output:
        word_nodes: list[Node] = []
        targets: Targets = []
        assignments: list[Node] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(child)
            elif child.type == "file_redirect":
                stdin = self._redirects.file(child, source, scope, stdin, targets)
            elif child.type == "herestring_redirect":
                texts = [f for c in child.named_children for f in self._words.text(c, source, scope)]
                stdin = Output(texts[0] if texts else "")
            elif child.type in ("subshell", "ERROR"):
                self._all(child.children, source, scope.fork(), NOTHING)
            elif child.is_named or child.type in ("$", "==", "=~", "="):
                word_nodes.append(child)
        words = self._words.all_fields(word_nodes, source, scope)
        for assignment in assignments:
            self._assign(assignment, source, scope, exported=bool(words))
        output = self.command([*words, *extra], scope, stdin)
        self._redirects.store(output, targets)
        return output

    def _assign(self, node: Node, source: Source, scope: Scope, *, exported: bool = False) -> None:
        name_node = node.child_of_field("name")
        value = node.child_of_field("value")
        if name_node is None:
            return
        name = source.text(name_node.start_byte, name_node.end_byte).partition("[")[0]
        values = self._words.text(value, source, scope) if value is not None else [""]
        appended = any(child.type == "+=" for child in node.children)
        if appended or name_node.type == "subscript" or (value is not None and value.type == "array"):
            old = scope.variables.get(name, [])
            joined = (
                [o + v for o in old for v in values]
                if appended and old and (value is None or value.type != "array")
                else []
            )
            values = list(
                dict.fromkeys([*(joined or [*(old if name_node.type == "subscript" or appended else []), *values])])
            )
        scope.variables[name] = values[:64]
        if name in _RUN_LATER:
            for item in values:
                if is_known(item) and item:
                    self.script(item, scope.fork())
        elif exported:
            for item in values:
                for path in item.split(":") if item.startswith("/") else ():
                    if is_known(path) and path.startswith("/"):
                        self.machine.add(Mentions(name, self.machine.path(path, scope.cwd)))
        if exported or _is_special(name):
            for item in values:
                self.machine.add(SetsEnv("shell", name, item))

    def _declaration(self, node: Node, source: Source, scope: Scope, stdin: Output) -> Output:
        """`export`, `declare`, `local`, `readonly`, `unset`."""
        keyword = node.children[0].type
        flags: list[str] = []
        names: list[str] = []
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self._assign(child, source, scope, exported=keyword == "export")
                names.append("=")
            elif child.is_named:
                for value in self._words.fields(child, source, scope):
                    (flags if value.startswith("-") else names).append(value)
        if keyword.startswith("unset"):
            for name in names:
                scope.variables[name] = [""]
                self.machine.add(SetsEnv("unset", name, ""))
        elif not names and (not flags or any("p" in flag or "x" in flag for flag in flags)) and keyword != "local":
            return Output(ANY, env=True)
        elif keyword == "export":
            for name in names:
                for value in scope.variables.get(name, []):
                    self.machine.add(SetsEnv("export", name, value))
        return NOTHING

    def _substitute(self, node: Node, source: Source, scope: Scope) -> str:
        """The output of `$(…)`; `$(< file)` is the file's content."""
        with self.machine.deeper():
            redirect = [child for child in node.children if child.type == "file_redirect"]
            if redirect:
                return self._redirects.file(redirect[0], source, scope, NOTHING, []).text
            return self._all(node.children, source, scope.fork(), NOTHING).text


def _is_special(name: str) -> bool:
    upper = name.upper()
    return upper.endswith(("_PROXY", "_BASE_URL"))


def _stages(node: Node) -> list[Node]:
    """The commands of a pipeline, nested pipelines flattened."""
    stages: list[Node] = []
    todo = [node]
    while todo:
        current = todo.pop()
        if current.type == "pipeline":
            todo.extend(reversed(current.children))
        elif current.type in _COMMANDS:
            stages.append(current)
    return stages


def _joined(outputs: Sequence[Output]) -> Output:
    if len(outputs) == 1:
        return outputs[0]
    return Output(
        "".join(output.text for output in outputs),
        env=any(output.env for output in outputs),
        net=any(output.net for output in outputs),
        plain=any(output.plain for output in outputs),
    )
