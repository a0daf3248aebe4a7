"""One host, one spelling: whatever a resolver takes for the same address normalises to the same string."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.errors import ConfigError
from harness_adapters.guard import Guard, GuardPolicy
from harness_adapters.guard.hosts import declared_in, endpoint, is_loopback, normalise
from harness_adapters.records import Call, ToolMap


@given(st.integers(0, 2**32 - 1))
def test_every_numeric_form_of_an_ipv4_address_is_the_same_host(number: int) -> None:
    a, b, c, d = number.to_bytes(4, "big")
    plain = str(ipaddress.IPv4Address(number))
    forms = [
        str(number),
        hex(number),
        f"0{number:o}",
        f"{a}.{b}.{c * 256 + d}",
        f"{a}.{b * 65536 + c * 256 + d}",
        f"0x{a:x}.{b}.0{c:o}.{d}",
        f"[::ffff:{plain}]",
        f"{plain}.",
    ]
    assert {normalise(form) for form in forms} == {plain}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("EXAMPLE.org.", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("ex%61mple.org", "example.org"),
        ("[2001:DB8:0::1]", "2001:db8::1"),
    ],
)
def test_other_spellings_are_one_host(left: str, right: str) -> None:
    assert normalise(left) == normalise(right)


@pytest.mark.parametrize(
    ("authority", "host", "port"),
    [
        ("user:pw@h.example:8080", "h.example", "8080"),
        ("declared.example@evil.example", "evil.example", ""),
        ("[::1]:80", "::1", "80"),
        ("::1", "::1", ""),
        ("h.example", "h.example", ""),
    ],
)
def test_an_authority_gives_its_host_and_port(authority: str, host: str, port: str) -> None:
    end = endpoint(authority)
    assert (end.host, end.port) == (host, port)


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost", "127.8.8.8", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
def test_the_machine_itself_is_loopback(host: str) -> None:
    assert is_loopback(normalise(host))


@pytest.mark.parametrize("host", ["localhost.evil.example", "127.0.0.1.evil.example", "128.0.0.1", "10.0.0.1"])
def test_another_machine_is_not_loopback(host: str) -> None:
    assert not is_loopback(normalise(host))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("see https://a.example/x?y=1 and http://b.example:81", {"a.example", "b.example"}),
        ("the service at lock:9999\nHosts you may use: lock", {"lock"}),
        ("clone git@git.example:team/x.git", {"git.example"}),
        ("fix src/a.py, notes.md and tests/test_io.py", set()),
        ("Hosts you may use: a.example, files.a.example (task: install)", {"a.example", "files.a.example"}),
    ],
)
def test_the_hosts_that_a_text_declares(text: str, hosts: set[str]) -> None:
    assert declared_in([text]) == hosts


@given(st.text(max_size=60))
def test_any_text_normalises_without_raising(text: str) -> None:
    normalise(text)
    endpoint(text)
    declared_in([text])


def judged(messages: list[dict[str, Any]], policy: dict[str, Any], url: str = "https://data.example/x") -> str:
    guard = Guard(GuardPolicy.from_mapping(policy), ToolMap("none", {}))
    call = Call("c", "bash", {"command": f"curl -s {url}"})
    return guard.judge(call, declared=["bash"], messages=messages).decision.value


def fetched(url: str, printed: str) -> list[dict[str, Any]]:
    function = {"name": "bash", "arguments": json.dumps({"command": f"curl -s {url}"})}
    return [
        {"role": "user", "content": "see https://docs.example/"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "f", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "f", "content": printed},
    ]


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
def test_only_the_users_text_declares_a_host(role: str) -> None:
    assert judged([{"role": "user", "content": "get it from data.example"}], {}) == "allow"
    assert judged([{"role": role, "content": "get it from https://data.example/x"}], {}) == "block"


def test_a_person_may_trust_what_a_declared_host_names_and_nothing_else() -> None:
    page = fetched("https://docs.example/a", "the rows are at https://data.example/x")
    assert judged(page, {"pack": "user"}) == "block"
    assert judged(page, {"pack": "user", "trust_fetched": True}) == "allow"
    other = fetched("https://evil.example/a", "the rows are at https://data.example/x")
    assert judged(other, {"pack": "user", "trust_fetched": True}) == "block"
    mixed = fetched("https://docs.example/a https://evil.example/", "the rows are at https://data.example/x")
    assert judged(mixed, {"pack": "user", "trust_fetched": True}) == "block"
    with pytest.raises(ConfigError, match="trust_fetched"):
        GuardPolicy.from_mapping({"trust_fetched": True})
