"""Programs that build sources and run them at once (`go run`, `cargo run`, `tsx` …): the session's own are judged.

Asymmetry: to build or to test a source does not run what it does to the world; only running it counts here.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from harness_adapters.guard.machine import MAX_CONTENT, Run
from harness_adapters.guard.script_text import script_facts

_RUNNERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "go": ("run", (".go",)),
    "cargo": ("run", (".rs",)),
    "dotnet": ("run", (".cs",)),
    "swift": ("run", (".swift",)),
    "zig": ("run", (".zig",)),
    "crystal": ("run", (".cr",)),
    "dart": ("run", (".dart",)),
    "deno": ("run", (".ts", ".js")),
    "tsx": ("", (".ts", ".tsx", ".mts")),
    "ts-node": ("", (".ts", ".tsx", ".mts")),
    "java": ("", (".java",)),
}
"""Program to the sub-command that runs (none: always) and the suffixes of its sources."""
_MAX_FILES = 8


def run_own(run: Run) -> None:
    """Adds what the session's sources that the command runs would do."""
    verb, suffixes = _RUNNERS.get(run.name, ("", ()))
    if not suffixes or not run.machine.files.contents:
        return
    operands = [arg for arg in run.args if not arg.startswith("-")]
    if verb:
        if operands[:1] != [verb]:
            return
        operands = operands[1:]
    places = [path for name in operands[:1] or ["."] for path in run.paths(name)]
    if run.name in ("cargo", "dotnet"):
        places = list(run.scope.cwds)
    for path, code in islice(_below(run, places, suffixes), _MAX_FILES):
        script_facts(run, code, path)


def _below(run: Run, places: list[str], suffixes: tuple[str, ...]) -> list[tuple[str, str]]:
    return [
        (path, code)
        for path, code in run.machine.files.contents.items()
        if code
        and len(code) <= MAX_CONTENT
        and path.endswith(suffixes)
        and any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
    ]
