"""Redirects: here-documents, files read and written, and the shell's network devices."""

from __future__ import annotations

from harness_adapters.guard.facts import Connects, Creates, Opaque, Reads, Writes
from harness_adapters.guard.hosts import normalise
from harness_adapters.guard.machine import NOTHING, Machine, Output, Scope
from harness_adapters.guard.syntax import Node, Source
from harness_adapters.guard.values import ANY, MADE, is_known
from harness_adapters.guard.words import Words

Targets = list[tuple[str, bool]]
"""Paths that take the output, each with whether it is appended."""


class Redirects:
    """Evaluates redirect nodes for the shell."""

    def __init__(self, machine: Machine, words: Words) -> None:
        self._machine = machine
        self._words = words

    def heredoc(self, node: Node, source: Source, scope: Scope) -> Output:
        """The standard input that a here-document gives."""
        start = next((child for child in node.children if child.type == "heredoc_start"), None)
        body = next((child for child in node.children if child.type == "heredoc_body"), None)
        if body is None or start is None:
            return NOTHING
        quoted = any(mark in source.text(start.start_byte, start.end_byte) for mark in "'\"\\")
        whole = source.text(body.start_byte, body.end_byte)
        text = whole if quoted else self._words.body(body, source, scope)
        tabs = any(child.type == "<<-" for child in node.children)
        if tabs:
            text = "\n".join(line.lstrip("\t") for line in text.split("\n"))
        return Output(text)

    def file(self, node: Node, source: Source, scope: Scope, stdin: Output, targets: Targets) -> Output:
        """Add what one `<`, `>` or `>>` does; the standard input after it."""
        marks = "".join(child.type for child in node.children if not child.is_named)
        marks += "".join(source.text(c.start_byte, c.end_byte) for c in node.children if c.type == "ERROR")
        target = _target(node)
        if target and target[0].type == "process_substitution" and ">" not in marks:
            return Output(self._words.printed(target[0], source, scope))
        for value in self._words.all_fields(target, source, scope):
            if "/dev/tcp/" in value or "/dev/udp/" in value:
                self._device(value)
            elif not value or (value.isdigit() and "&" in marks) or value == "-":
                continue
            elif ">" in marks:
                self._output_file(value, ">>" in marks, scope, targets)
            else:
                stdin = self._input_file(value, scope)
        return stdin

    def arguments(self, node: Node, source: Source, scope: Scope) -> list[str]:
        """The words behind a redirect's target: the grammar gives them to the redirect, the shell to the command."""
        words = (
            _named(node)[len(_target(node)) :] if node.type == "file_redirect" else node.children_of_field("argument")
        )
        return self._words.all_fields(words, source, scope)

    def store(self, output: Output, targets: Targets) -> None:
        """What a command printed is now in the files its output went to."""
        for path, append in targets:
            self._machine.files.write(path, output.text if is_known(output.text) else None, append=append)
            self._machine.put(">", path, output.text)

    def _device(self, value: str) -> None:
        parts = value.split("/dev/")[1].split("/")
        host = parts[1] if len(parts) > 1 else ""
        self._machine.add(
            Connects("/dev/" + parts[0], normalise(host), parts[2] if len(parts) > 2 and parts[2].isdigit() else "")
        )

    def _output_file(self, value: str, append: bool, scope: Scope, targets: Targets) -> None:
        if MADE in value:
            self._machine.add(Opaque(">", "path"))
        for cwd in scope.cwds:
            path = self._machine.path(value, cwd)
            if path.startswith("/dev/") and "\x00" not in path:
                continue
            self._machine.add(Writes(">>", path) if append else Creates(">", path))
            targets.append((path, append))

    def _input_file(self, value: str, scope: Scope) -> Output:
        path = self._machine.path(value, scope.cwd)
        for cwd in scope.cwds:
            self._machine.add(Reads("<", self._machine.path(value, cwd)))
        content = self._machine.files.contents.get(path)
        return Output(content if content is not None else ANY, plain=content is None)


def _named(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type not in ("file_descriptor", "ERROR")]


def _target(node: Node) -> list[Node]:
    """The first word of a redirect, in the pieces in which the grammar gives it: no blank is between them."""
    named = _named(node)
    end = next((i for i in range(1, len(named)) if named[i].start_byte > named[i - 1].end_byte), len(named))
    return named[:end]
