"""Passwords that stand in JSON as numbers: written as strings, so that they are found and replaced like any other.

Asymmetry: only numbers under a name that means a password, and of eight digits or more. Under any other name a number
is a count, a time or an identifier.
"""

from __future__ import annotations

import re

import re2

from harness_adapters.scrub.rules.assignments import is_number_password

_NAMES = rb"(?i:passw|passphrase|passcode|pwd|_pass|_pw|_pin|_psk|psk)"
_ANYWHERE = re2.compile(_NAMES + rb'[^"\\]*\\*(?:"|u0022)\s*:\s*-?[0-9]{8}')
_PAIR = re.compile(rb'"([^"\\]*' + _NAMES + rb'[^"\\]*)"(\s*:\s*)(-?[0-9]{8,})(?=[\s,}])')


def may_hold_one(data: bytes) -> bool:
    """Whether such a number may stand in a file, also in JSON within its strings. One look at all lines is cheap."""
    return _ANYWHERE.search(data) is not None


def with_passwords_quoted(raw: bytes) -> bytes:
    """A valid JSON text in which each number that is a password is a string of its digits."""
    return _PAIR.sub(_quoted, raw)


def _quoted(match: re.Match[bytes]) -> bytes:
    key, colon, number = match.groups()
    return b'"%b"%b"%b"' % (key, colon, number) if is_number_password(key, number) else match.group()
