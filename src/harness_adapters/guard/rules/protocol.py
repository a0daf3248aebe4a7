"""What a rule is, and what it may look at beside the facts.

Invariant: a rule is a pure function; the same facts, call and context give the same finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness_adapters.guard.facts import Fact
from harness_adapters.guard.hosts import Endpoint, is_loopback
from harness_adapters.guard.paths import Globs
from harness_adapters.guard.policy import GuardPolicy
from harness_adapters.records import Call


@dataclass(frozen=True, slots=True)
class Context:
    """The policy, compiled, and what the conversation declares.

    `declared_tools` are the names in the request; `declared_hosts` come from the policy and the user's and system's
    text; `known_paths_text` is what tools have printed and users written so far, in which a test that exists shows up.
    """

    policy: GuardPolicy
    declared_tools: frozenset[str]
    declared_hosts: frozenset[str]
    user_text: str
    known_paths_text: str
    reward: Globs
    hidden: Globs
    protected: Globs
    credentials: Globs
    settings: Globs
    own_endpoints: tuple[Endpoint, ...] = ()

    def allows_host(self, host: str, port: str) -> bool:
        """Whether a connection is declared. The machine itself is, but for the model endpoint and the proxy."""
        if any(end.host == host and (not end.port or end.port == port) for end in self.own_endpoints):
            return False
        if is_loopback(host):
            return not any(is_loopback(end.host) and end.port == port for end in self.own_endpoints)
        return host in self.declared_hosts or any(
            wild.startswith("*.") and host.endswith(wild[1:]) for wild in self.policy.hosts
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a rule objects; `evidence` is the fact it rests on."""

    reason: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Example:
    """A call that shows a rule at work, for people and for the tests."""

    tool: str
    arguments: Mapping[str, Any]
    policy: Mapping[str, Any] = field(default_factory=dict)
    user: str = ""


Check = Callable[[Sequence[Fact], Call, Context], Finding | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`what` it catches, `why` it exists, an example of each side, and the function itself."""

    name: str
    what: str
    why: str
    caught: Example
    allowed: Example
    check: Check
