"""Secrets out of a record before it is written: the person's own live ones and all known kinds.

Asymmetry: paths, names and addresses stay, unlike in scrubbed sessions: a log of one's own must still say what was
touched. Keys of objects stay as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness_adapters.scrub.finding import RuleFinder, disjoint
from harness_adapters.scrub.own_secrets import OwnSecretFinder, live_secrets
from harness_adapters.scrub.rules import RULES


class Redactor:
    """Replaces secrets by their kind, `<kind>`."""

    def __init__(self, own: Mapping[bytes, str]) -> None:
        self._own = OwnSecretFinder(own)
        self._rules = RuleFinder(RULES)

    def text(self, text: str) -> str:
        """`text` without secrets; the same object where it holds none."""
        raw = text.encode("utf-8", "surrogatepass")
        spans = disjoint((self._own.spans(raw), self._rules.spans(raw)))
        if not spans:
            return text
        pieces: list[bytes] = []
        position = 0
        for span in spans:
            pieces += [raw[position : span.start], f"<{span.kind}>".encode()]
            position = span.end
        return b"".join([*pieces, raw[position:]]).decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """A JSON-like value with every string in it redacted; mappings become `dict`, sequences `list`."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value


@cache
def secrets_redactor() -> Redactor:
    """The redactor for this process: with the secrets of its environment and its user's files as they are now."""
    return Redactor(live_secrets(os.environ, Path.home()))
