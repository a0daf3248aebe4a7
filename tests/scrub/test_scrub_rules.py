"""Every rule catches samples of what it is for, in the places where secrets stand, and lets placeholders of it be."""

from __future__ import annotations

import json

import pytest
from samples import Sampler

from harness_adapters.scrub import Scrubber
from harness_adapters.scrub.rule import Rule
from harness_adapters.scrub.rules import RULES

TOKENS = [rule for rule in RULES if rule.form]
PLACES = (
    "{}",
    "here it is: {}.",
    "({})",
    "export THING={}\nexport OTHER=1",
    '"thing": "{}",',
    "`{}`",
    "curl https://api.service.test/v1?x=1 -H 'X-Thing: {}'",
    "line one\\n{}\\nline three",
    "a,{},b",
)


@pytest.fixture(scope="module")
def scrubber() -> Scrubber:
    return Scrubber()


def identified(rules: list[Rule]) -> list[str]:
    return [f"{rule.kind}-{RULES.index(rule)}" for rule in rules]


@pytest.mark.parametrize("rule", TOKENS, ids=identified(TOKENS))
def test_a_secret_with_a_form_of_its_own_is_replaced_wherever_it_stands(rule: Rule, scrubber: Scrubber) -> None:
    scrubber.learnt.clear()
    secrets = [Sampler(seed).of(rule.form) for seed in range(4)]
    word = "" if any(word in secrets[0].lower() for word in rule.keywords) else "".join(rule.keywords[-1:])
    texts = [place.format(secret) + f" {word}" for secret in secrets for place in PLACES]
    result = scrubber.scrub(json.dumps(texts).encode())
    for secret in secrets:
        assert secret.encode() not in result.data
    assert len(result.findings) >= len(texts)


@pytest.mark.parametrize("rule", TOKENS, ids=identified(TOKENS))
def test_a_stand_in_for_a_secret_is_no_secret(rule: Rule, scrubber: Scrubber) -> None:
    dull = Sampler(1, dull=True).of(rule.form)
    line = json.dumps({"text": f"use {dull} here"}).encode()
    assert scrubber.scrub(line).data == line
