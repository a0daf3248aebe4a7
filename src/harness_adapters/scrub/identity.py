"""Who is scrubbing: the names and live secrets that must not leave this machine.

Invariants
- What is held here goes into no report, log or message.
- A name that is also an everyday word or belongs to no person (`root`, `max`) is not taken as a name by itself: it is
  still found where its place says what it is, in a home folder say.
"""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness_adapters.scrub.own_secrets import live_secrets
from harness_adapters.scrub.personal import NOBODY

_SHORTEST_NAME = 5
_UNUSUAL_HOME = re.compile(r"^(?:/home/|/Users/|/root$|/$|[A-Za-z]:)")


@dataclass(frozen=True, slots=True)
class Identity:
    """`own` maps names to kinds (`user`, `host`, `person`, `email`, `home`), `secrets` live values to kinds."""

    own: Mapping[bytes, str] = field(default_factory=dict)
    secrets: Mapping[bytes, str] = field(default_factory=dict)


def identity_of(environ: Mapping[str, str], home: Path) -> Identity:
    """The person whose environment and home folder these are, on this machine."""
    own: dict[bytes, str] = {}
    users = {home.name, environ.get("USER", ""), environ.get("LOGNAME", "")}
    with contextlib.suppress(OSError, KeyError):  # no password entry for this user
        users.add(getpass.getuser())
    host = socket.gethostname()
    _add(own, users, "user")
    _add(own, {host, host.partition(".")[0]}, "host")
    for kind, value in _git_identity(home):
        own[value.encode()] = kind
    if not _UNUSUAL_HOME.match(str(home)):
        own[str(home).encode()] = "home"
    return Identity(own, live_secrets(environ, home))


def _add(own: dict[bytes, str], names: set[str], kind: str) -> None:
    for name in names:
        if len(name) >= _SHORTEST_NAME and name.lower().encode() not in NOBODY:
            own[name.encode()] = kind


def _git_identity(home: Path) -> list[tuple[str, str]]:
    """Name and address from the person's git configuration."""
    found = []
    for path in (home / ".gitconfig", home / ".config" / "git" / "config"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for key, kind in (("name", "person"), ("email", "email")):
            match = re.search(rf"(?m)^\s*{key}\s*=\s*\"?([^\"\n]+?)\"?\s*$", text)
            if match and len(match[1]) >= _SHORTEST_NAME:
                found.append((kind, match[1]))
    return found
