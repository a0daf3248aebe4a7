"""Programs that build: what they fetch by the session's own build files, and (`go run`, `cargo run`, `tsx` …) what the
session's sources do that they run at once.

Asymmetry: to build or to test a source does not run what it does to the world; only running it counts here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from harness_adapters.guard.facts import Evades, Reads
from harness_adapters.guard.hosts import is_loopback
from harness_adapters.guard.machine import MAX_CONTENT, Run
from harness_adapters.guard.script_text import script_facts
from harness_adapters.guard.values import names

_RUNNERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "go": ("run", (".go",)),
    "cargo": ("run", (".rs",)),
    "dotnet": ("run", (".cs",)),
    "swift": ("run", (".swift",)),
    "zig": ("run", (".zig",)),
    "crystal": ("run", (".cr",)),
    "nim": ("r", (".nim",)),
    "dart": ("run", (".dart",)),
    "deno": ("run", (".ts", ".js")),
    "tsx": ("", (".ts", ".tsx", ".mts")),
    "ts-node": ("", (".ts", ".tsx", ".mts")),
    "java": ("", (".java",)),
}
"""Program to the sub-command that runs (none: always) and the suffixes of its sources."""
_BUILDERS = frozenset(names("cmake meson bazel bazelisk gradle gradlew mvn mvnw sbt swift zig java"))
_BUILD_FILE = re.compile(
    r"/(?:CMakeLists\.txt|[\w.-]+\.(?:cmake|wrap|gradle|gradle\.kts|sbt)|WORKSPACE(?:\.bazel)?|MODULE\.bazel|pom\.xml"
    r"|build\.zig\.zon|Package\.swift|\.mvn/settings\.xml)$"
)
_PROXY_SETTING = re.compile(
    r"-D((?:https?|socks|ftp)\.?(?:proxyHost|nonProxyHosts|proxyPort)|java\.net\.useSystemProxies)=(.*)$"
)
_MAX_FILES = 8


def run_own(run: Run) -> None:
    """Adds what the session's sources that the command runs would do, and the build files that it has changed."""
    if run.name in _BUILDERS:
        _configured(run)
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


def _configured(run: Run) -> None:
    for path in run.machine.files.changed():
        if _BUILD_FILE.search(path) and any(path.startswith(cwd.rstrip("/") + "/") for cwd in run.scope.cwds):
            run.add(Reads(run.name, path))
    for arg in run.args:
        setting = _PROXY_SETTING.match(arg)
        if setting and not (setting[2] and all(is_loopback(host.strip("*")) for host in setting[2].split("|"))):
            run.add(Evades(run.name, f"sets {setting[1]}"))


def _below(run: Run, places: list[str], suffixes: tuple[str, ...]) -> list[tuple[str, str]]:
    return [
        (path, code)
        for path, code in run.machine.files.contents.items()
        if code
        and len(code) <= MAX_CONTENT
        and path.endswith(suffixes)
        and any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
    ]
