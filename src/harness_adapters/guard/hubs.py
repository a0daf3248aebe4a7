"""Hosts on which anybody publishes: naming one repository, data set or bucket there declares that one alone.

Invariant: all spellings of a place (its page, its API, its raw files, its archive, `.git`) are one string,
`host/owner/name`, so that a task that names the page allows its files.
Asymmetry: a bare hub (`hosts = ["github.com"]`, "you may use github.com") declares all of it: somebody meant that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import unquote

from publicsuffixlist import PublicSuffixList

from harness_adapters.guard.values import names

_HUBS: Mapping[str, tuple[str, str]] = {
    "github.com": ("github.com", ""),
    "www.github.com": ("github.com", ""),
    "api.github.com": ("github.com", r"(?:repos|orgs|users)/"),
    "raw.githubusercontent.com": ("github.com", ""),
    "codeload.github.com": ("github.com", ""),
    "gist.github.com": ("gist.github.com", ""),
    "gist.githubusercontent.com": ("gist.github.com", ""),
    "gitlab.com": ("gitlab.com", r"api/v\d/projects/"),
    "bitbucket.org": ("bitbucket.org", ""),
    "api.bitbucket.org": ("bitbucket.org", r"2\.0/repositories/"),
    "codeberg.org": ("codeberg.org", r"api/v1/repos/"),
    "huggingface.co": ("huggingface.co", r"(?:api/)?(?:models/|datasets/|spaces/)?"),
    "hf.co": ("huggingface.co", r"(?:api/)?(?:models/|datasets/|spaces/)?"),
    "kaggle.com": ("kaggle.com", r"(?:api/v1/)?(?:datasets/)?"),
    "www.kaggle.com": ("kaggle.com", r"(?:api/v1/)?(?:datasets/)?"),
    "hub.docker.com": ("docker.io", r"(?:v2/repositories/|r/|_/)?"),
    "docker.io": ("docker.io", ""),
    "registry-1.docker.io": ("docker.io", "v2/"),
    "s3.amazonaws.com": ("s3.amazonaws.com", ""),
    "storage.googleapis.com": ("storage.googleapis.com", r"(?:storage/v1/b/)?"),
    "zenodo.org": ("zenodo.org", r"(?:api/)?"),
}
"""Host to its one name and to what may stand before the place in a path."""

_DEEPER = frozenset({"competitions", "c", "code", "records", "record"})
_SHARED = frozenset(
    names(
        "amazonaws.com googleapis.com googleusercontent.com windows.net azureedge.net akamaized.net aliyuncs.com "
        "digitaloceanspaces.com backblazeb2.com cloudflarestorage.com wasabisys.com scw.cloud oraclecloud.com"
    )
)
"""Domains of clouds, below which customers get names, that the list of public suffixes does not hold as such."""
_BUCKETS = frozenset({"s3.amazonaws.com", "storage.googleapis.com"})


def is_hub(host: str) -> bool:
    """Whether anybody may publish under this (normalised) host's own name."""
    return host in _HUBS


_CHANGE = re.compile(
    r"https?://[\w.-]{1,80}/[\w.-]{1,80}/[\w.-]{1,80}/(?:-/)?(?:pull|pulls|merge_requests|commit|commits|compare)/[\w.-]{1,80}"
)


def changes_in(text: str) -> list[str]:
    """The addresses of commits, pull requests and comparisons on a forge in a text."""
    return _CHANGE.findall(text)[:16]


def place(host: str, path: str) -> str:
    """`host/owner/name` for a hub (less where the path names less), the host itself for every other."""
    known = _HUBS.get(host)
    if known is None:
        return host
    name, before = known
    text = re.sub(rf"^(?:{before})", "", unquote(path).lstrip("/"), count=1) if before else unquote(path).lstrip("/")
    parts = [part for part in text.lower().split("/") if part]
    length = 1 if name in _BUCKETS else 3 if parts[:1] and parts[0] in _DEEPER else 2
    kept = [re.sub(r"\.git$", "", part.rstrip(".")) for part in parts[:length]]
    return "/".join([name, *kept])


def place_of(host: str, name: str) -> str:
    """The place that a hub's own client means by `owner/name`, or the bare hub where the text is no such name."""
    return place(host, name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else "")


def hub_of(host: str) -> str:
    """The bare name of the hub that a place lies on, or the host itself."""
    return host.partition("/")[0]


@cache
def declares(declared: str, host: str) -> bool:
    """Whether a declaration covers a host or place: itself, what lies below it on a hub, a domain's subdomains.

    A domain under which other people have names of their own (a public suffix, a hosting domain) declares only itself.
    """
    if declared == host or host.startswith(declared + "/"):
        return True
    if "/" in declared or not host.endswith("." + declared):
        return False
    return not _is_shared(declared)


def _is_shared(domain: str) -> bool:
    """Whether strangers may hold names below a domain, by the public suffix list (its private section included)."""
    return domain in _SHARED or public_suffixes().is_public(domain)


@cache
def public_suffixes() -> PublicSuffixList:
    """The list that the package ships, read once: by whoever opens a guard, so that judging reads no file."""
    return PublicSuffixList(accept_unknown=False)
