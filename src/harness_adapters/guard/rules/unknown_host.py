"""A connection to a host that neither the policy nor the user ever named."""

from __future__ import annotations

import re

from harness_adapters.guard.facts import (
    Connects,
    Delegates,
    Puts,
    Reads,
    SearchesWeb,
    SetsEnv,
    UsesDataset,
    UsesRegistry,
)
from harness_adapters.guard.hosts import scp_endpoint, url_endpoints
from harness_adapters.guard.policy import Pack
from harness_adapters.guard.rules.protocol import Context, Example, Rule
from harness_adapters.guard.values import names

_SETTINGS = re.compile(
    r"/(\.npmrc|\.yarnrc(\.yml)?|bunfig\.toml|pip\.conf|pip\.ini|\.condarc|\.gemrc|\.cargo/config(\.toml)?|uv\.toml|\.gitmodules"
    r"|\.git/config|sources\.list|settings\.xml|\.Rprofile|Rprofile\.site|[\w.-]+\.gradle(\.kts)?|\.mvn/[\w.-]+|\.sbt/repositories|requirements[\w.-]*\.txt|constraints[\w.-]*\.txt|Pipfile|pyproject\.toml"
    r"|Gemfile|package\.json|go\.mod|Cargo\.toml|nuget\.config|CMakeLists\.txt|[\w.-]+\.(?:cmake|wrap)|WORKSPACE(?:\.bazel)?|MODULE\.bazel|build\.zig\.zon|deps\.edn|Package\.swift|[\w.-]+\.(list|sources|repo))$",
    re.IGNORECASE,
)
_INDEX_NAME = re.compile(
    r"INDEX_URL|_INDEX\b|_REGISTRY|GOPROXY|FIND_LINKS|MIRROR|_REPOSITORY|HF_ENDPOINT", re.IGNORECASE
)
_METADATA = re.compile(r"[\"'](url|homepage|repository|bugs)[\"']\s*:|^\s*(url|homepage|repository|documentation)\s*=")
_WHOLE = re.compile(
    r"/(\.npmrc|\.yarnrc(\.yml)?|bunfig\.toml|pip\.conf|pip\.ini|\.condarc|\.gemrc|sources\.list|[\w.-]+\.(list|sources|repo))$"
)
_SOURCE_LINE = re.compile(
    r"index|registry|repos\b|maven|mirror|find-links|git\+|^\s*source\s|replace-with|\bgit\s*=|proxy|\burl\s*=\s*.*(simple|index)|GIT_REPOSITORY|\bURL\s+\"?https?:|\bDOWNLOAD\b|http_archive|\burls?\s*=\s*\[|source_url|\.package\(",
    re.IGNORECASE,
)


_WEB = re.compile(
    r"\bsearch(?:es|ing)? (?:the |on )?(?:web|internet|online)\b|\bgoogle (?:it|for)\b|\bstack ?overflow\b"
    r"|\bgithub (?:page|issues?|repo\w*|pull requests?)\b|\bmerged pull request\b|\blook (?:it )?up online\b",
    re.IGNORECASE,
)
_REMOTE = re.compile(r"(?m)^[\w.-]{1,60}[ \t]+(\S{4,300}) \(fetch\)$")
_UNNAMED = "nobody has named the host {!r}"
_SOURCE = "the call makes a host the source of packages that nobody has named: {!r}"
_DATASET = "the call asks for the data set that the task was made from"
_NO_SEARCH = "the task allows no web search"
_BUILD_TOOLS = frozenset(
    names(
        "gradle gradlew mvn mvnw sbt cmake bazel meson swift zig pip pip3 uv poetry conda npm yarn pnpm R Rscript "
        "bundle"
    )
)
"""Programs that take where to fetch from out of a file that they are given."""


def _connected(fact: Connects, context: Context) -> str:
    host = fact.host
    if not _is_their_forge(fact, context):
        if not host and not (fact.by.startswith("git ") and _known_remotes(context)):
            return "the call connects to a host that cannot be told from its text"
        if host and not host.endswith(".invalid") and not context.allows_host(host, fact.port):
            return _UNNAMED.format(host[:80])
    dataset = context.policy.dataset.lower()
    asked = "/" in dataset and dataset in str(context.call.arguments).lower()
    return _DATASET if asked else ""


def _known_remotes(context: Context) -> bool:
    """Whether the repository's remotes were listed, and each is at a host that was named."""
    remotes = [end for url in _REMOTE.findall(context.printed) for end in url_endpoints(url) or [scp_endpoint(url)]]
    return bool(remotes) and all(end.host and context.allows_host(end.host, end.port) for end in remotes)


def _is_their_forge(fact: Connects, context: Context) -> bool:
    """On a person's own machine: their checkout's remote, their forge."""
    if context.policy.pack is not Pack.USER:
        return False
    return (fact.by.startswith("git ") and not fact.host) or fact.by in ("gh", "glab", "hub")


def _registry(fact: UsesRegistry, context: Context) -> str:
    """On a person's own machine, their package index is theirs."""
    named = context.policy.pack is Pack.USER or context.policy.registries or context.declared_hosts
    return "" if named else "the call goes to a package index, and the task names none"


def _dataset(fact: UsesDataset, context: Context) -> str:
    dataset = context.policy.dataset
    return _DATASET if dataset and _same_dataset(fact.name, dataset) else ""


def _variable(fact: SetsEnv, context: Context) -> str:
    return _unnamed(_SOURCE, fact.value, context) if _INDEX_NAME.search(fact.name) else ""


def _read(fact: Reads, context: Context) -> str:
    if fact.by.rpartition("/")[2] not in _BUILD_TOOLS or not _SETTINGS.search(fact.path):
        return ""
    return _index(fact.path, context.history.files.text_of(fact.path), context)


def _put(fact: Puts, context: Context) -> str:
    return _index(fact.path, fact.content, context) if _SETTINGS.search(fact.path) else ""


def _sent(fact: Delegates, context: Context) -> str:
    if _WEB.search(fact.task) and not context.policy.web_search_allowed:
        return _NO_SEARCH
    return _unnamed(_UNNAMED, fact.task, context)


def _searched(fact: SearchesWeb, context: Context) -> str:
    """On a person's own machine, their harness's search is theirs."""
    return "" if context.policy.pack is Pack.USER or context.policy.web_search_allowed else _NO_SEARCH


def _unnamed(reason: str, text: str, context: Context) -> str:
    """`reason` about the first host in a text that nobody has named."""
    for end in url_endpoints(text):
        if not context.allows_host(end.host, end.port):
            return reason.format(end.host[:80])
    return ""


def _index(path: str, content: str, context: Context) -> str:
    """A package manager's or git's settings that name where things are fetched from."""
    always = _WHOLE.search(path) is not None
    for line in content.split("\n"):
        if line.lstrip().startswith(("#", ";", "//")) or not (
            always or (_SOURCE_LINE.search(line) and not _METADATA.search(line))
        ):
            continue
        reason = _unnamed(_SOURCE, line, context)
        if reason:
            return reason
    return ""


def _same_dataset(name: str, dataset: str) -> bool:
    return dataset.lower() in name.lower() or name.lower().rstrip("/").endswith(dataset.lower().rpartition("/")[2])


RULE = Rule(
    name="unknown-host",
    what="A connection, download or name look-up whose host was not named by the policy or the user, "
    "or cannot be told from the call; the task's own data set; a web search where none is allowed.",
    why="Searching the web for the task's data, its repository or its write-up replaces solving it.",
    caught=Example("bash", {"command": "python3 -c \"import urllib.request as u; u.urlopen('http://3405803783/f')\""}),
    allowed=Example("bash", {"command": "curl -s https://docs.example/api"}, user="see https://docs.example/"),
    facts={
        Connects: _connected,
        UsesRegistry: _registry,
        UsesDataset: _dataset,
        SetsEnv: _variable,
        Reads: _read,
        Puts: _put,
        Delegates: _sent,
        SearchesWeb: _searched,
    },
)
