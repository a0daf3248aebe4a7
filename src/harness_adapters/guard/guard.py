"""The guard: policy, history and one tool call in; one verdict out.

Invariant: `judge` is pure. It reads no file, opens no connection, asks no clock; the same policy, tools, history and
call give the same verdict.
Asymmetry: the hardest finding decides, and among equals the first rule in order names it; milder findings of other
rules are not reported.
"""

from __future__ import annotations

from collections.abc import Collection

from harness_adapters.guard.history import forbidden_globs, replay, texts_of
from harness_adapters.guard.hosts import declared_in, normalise, url_endpoints
from harness_adapters.guard.machine import Machine
from harness_adapters.guard.paths import Globs, globs_of
from harness_adapters.guard.places import CREDENTIALS, SETTINGS
from harness_adapters.guard.policy import GuardPolicy
from harness_adapters.guard.rules import RULES
from harness_adapters.guard.rules.protocol import Context
from harness_adapters.guard.tools import facts_of
from harness_adapters.records import Call, Decision, Messages, ToolMap, Verdict

_HARDNESS = {Decision.BLOCK: 3, Decision.ZERO: 2, Decision.WARN: 1, Decision.ALLOW: 0}


class Guard:
    """Judges the tool calls of sessions under one policy; holds no state between calls."""

    def __init__(self, policy: GuardPolicy, tools: ToolMap) -> None:
        self.policy = policy
        self.tools = tools
        self._reward = self._globs(policy.reward)
        self._hidden = self._globs(policy.hidden)
        self._credentials = self._globs(CREDENTIALS)
        self._settings = globs_of(SETTINGS, policy.cwd, policy.home, pointed=True)
        self._own = tuple(url_endpoints(policy.model_base_url) + url_endpoints(policy.http_proxy))
        self._decisions = {rule.name: policy.decision(rule.name) for rule in RULES}
        self._hosts = frozenset(normalise(host) for host in (*policy.hosts, *policy.registries)) - {""}

    def _globs(self, patterns: Collection[str]) -> Globs:
        return globs_of(tuple(patterns), self.policy.cwd, self.policy.home)

    def judge(self, call: Call, *, declared: Collection[str], messages: Messages) -> Verdict:
        """The verdict on `call`, given the names of the tools that the request declares and its messages (chat form,
        up to but without the answer that holds the call)."""
        context = self._context(declared, messages)
        machine = Machine(
            cwd=self.policy.cwd,
            home=self.policy.home,
            files=replay(messages, self.tools, cwd=self.policy.cwd, home=self.policy.home),
        )
        facts = facts_of(call, self.tools, machine)
        verdict = Verdict(call.id, Decision.ALLOW)
        for rule in RULES:
            decision = self._decisions[rule.name]
            if _HARDNESS[decision] <= _HARDNESS[verdict.decision]:
                continue
            finding = rule.check(facts, call, context)
            if finding is not None:
                verdict = Verdict(call.id, decision, rule.name, finding.reason, finding.evidence)
        return verdict

    def _context(self, declared: Collection[str], messages: Messages) -> Context:
        texts = texts_of(messages)
        user_text = "\n".join(texts)
        return Context(
            policy=self.policy,
            declared_tools=frozenset(declared),
            declared_hosts=self._hosts | declared_in(texts),
            user_text=user_text,
            known_paths_text="\n".join(texts_of(messages, ("user", "tool"))),
            reward=self._reward,
            hidden=self._hidden,
            protected=self._globs((*self.policy.protected, *forbidden_globs(texts_of(messages, ("user",))))),
            credentials=self._credentials,
            settings=self._settings,
            own_endpoints=self._own,
        )
