"""The person's own live secrets are found in every form a provider gives them."""

from __future__ import annotations

import base64
import json
import random
import string
import urllib.parse
from pathlib import Path

import pytest

from harness_adapters.scrub import Identity, Scrubber, live_secrets

VALUE = "".join(random.Random(11).choices(string.ascii_letters + string.digits + "/+&=?!", k=30)) + "/é&"


@pytest.mark.parametrize("shift", range(3))
@pytest.mark.parametrize("tail", range(3))
@pytest.mark.parametrize("urlsafe", [False, True])
def test_base64_is_found_at_every_alignment(shift: int, tail: int, urlsafe: bool) -> None:
    scrubber = Scrubber(Identity(secrets={VALUE.encode(): "env_secret"}))
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    text = encode(b"u" * shift + VALUE.encode() + b":" * tail).decode()
    out = scrubber.scrub(json.dumps({"t": f"basic {text}."}).encode()).data.decode()
    assert out == '{"t": "basic <env_secret:1>."}'


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        urllib.parse.quote(VALUE, safe=""),
        urllib.parse.quote_plus(VALUE),
        urllib.parse.quote(VALUE, safe="").lower(),
    ],
)
def test_the_value_and_its_url_forms_are_found(form: str) -> None:
    if form == form.lower():
        form = urllib.parse.quote(VALUE, safe="").replace("%2F", "%2f").replace("%26", "%26")
        form = "".join(
            c.lower() if (i and form[i - 1 : i] == "%") or form[max(0, i - 2) : i - 1] == "%" else c
            for i, c in enumerate(form)
        )
    scrubber = Scrubber(Identity(secrets={VALUE.encode(): "env_secret"}))
    assert "<env_secret:1>" in scrubber.scrub(json.dumps({"t": f"x={form};"}).encode()).data.decode()


def test_secrets_are_taken_from_names_and_files_that_hold_them(tmp_path: Path) -> None:
    def made(seed: int) -> str:
        return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=24))

    environ = {
        "MY_API_KEY": made(1),
        "DATABASE_URL": f"postgres://u:{made(2)}@h/d",
        "SSH_AUTH_SOCK": "/tmp/agent.12345678",
        "HF_TOKEN_PATH": str(tmp_path / "elsewhere"),
        "EDITOR": made(3),
        "SHORT_KEY": "abc1",
        "X_TOKEN": "your-token-here",
    }
    (tmp_path / "elsewhere").write_text(made(4) + "\n")
    (tmp_path / ".netrc").write_text(f"machine h login me password {made(5)}\n")
    (tmp_path / ".git-credentials").write_text(f"https://me:{made(6)}@github.com\n")
    auth = tmp_path / ".pi/agent/auth.json"
    auth.parent.mkdir(parents=True)
    auth.write_text(json.dumps({"anthropic": {"type": "oauth", "access": made(7), "refresh": made(8), "expires": 1}}))
    found = live_secrets(environ, tmp_path)
    assert set(found) == {made(seed).encode() for seed in (1, 2, 4, 5, 6, 7, 8)}


@pytest.mark.parametrize("digits", ["02x", "02X"])
@pytest.mark.parametrize("lead", ["%", "", "\\x"])
def test_the_value_with_every_byte_encoded_is_found(lead: str, digits: str) -> None:
    form = "".join(f"{lead}{byte:{digits}}" for byte in VALUE.encode())
    scrubber = Scrubber(Identity(secrets={VALUE.encode(): "env_secret"}))
    assert scrubber.scrub(json.dumps({"t": f"x={form};"}).encode()).data == b'{"t": "x=<env_secret:1>;"}'
