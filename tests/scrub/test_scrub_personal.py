"""Names and addresses of people go, those of nobody stay."""

from __future__ import annotations

import json

import pytest

from harness_adapters.scrub import Identity, Scrubber


@pytest.fixture(scope="module")
def scrubber() -> Scrubber:
    return Scrubber(Identity(own={b"mbergmann": "user", b"thinkbox": "host", b"Mia Bergmann": "person"}))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("cd /home/kvoss/src", "user", "kvoss"),
        ("open /Users/kvoss", "user", "kvoss"),
        ("ls /home/bob/x", "user", "bob"),
        ("/Users/alice", "user", "alice"),
        (r"C:\Users\kvoss\x", "user", "kvoss"),
        ("~/.claude/projects/-Users-kvoss-src/x", "user", "kvoss"),
        ("USER=kvoss", "user", "kvoss"),
        ("-rw-r--r--  1 kvoss staff 120 Jan 1 a.txt", "user", "kvoss"),
        ("kvoss@devbox:~/src$ ls", "user", "kvoss"),
        ("kvoss@devbox:~/src$ ls", "host", "devbox"),
        ("made by mbergmann.", "user", "mbergmann"),
        ("\\nmbergmann said", "user", "mbergmann"),
        ("on thinkbox", "host", "thinkbox"),
        ("by Mia Bergmann", "person", "Mia Bergmann"),
        ("Linux devbox 6.1.0-13-amd64 x86_64", "host", "devbox"),
        ("Karls-MacBook-Pro.local", "host", "Karls-MacBook-Pro.local"),
        ("mail karl.voss@firma-voss.de now", "email", "karl.voss@firma-voss.de"),
        ("Author: Karl Voß <12345+kvoss@users.noreply.github.com>", "person", "Karl Voß"),
        ("Co-authored-by: Karl Voss <karl@firma-voss.de>", "person", "Karl Voss"),
        ("git config user.name 'Karl Voss'", "person", "Karl Voss"),
        ("ssh to 10.20.30.41 please", "ip", "10.20.30.41"),
        ("host=93.184.215.14", "ip", "93.184.215.14"),
        ("inet6 2a01:4f8:c17:1234::2 scope", "ip", "2a01:4f8:c17:1234::2"),
        ("ether 3c:22:fb:9a:10:7e txq", "mac", "3c:22:fb:9a:10:7e"),
        ("phone: +49 171 4567 890", "phone", "+49 171 4567 890"),
    ],
)
def test_personal_details_are_replaced(text: str, kind: str, value: str, scrubber: Scrubber) -> None:
    result = scrubber.scrub(json.dumps({"t": text}).encode())
    assert value not in json.loads(result.data)["t"]
    assert kind in {finding.kind for finding in result.findings}


@pytest.mark.parametrize(
    "text",
    [
        "/home/runner/work /Users/agent/x /root/x /home/user/app /home/$USER",
        "noreply@anthropic.com 49699333+dependabot[bot]@users.noreply.github.com you@example.com",
        "git@github.com:org/x.git",
        "Co-Authored-By: Claude <noreply@anthropic.com>",
        "127.0.0.1 0.0.0.0 192.0.2.1 198.51.100.7 8.8.8.8 255.255.255.0 10.0.0.0/8",
        "Chrome/120.0.6099.71 v1.22.333.4 pkg==1.2.3.44 version 10.20.30.40 build 10.0.19041.1",
        "::1 fe80 std::vector<int> a::b 12:34:56 2024-01-02T03:04:05 2001:db8::1",
        "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 4f:3c:5d:7b:ba:4c:9b:2e",
        "x = a @ b.T  icon@2x.png  @types/node@18.0.0 actions/checkout@v4",
        "@@ -1,3 +12345678 @@ +1 -2 1700000000000 phone: 555-0123",
        "drwxr-xr-x 2 root root 4096 Jan 1 x",
        "uses Linux kernel 6.1 and Darwin",
        "mbergmannsson and thinkboxes",
    ],
)
def test_what_names_nobody_is_kept(text: str, scrubber: Scrubber) -> None:
    line = json.dumps({"t": text}).encode()
    result = scrubber.scrub(line)
    assert result.data == line, result.data
