"""A policy is read whole or refused with the nearest key; nothing in it is silently ignored."""

from __future__ import annotations

from typing import Any

import pytest

from harness_adapters.errors import ConfigError
from harness_adapters.guard import GuardPolicy
from harness_adapters.guard.policy import Pack, Severity


def test_an_empty_policy_has_the_published_defaults() -> None:
    policy = GuardPolicy.from_mapping({})
    assert policy.reward == ("/logs/verifier/**",)
    assert policy.hidden == ("/tests/**", "/solution/**", "/oracle/**")
    assert (policy.cwd, policy.home, policy.protected) == ("/workspace", "/home/agent", ())
    assert (policy.pack, policy.log_only, policy.on_block) == (Pack.TRAIN, False, "stop")


def test_a_policy_reads_from_toml_shaped_data() -> None:
    policy = GuardPolicy.from_mapping({"protected": ["tests/**"], "severity": {"opaque": "warn"}, "pack": "eval"})
    assert policy.protected == ("tests/**",)
    assert policy.severity == {"opaque": Severity.WARN}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"protekted": []}, "'protected'"),
        ({"http-proxy": ""}, "'http_proxy'"),
        ({"severity": {"reward-writes": "block"}}, "'reward-write'"),
        ({"severity": {"opaque": "ignore"}}, "severity.opaque"),
        ({"pack": "prod"}, "pack"),
        ({"protected": "tests/**"}, "protected"),
        ({"cwd": "workspace"}, "absolute"),
        ({"on_block": "retry"}, "not there yet"),
        ({"on_block": "go"}, "on_block"),
    ],
)
def test_what_cannot_be_used_is_refused_and_named(data: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GuardPolicy.from_mapping(data)
    assert words in str(caught.value)


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        GuardPolicy().cwd = "/x"  # type: ignore[misc]
