"""Secrets that the shape of the data names or hides: objects, pairs, lists of arguments, numbers, escapes, cut keys."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import pytest

from harness_adapters.scrub import Scrubber

TOKEN = "ghp_" + "".join(random.Random(11).choices(string.ascii_letters + string.digits, k=36))
VALUE = "q8Jf93kdLm20ZxPw77Tz"
PASSWORD = "S3cretPw99x"
BEGIN = "-----BEGIN {} PRIVATE" + " KEY-----\n"
OPENSSH = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZWQ"


def scrubbed(value: Any) -> str:
    """The scrubbed JSON text of a value, which a second run leaves as it is."""
    out = Scrubber().scrub(json.dumps(value).encode()).data
    assert Scrubber().scrub(out).data == out
    json.loads(out)
    return out.decode()


def escaped(text: str, form: str) -> str:
    return "".join(form.format(ord(character)) for character in text)


@pytest.mark.parametrize("form", ["\\u{:04x}", "\\x{:02X}", "\\\\u{:04x}", "\\\\\\\\u{:04x}"])
@pytest.mark.parametrize("start", [0, 4, 20])
def test_escapes_of_letters_within_a_text_hide_nothing(form: str, start: int) -> None:
    hidden = escaped(TOKEN[:start], form) + TOKEN[start:] if start else escaped(TOKEN, form)
    out = scrubbed({"a": f'prefix {{"b": "{hidden}"}} \\u003cb\\u003e', "c": TOKEN})
    assert json.loads(out) == {"a": 'prefix {"b": "<github_token:1>"} \\u003cb\\u003e', "c": "<github_token:1>"}


def test_an_escaped_backslash_is_read_as_well() -> None:
    assert "<github_token:1>" in scrubbed("x " + escaped(TOKEN, "\\u005cu{:04x}"))


def test_escapes_that_hide_nothing_stay() -> None:
    text = 'say "\\u0068\\u0065llo", \\x41\\x42\\x43, caf\\u00e9'
    assert scrubbed([text]) == json.dumps([text])


@pytest.mark.parametrize(
    "record",
    [
        {"api_key": {"value": VALUE}},
        {"api_key": {"type": "string", "value": VALUE}},
        {"password": {"plaintext": VALUE}},
        {"headers": [["x-api-key", VALUE]]},
        {"headers": [["accept", "*/*"], ["Private-Token", VALUE], ["host", "h"]]},
        {"headers": ["X-Vault-Token", VALUE]},
    ],
)
def test_a_value_is_named_by_what_it_lies_in(record: dict[str, Any]) -> None:
    assert VALUE not in scrubbed(record)


@pytest.mark.parametrize(
    "record",
    [
        {"headers": ["authorization", "x-api-key", "content-type"]},
        {"required": ["token", "user_identifier_2024"]},
        {"token": {"type": "string", "description": "taken from settings"}},
        {"password": {"type": "string", "minLength": 12}},
    ],
)
def test_names_of_secrets_beside_each_other_are_none(record: dict[str, Any]) -> None:
    assert scrubbed(record) == json.dumps(record)


@pytest.mark.parametrize(
    "words",
    [
        ["mysql", "-u", "root", f"-p{PASSWORD}", "db"],
        ["/usr/bin/mysqldump", f"-p{PASSWORD}"],
        ["sshpass", "-p", PASSWORD, "ssh", "h"],
        ["sshpass", f"-p{PASSWORD}", "ssh", "h"],
        ["redis-cli", "-h", "cache", "-a", PASSWORD, "ping"],
        ["docker", "login", "-u", "me", "-p", PASSWORD],
        ["mongosh", "-u", "me", "-p", PASSWORD],
    ],
)
def test_a_password_on_a_command_line_is_found_in_a_list_of_its_words(words: list[str]) -> None:
    assert PASSWORD not in scrubbed({"argv": words})
    assert PASSWORD not in scrubbed(f"subprocess.run({json.dumps(words)})")


def test_a_list_of_words_without_a_password_stays() -> None:
    record = {"argv": ["mysql", "-u", "root", "-P3306", "db"], "next": ["mkdir", "-parents"]}
    assert scrubbed(record) == json.dumps(record)


def test_a_password_that_is_a_number_becomes_a_string() -> None:
    inner = json.dumps({"db_password": 98172634})
    text = '{"password":123456789012, "x": 1.0 , "inner": ' + json.dumps(inner) + "}"
    result = Scrubber().scrub(text.encode())
    assert result.data.startswith(b'{"password":"<secret:1>", "x": 1.0 , ')
    assert json.loads(json.loads(result.data)["inner"]) == {"db_password": "<secret:2>"}
    assert [finding.path for finding in result.findings] == ["password", "inner.db_password"]
    assert "<secret:1>" in scrubbed({"password": "123456789012"})


def test_numbers_that_are_no_password_stay() -> None:
    text = '{"max_tokens": 123456789, "password_age": 1234567890, "password": 12345678, "t": "pwd\\": 918273641"}'
    assert Scrubber().scrub(text.encode()).data == text.encode()


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("OPENSSH", f"{OPENSSH}\nyNTUxOQAAACB"),
        ("OPENSSH", OPENSSH),
        ("OPENSSH", f"{OPENSSH}\nyNTUxOQAAACB\n-----END OPENSSH PRIVATE" + " KEY-----"),
        ("RSA", "MIIEowIBAA"),
        ("RSA", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\nMIIEowIBAAKCAQEA7"),
    ],
)
def test_a_key_file_is_replaced_wherever_it_was_cut(kind: str, body: str, form: str) -> None:
    text = BEGIN.format(kind) + body
    if form == "json":
        assert json.loads(scrubbed({"t": text})) == {"t": "<private_key:1>"}
    else:
        assert Scrubber().scrub(text.encode()).data == b"<private_key:1>"


def test_a_cut_key_does_not_keep_a_longer_one_from_being_found_whole() -> None:
    whole = BEGIN.format("RSA") + "MIIEowIBAAKCAQEA7kq93LmXz"
    out = scrubbed([whole[:-9], whole])
    assert json.loads(out) == ["<private_key:1>", "<private_key:2>"]


@pytest.mark.parametrize("body", ["...", "<your key>", "MIIEpAIBAAKCAQEA...", "example"])
def test_a_key_file_of_a_manual_stays(body: str) -> None:
    text = BEGIN.format("RSA") + body + "\n-----END RSA PRIVATE" + " KEY-----"
    assert scrubbed([text, "grep '" + BEGIN.format("RSA").strip() + "' file"]).count("private_key:") == 0
