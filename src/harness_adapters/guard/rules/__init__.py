"""The rules, one small file each: what, why, a caught and an allowed example, and a function from facts to a finding.

Order matters only for the name that a verdict carries: a call that two rules object to is reported under the first.
"""

from __future__ import annotations

from harness_adapters.guard.rules import (
    answer_lookup,
    forged_result,
    hidden_read,
    opaque,
    proxy_bypass,
    reward_write,
    runner_tamper,
    solution_hack,
    test_edit,
    token_lookup,
    undeclared_tool,
    unknown_host,
)
from harness_adapters.guard.rules.protocol import Context, Example, Finding, Rule

RULES: tuple[Rule, ...] = (
    undeclared_tool.RULE,
    reward_write.RULE,
    hidden_read.RULE,
    test_edit.RULE,
    runner_tamper.RULE,
    answer_lookup.RULE,
    token_lookup.RULE,
    proxy_bypass.RULE,
    unknown_host.RULE,
    opaque.RULE,
    forged_result.RULE,
    solution_hack.RULE,
)

__all__ = ["RULES", "Context", "Example", "Finding", "Rule"]
