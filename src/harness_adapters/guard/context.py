"""What a rule may look at beside the facts: the policy, compiled, and what the conversation declares and shows.

Invariant: everything here follows from policy, declared tools, messages and the history replayed from them.
Asymmetry: what costs time is found when a rule first asks for it; most calls raise no such question.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from harness_adapters.guard.history import calls_of, fetched_texts, forbidden_globs, projects_in, shown_in, texts_of
from harness_adapters.guard.hosts import Endpoint, bare_endpoint, declared_in, is_loopback, url_endpoints
from harness_adapters.guard.hubs import declares, hub_of, is_hub, public_suffixes
from harness_adapters.guard.paths import Globs, globs_of
from harness_adapters.guard.places import CREDENTIALS, HARNESS_FOLDERS, SETTINGS
from harness_adapters.guard.policy import GuardPolicy, Pack
from harness_adapters.guard.replay import History
from harness_adapters.guard.solution_hacks import Shown
from harness_adapters.records import Call, Messages

_LISTED_LINK = re.compile(r"(?m)^l[rwxsStT-]{9}[^\n]{0,120}?\s([\w.-]{2,80}) -> (/\S{2,200})$")


class Bounds:
    """What follows from the policy alone: its globs, its hosts, its endpoints."""

    def __init__(self, policy: GuardPolicy) -> None:
        self.policy = policy
        public_suffixes()
        self.reward = self.globs(policy.reward)
        self.hidden = self.globs(policy.hidden)
        self.protected = self.globs(policy.protected)
        self.credentials = self.globs(CREDENTIALS)
        places = SETTINGS if policy.pack is Pack.USER else (*SETTINGS, *HARNESS_FOLDERS)
        self.settings = globs_of(places, policy.cwd, policy.home, pointed=True)
        self.own_endpoints: tuple[Endpoint, ...] = tuple(
            url_endpoints(policy.model_base_url) + url_endpoints(policy.http_proxy)
        )
        self.hosts = frozenset(
            bare_endpoint(host.removeprefix("*.")).host for host in (*policy.hosts, *policy.registries)
        ) - {""}

    def globs(self, patterns: Collection[str]) -> Globs:
        """The compiled globs, relative ones below the policy's `cwd`."""
        return globs_of(tuple(patterns), self.policy.cwd, self.policy.home)

    def inside(self, path: str) -> bool:
        """Whether the path lies below the working folder."""
        return path.startswith(self.policy.cwd.rstrip("/") + "/")


@dataclass
class Context:
    """One call's context. `declared_tools` are the names in the request."""

    bounds: Bounds
    call: Call
    declared_tools: frozenset[str]
    messages: Messages
    history: History

    @property
    def policy(self) -> GuardPolicy:
        return self.bounds.policy

    @property
    def reward(self) -> Globs:
        return self.bounds.reward

    @property
    def hidden(self) -> Globs:
        return self.bounds.hidden

    @property
    def credentials(self) -> Globs:
        return self.bounds.credentials

    @property
    def settings(self) -> Globs:
        return self.bounds.settings

    @property
    def own_endpoints(self) -> tuple[Endpoint, ...]:
        return self.bounds.own_endpoints

    @cached_property
    def protected(self) -> Globs:
        """What the policy protects and what the user's text calls read-only."""
        forbidden = forbidden_globs(texts_of(self.messages, ("user",)))
        return self.bounds.globs((*self.policy.protected, *forbidden)) if forbidden else self.bounds.protected

    @cached_property
    def user_text(self) -> str:
        """What the user wrote."""
        return "\n".join(texts_of(self.messages))

    @cached_property
    def printed(self) -> str:
        """What tools have printed."""
        return "\n".join(texts_of(self.messages, ("tool",)))

    @cached_property
    def called(self) -> str:
        """The arguments of the calls so far."""
        return "\n".join(text for message in self.messages for _, _, text in calls_of(message))

    @cached_property
    def shown(self) -> Shown:
        """What tools have printed, that of tests apart."""
        return shown_in(self.messages)

    @cached_property
    def known_paths_text(self) -> str:
        """What tools have printed and users written so far, in which a test that exists shows up."""
        return "\n".join(texts_of(self.messages, ("user", "tool")))

    @cached_property
    def declared_hosts(self) -> frozenset[str]:
        """Hosts that the policy or the user's text names; those named by what was fetched from them, where the policy
        trusts it."""
        named = self.bounds.hosts | declared_in(texts_of(self.messages))
        if not self.policy.trust_fetched:
            return named
        return named | declared_in(fetched_texts(self.messages, lambda end: self._declared(end, named)))

    @cached_property
    def shown_links(self) -> list[tuple[str, str]]:
        """Names of links and where they lead, as listings have shown them."""
        return _LISTED_LINK.findall(self.printed) if " -> /" in self.printed else []

    @cached_property
    def made(self) -> frozenset[str]:
        """Paths that calls have written or linked."""
        return frozenset(self.history.files.contents) | frozenset(self.history.files.links)

    @property
    def found_elsewhere(self) -> frozenset[str]:
        """Commits that only a look beyond the checked-out branch has shown."""
        return self.history.found_elsewhere

    @cached_property
    def projects(self) -> frozenset[str]:
        """Names of the source folders seen below the working folder."""
        return projects_in(self.messages, self.policy.cwd)

    def allows_host(self, host: str, port: str) -> bool:
        """Whether a connection is declared. The machine itself is, but for the model endpoint and the proxy."""
        return self._declared(Endpoint(host, port), self.declared_hosts)

    def _declared(self, to: Endpoint, names: frozenset[str]) -> bool:
        host = to.host
        if any(end.host == host and (not end.port or end.port == to.port) for end in self.own_endpoints):
            return False
        if is_loopback(host):
            return not any(is_loopback(end.host) and end.port == to.port for end in self.own_endpoints)
        if host in names:
            return True
        if is_hub(host):
            return any(hub_of(declared) == host for declared in names)
        return any(declares(declared, host) for declared in names)
