"""What looks like a secret and is none: stand-ins, references to where the secret is, and examples of vendors' manuals.

Invariants
- A placeholder that scrub itself wrote is a placeholder here too, so a second run changes nothing.
- Manuals' example keys are kept as digests: the text of this file must not look like a secret itself.
"""

from __future__ import annotations

import hashlib
import re

_STAND_IN = re.compile(
    rb"""(?ix)
    ^[<\[{(*$%#@]                              # <token>, [redacted], {{ x }}, ${VAR}, %s
    | [*]{3} | (?:\xe2\x80\xa2){3} | \.{3,} | ^-+$ | _{4,}
    | x{4,} | (?:^|[^a-z])xxx(?:$|[^a-z])
    | \$\{|\$\(|\{\{|\}\}|%\(|<[a-z_]|\[[a-z_]
    | (?:^|[^a-z])(?:your|my|insert|enter|replace|paste|put|add)[-_ ]?
        (?:own|real|actual|secret|api|access|key|token|password|pass|app|client|value|db|org|account)
    | (?:^|[^a-z])(?:your|my|insert|enter|replace|paste|put|add)[-_ ](?:here|with|in|a|me|the|it|this)\b
    | changeme|change[-_]me|change[-_]?this|replaceme|placeholder|redacted|scrubbed|masked|hidden|omitted|removed
    | example|sample|dummy|fake|foobar|lorem|deadbeef
    | not[-_]?a[-_]?(?:real|secret)|to[-_]?be[-_]?(?:set|filled|replaced)
    | goes[-_]?here|here$|\btodo\b|\bfixme\b|\btbd\b|insecure|no[-_]?secret
    | process\.env|os\.environ|getenv|env\[|secrets\.|vault:|keyring|import\.meta|config\.get|settings\.
    | ^(?:test|mock|stub|demo|local|dev|development|invalid|valid|wrong|bad|some|any|unused|default)[-_ ]?
        (?:\w{0,12}[-_ ])?
        (?:key|token|secret|password|passwd|pass|pw|api|credential|value|user|id|auth)s?(?:[-_ ]?\d{0,4})$
    """
)
_WORDS = frozenset(
    b"""password passwd pass pwd secret token key apikey api_key api-key none null nil undefined true false string str
    text bytes number boolean bool object any unknown optional required required! void never int integer float array
    list dict map function default value test testing tests admin root user guest postgres postgresql mysql mariadb
    redis mongo mongodb rabbitmq minio minioadmin elastic docker ubuntu vagrant secret123 password1 password123
    password! passw0rd p@ssw0rd letmein qwerty 123456 1234567 12345678 123456789 1234567890 abc123 abcdef abcd1234
    hunter2 foo bar baz foobar empty blank todo stdin prompt interactive basic bearer digest auto env environment
    file path keychain github yes no on off enabled disabled unset self this hash hashed encrypted plaintext masked
    username email name hello world development production staging local localhost""".split()
)
_DOCUMENTED = frozenset(
    b"""
    2cafc0970149a84f f2d6ca16515033e5 ac9265e56c79b234 9c846fdf0fa8955c 02091175c1ae3023 3543c50b0cb9cea8
    bc3ae723f57c6b9e 0011cc25eb432071 aa6547439583c3a2 647f7143af147062 0693e650ce963384 153a182586451358
    """.decode().split()
)
_RUN = re.compile(rb"(.)\1{5,}")
_SEQUENCE = (
    b"0123456789abcdef",
    b"abcdefghijklmnopqrstuvwxyz",
    b"12345678901234567890",
    b"qwertyuiop",
)


def is_placeholder(value: bytes) -> bool:
    """Whether nobody's secret is lost by keeping `value`."""
    stripped = value.strip(b"\"'` ,;.")
    if len(stripped) < 3 or stripped.lower() in _WORDS or _STAND_IN.search(stripped):
        return True
    if len(set(stripped)) < 4 or _RUN.search(stripped):
        return True
    lowered = stripped.lower()
    if any(lowered.startswith(row[:8]) or row[:12] in lowered for row in _SEQUENCE):
        return True
    return digest(stripped) in _DOCUMENTED


def digest(value: bytes) -> str:
    """The form in which documented examples are kept: 16 hex digits of SHA-256."""
    return hashlib.sha256(value).hexdigest()[:16]
