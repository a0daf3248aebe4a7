"""The guard: policy, history and one tool call in; one verdict out.

Invariant: `judge` is pure. It reads no file, opens no connection, asks no clock; the same policy, tools, history and
call give the same verdict.
Asymmetry: the hardest finding decides, and among equals the first rule in order names it; milder findings of other
rules are not reported.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterator

from harness_adapters.guard.context import Bounds, Context
from harness_adapters.guard.facts import Connects, Fact, Opaque, PathFact, Puts
from harness_adapters.guard.machine import Machine
from harness_adapters.guard.policy import GuardPolicy
from harness_adapters.guard.replay import Replayer
from harness_adapters.guard.rules import RULES, Rule
from harness_adapters.guard.scripts import is_script, script_facts_of, source_facts_of
from harness_adapters.guard.tools import facts_of
from harness_adapters.guard.values import is_known
from harness_adapters.records import Call, Decision, Messages, ToolMap, Verdict

_HARDNESS = {Decision.BLOCK: 3, Decision.ZERO: 2, Decision.WARN: 1, Decision.ALLOW: 0}

_MAX_PLANS = 1_024
_FILE_NAME = re.compile(r"\.[a-z]\w{0,5}$")


class Guard:
    """Judges the tool calls of sessions under one policy; holds no state between calls."""

    def __init__(self, policy: GuardPolicy, tools: ToolMap) -> None:
        self.policy = policy
        self.tools = tools
        self._bounds = Bounds(policy)
        self._replayer = Replayer(tools, cwd=policy.cwd, home=policy.home)
        self._rules = [(rule, policy.decision(rule.name)) for rule in RULES]
        self._plans: dict[frozenset[type], list[tuple[Rule, Decision]]] = {}

    def judge(self, call: Call, *, declared: Collection[str], messages: Messages) -> Verdict:
        """The verdict on `call`, given the names of the tools that the request declares and its messages (chat form,
        up to but without the answer that holds the call). Never raises: a rule that does is the verdict `error`."""
        try:
            return self._judge(call, declared, messages)
        except Exception as error:  # noqa: BLE001 - a rule's bug is a verdict, whose evidence tells it
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
            return Verdict(call.id, Decision.ERROR, "guard", "the guard failed on this call", f"{error!r} in {where}")

    def explain(self, call: Call, *, declared: Collection[str], messages: Messages) -> list[Fact]:
        """What the call would do, as the rules see it."""
        return self._facts(call, declared, messages)[0]

    def _judge(self, call: Call, declared: Collection[str], messages: Messages) -> Verdict:
        facts, context = self._facts(call, declared, messages)
        verdict, hardness = Verdict(call.id, Decision.ALLOW), 0
        for rule, severity in self._asked(frozenset(map(type, facts))):
            if _HARDNESS[severity] <= hardness:
                continue
            finding = rule.finding(facts, context)
            if finding is None:
                continue
            decision = severity if finding.certain else Decision.WARN
            if _HARDNESS[decision] > hardness:
                verdict = Verdict(call.id, decision, rule.name, finding.reason, finding.evidence)
                hardness = _HARDNESS[decision]
        return verdict

    def _asked(self, present: frozenset[type]) -> list[tuple[Rule, Decision]]:
        """The rules that have a say on facts of these kinds."""
        asked = self._plans.get(present)
        if asked is None:
            asked = [of for of in self._rules if of[0].call is not None or not present.isdisjoint(of[0].facts)]
            if len(self._plans) < _MAX_PLANS:
                self._plans[present] = asked
        return asked

    def _facts(self, call: Call, declared: Collection[str], messages: Messages) -> tuple[list[Fact], Context]:
        history = self._replayer.history(messages)
        machine = Machine(cwd=self.policy.cwd, home=self.policy.home, files=history.files)
        machine.resumed, machine.variables = history.left, dict(history.variables)
        facts = facts_of(call, self.tools, machine)
        lasting = call.name in self.tools.lasting
        if not lasting and history.left != self.policy.cwd and self._forbidden(history.left):
            stayed = Machine(cwd=history.left, home=self.policy.home, files=history.files)
            facts = [*facts, *facts_of(call, self.tools, stayed)]
        if history.files.overfull:
            facts = [*facts, Opaque("files of the session", "size")]
        context = Context(self._bounds, call, frozenset(declared), messages, history)
        return [*facts, *self._prepared(facts, machine)], context

    def _forbidden(self, folder: str) -> bool:
        bounds = self._bounds
        return any(globs.meets(folder, deep=True) for globs in (bounds.hidden, bounds.reward, bounds.credentials))

    def _prepared(self, facts: list[Fact], machine: Machine) -> Iterator[Fact]:
        """What scripts that the call writes would do to the paths that no script has to name, once they run."""
        for put in facts:
            if not isinstance(put, Puts):
                continue
            if is_script(put):
                own = self._bounds.inside(put.path)
                yield from (fact for fact in script_facts_of(put, machine) if self._counts_when_written(fact, own))
            else:
                yield from filter(self._counts_in_source, source_facts_of(put))

    def _counts_in_source(self, fact: Fact) -> bool:
        """A route of a web server may be called like a hidden folder; nothing but the reward is called like that."""
        if not isinstance(fact, PathFact):
            return False
        opened = bool(fact.by) or _FILE_NAME.search(fact.path) is not None
        return self._bounds.reward.meets(fact.path) or (opened and self._bounds.hidden.meets(fact.path))

    def _counts_when_written(self, fact: Fact, own: bool) -> bool:
        """Sources of the project may speak of hosts and credentials; a script elsewhere is there to be run."""
        bounds = self._bounds
        match fact:
            case PathFact(path=path):
                forbidden = bounds.reward.meets(path) or bounds.hidden.meets(path)
                return forbidden or (not own and bounds.credentials.meets(path))
            case Connects(host=host):
                return not own and is_known(host)
        return False
