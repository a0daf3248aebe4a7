"""Anything assigned to a name that says it is secret: env dumps, YAML, TOML, JSON, shell exports, code, prose.

A name and a value alone are weak evidence, so both are judged: the name must mean a secret rather than speak of one
(`max_tokens`, `primary_key`, `token_path`), and the value must look made by a machine or chosen by a person rather
than be code, a type, a path or a stand-in.

Asymmetries
- A password may be a word, a key may not: passwords are taken from any quoted or environment-like assignment,
  keys and tokens only with the entropy of one.
- An unquoted value may be an expression in a program, a quoted one is data; unquoted ones must look random, or stand
  in an environment-like line (`NAME=value`).
"""

from __future__ import annotations

import re
from typing import Any

from harness_adapters.scrub.placeholder_values import is_placeholder
from harness_adapters.scrub.rule import Rule, entropy

_SECRET = (
    r"(?:password|passwd|passphrase|passcode|pwd|secret|token|credential|api[_. -]?key|apikey|access[_-]?key"
    r"|private[_-]?key|"
    r"auth[_-]?key|secret[_-]?key|encryption[_-]?key|encrypt[_-]?key|signing[_-]?key|master[_-]?key|service[_-]?key|"
    r"account[_-]?key|admin[_-]?key|app[_-]?key|deploy[_-]?key|session[_-]?key|license[_-]?key|webhook[_-]?key"
    r"|client[_-]?key|consumer[_-]?key|storage[_-]?key|_key|-key|"
    r"_auth|_pass|_pw|_pat|_creds?|_salt|_cookie|_dsn|_jwt|_otp|_pin|_psk|\bpsk|\bpass)"
)
_NAME = rf"(?i:{_SECRET})[A-Za-z0-9_\-]*"
_SEP = (
    r"(?:\\{0,3}[\"'`]?\]?[ \t]{0,8}(?:=>|:=|\?=|=|:)[ \t]{0,8}"
    r"|[\"']?[ \t]*(?:\n|\\n)[ \t]*value:[ \t]*"
    r"|\\{0,3}[\"'][ \t]*,\s{0,12}\\{0,3}[\"']value\\{0,3}[\"'][ \t]*:[ \t]*)"
)

_NO_SECRET_BEFORE = (
    "public|pub|primary|foreign|sort|cache|partition|row|hash|index|object|dict|map|storage|"
    "lookup|idempotency|prompt_cache|routing|shortcut|hot|arrow|i18n|translation|message|query|"
    "react|parent|group|order|unique|composite|cancellation|next|prev|page|pagination|"
    "continuation|cursor|sync|max|min|total|input|output|prompt|completion|cached|reasoning|"
    "num|special|eos|bos|pad|unk|mask|stop|image|audio|text|thought|budget|sentence|first|"
    "last|current|design|color|theme|lexer|parse|syntax|answer|json|column|field|config|"
    "feature|flag|registry|meta|known|ignore|has|is|no|use|with|require|requires|missing|"
    "invalid|expired|show|hide|toggle|forgot|reset|change|update|verify|validate|check|allow|"
    "support|supports|enable|enabled|data|event|session_data|metric|label|tag"
)
"""A key or token of these is a name in a program: `primary_key`, `max_tokens`, `has_password`."""
_NO_SECRET_AFTER = (
    "id|ids|name|names|path|paths|file|files|dir|folder|url|urls|uri|endpoint|type|types|"
    "kind|count|counts|length|len|limit|limits|size|usage|used|left|budget|expiry|expires|"
    "expiration|ttl|at|in|age|date|time|timeout|header|headers|field|fields|prefix|suffix|"
    "policy|hint|help|label|title|description|placeholder|format|encoding|algorithm|alg|"
    "version|env|var|source|provider|store|manager|helper|handler|service|class|index|idx|"
    "row|rate|rates|cost|price|ratio|prob|probs|logprobs|map|schema|pattern|regex|required|"
    "enabled|valid|error|status|state|mode|scope|scopes|option|options|level|input|output|"
    "ref|refs|ring|board|frame|press|down|up|code|codes|based|aware|position|set|list|"
    "lists|stats|info|detail|details|rotation|validation|generator|factory|mask|check|changed|"
    "reset|strength|min|max"
)
"""What follows a secret's name and makes it another thing: `token_path`, `secretName`."""
_NOT_SECRET = re.compile(
    "".join(
        (
            rf"(?i:(?:^|[_.\-])(?:{_NO_SECRET_BEFORE})[_\-]?(?:api)?[_\-]?(?:access)?[_\-]?(?:key"
            rf"|token|password|secret|auth)s?$)",
            rf"|(?:^|[_.\-a-z])(?i:{_NO_SECRET_BEFORE})(?:Key|Token|Secret|Password)s?$",
            rf"|(?i:[_\-](?:{_NO_SECRET_AFTER}))$",
            rf"|[a-z](?:{'|'.join(word.capitalize() for word in _NO_SECRET_AFTER.split('|'))})$",
            r"|(?i:(?:tokens|keys|secrets|credentials|passwords)(?:$|[_\-](?!key|secret|password)))",
            r"|(?i:keyword|keyboard|keyframe|keycode|tokeni[sz]|secretary|monkey|turkey|donkey|hockey|jockey"
            r"|whiskey|keystone|publickey)",
        )
    ).encode()
)
_PASSWORD = re.compile(rb"(?i)(?:passw(?:or)?d|passphrase|passcode|pwd|_pass|_pw|_pin|_psk|^psk|^pass)$|passw(?:or)?d")
_STRONG_NAME = re.compile(
    rb"(?i)api[_-]?key|secret|access[_-]?(?:key|token)|auth[_-]?token|private[_-]?key|passw|_token$|_key$"
)
_ENV_NAME = re.compile(rb"^[A-Z][A-Z0-9_]{2,}$")
_EXPRESSION = re.compile(rb"^[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)*[!?]?$")
_LOCATION = re.compile(
    rb"^(?:[a-z][a-z0-9+.-]*://|urn:|\.{0,2}/|~/|[A-Za-z]:\\|@?[\w.-]+/[\w./-]+\.\w{1,5}$|\S+\.(?:pem|key|json"
    rb"|ya?ml|txt|env|crt|p12|jks|toml|ini|py|js|ts|go)$)"
)
_NUMBER = re.compile(rb"^[\d.,:_+\-/ ]+[a-z]{0,2}$")
_LONG_NUMBER = re.compile(rb"-?\d{8,}")
_ITSELF = re.compile(rb"(?i)(?:passw(?:or)?d|passphrase|passcode|pwd|_pass|_pw|_pin|_psk|^psk|^pass)\d?$")
"""The name of a password, not of what is known of one: its age, its length."""
_UUID = re.compile(rb"(?i)^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")
_CHECKSUM = re.compile(rb"(?i)^(?:sha(?:1|256|384|512)[-:]|md5[-:]|\$)")
_PUBLIC = re.compile(
    rb"^(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2|AAAA[A-Z]3Nza|pk_|phc_|sb_publishable_|age1|-----BEGIN PUBLIC)"
)
_NAME_END = re.compile(rb"[A-Za-z0-9_.\-]*$")
_NAME_START = re.compile(rb"[A-Za-z0-9_.\-]*")
_LONGEST = 400
_SEGMENT = re.compile(rb"[A-Za-z0-9+/=]+")


def _judge(name: bytes, value: bytes, *, quoted: bool, environment: bool) -> bool:
    """Whether `value` assigned to `name` is a secret; `environment` marks a line like NAME=value."""
    value = value.rstrip(b".,:;")
    if name in (b"PASS", b"Pass") or (name == b"pass" and not _mixed(value)):  # test reports are full of them
        return False
    if (quoted or environment) and _is_long_number(name, value):
        return True
    if _NOT_SECRET.search(name) or is_placeholder(value) or _LOCATION.search(value):
        return False
    if _CHECKSUM.search(value) or _PUBLIC.search(value) or b" " in value.strip():
        return False
    if _PASSWORD.search(name):
        return _password(value, data=quoted or environment)
    if _NUMBER.fullmatch(value):
        return False
    if _UUID.fullmatch(value):
        return bool(_STRONG_NAME.search(name))
    if not (quoted or environment) and _EXPRESSION.fullmatch(value) and not _random(value):
        return False
    if _random(value):
        return True
    return (quoted or environment) and bool(_STRONG_NAME.search(name)) and _mixed(value)


def _password(value: bytes, *, data: bool) -> bool:
    """A password: as data any value of six characters that is not a plain word of a program, in code a mixed one."""
    if _EXPRESSION.fullmatch(value):
        letters = sum(65 <= b <= 90 or 97 <= b <= 122 for b in value)
        digits = sum(48 <= b <= 57 for b in value)
        return data and (digits > 0 or (letters >= 8 and value.islower())) and b"." not in value
    return len(value) >= 6 and entropy(value) >= 2.2 and not _NUMBER.fullmatch(value[:3] if len(value) < 4 else value)


def is_number_password(key: bytes, number: bytes) -> bool:
    """Whether a JSON number under a key is a password, by what is said of a string of its digits."""
    name = _NAME_END.search(key)
    return name is not None and _is_long_number(name.group(), number)


def _is_long_number(name: bytes, value: bytes) -> bool:
    """Digits as a password: many of them, though they follow each other, or some that do not."""
    if not _ITSELF.search(name) or _NOT_SECRET.search(name) or not _LONG_NUMBER.fullmatch(value):
        return False
    return len(set(value)) >= 4 and (len(value) > 10 or not is_placeholder(value))


def _random(value: bytes) -> bool:
    """Made by a machine: a long run of letters and digits that no word or name would have."""
    longest = max(_SEGMENT.findall(value), key=len, default=b"")
    digits = sum(48 <= b <= 57 for b in longest)
    letters = len(longest) - digits
    if len(longest) >= 16 and digits >= 2 and letters >= 2 and entropy(longest) >= 3.0:
        return True
    digits = sum(48 <= b <= 57 for b in value)
    if len(value) >= 20 and digits >= 2 and entropy(value) >= 3.7:
        return True
    mixed = any(65 <= b <= 90 for b in value[1:]) and any(97 <= b <= 122 for b in value)
    return len(longest) >= 24 and mixed and entropy(longest) >= 4.2


def _mixed(value: bytes) -> bool:
    """Shorter than a generated key, and still no word: letters with digits or signs among them."""
    if len(value) < 8 or entropy(value) < 2.75:
        return False
    digits = sum(48 <= b <= 57 for b in value)
    letters = sum(65 <= b <= 90 or 97 <= b <= 122 for b in value)
    signs = len(value) - digits - letters - sum(map(value.count, (b"_", b"-", b".", b":", b"/", b",")))
    trailing = re.fullmatch(rb"[A-Za-z_.-]+\d{1,3}", value)
    return letters >= 2 and (digits >= 2 or signs >= 1) and trailing is None


def _assigned(text: bytes, match: Any) -> bool:
    """Judges a match of the rule below; its value is in group 1 (JSON pair), 2 (quoted) or 3 (bare)."""
    start = match.start()
    start -= len(_NAME_END.search(text[max(0, start - 60) : start]).group())  # type: ignore[union-attr]
    word = _NAME_START.match(text, start)
    name = word.group() if word else b""
    value: bytes = match.group(match.lastindex)
    begin, end = match.span(match.lastindex)
    if len(value) > _LONGEST:
        return False
    if match.lastindex < 3:
        return _judge(name, value, quoted=True, environment=False)
    if text[end : end + 1] in (b"(", b"[", b"{"):
        return False
    between = text[start + len(name) : begin]
    starts = _starts_line(text, start)
    environment = between == b"=" and (starts or _ENV_NAME.match(name) is not None)
    if not environment and starts and between.strip() == b":" and _ends_line(text, end):
        environment = _ENV_NAME.match(name) is not None or not _EXPRESSION.fullmatch(value)
    return _judge(name, value, quoted=False, environment=environment)


def _starts_line(text: bytes, start: int) -> bool:
    """Whether only indentation, `export` and the like stand between the line's start and `start`."""
    line = (
        max(
            text.rfind(b"\n", max(0, start - 80), start),
            text.rfind(b"\x00", max(0, start - 80), start),
            text.rfind(b"\x01", max(0, start - 80), start),
        )
        + 1
    )
    lead = text[line:start] if start - line < 80 else b"?"
    return (
        re.fullmatch(rb"[\s>+\-|\d:]*(?:(?:export|set|ENV|ARG|env|declare -x|setx|RUN|-e|--env)[ \t]+)?[\"']?", lead)
        is not None
    )


def _ends_line(text: bytes, end: int) -> bool:
    return text[end : end + 1] in (b"", b"\n", b"\r", b"\x00") or text[end : end + 2] in (b"\\n", b"\\r", b" #")


def _prose(text: bytes, match: Any) -> bool:
    value = match.group(1).rstrip(b".,;:!?)")
    if b"(" in value or b"[" in value or (_EXPRESSION.fullmatch(value) and not _random(value) and not value.isalnum()):
        return False
    return not is_placeholder(value) and (_random(value) or (_mixed(value) and not _LOCATION.search(value)))


_GATE = (
    "passw", "passphrase", "passcode", "pwd", "secret", "token", "credential", "_key", "-key", "apikey", "api key",
    "accesskey", "privatekey", "authkey", "secretkey", "signingkey", "masterkey", "accountkey", "api.key", "_auth",
    "_pass", "_pw", "_pat", "_cred", "_salt", "_cookie", "_dsn", "_jwt", "_otp", "_pin", "psk", "pass:", "pass\x01",
    "pass=", "pass\"", "pass'", "pass ", "storagekey", "clientkey", "consumerkey", "licensekey", "webhookkey",
)  # fmt: skip

_BARE = r"([^\s\"'`<>()\[\]{};,&|\\\x00\x01][^\s\"'`<>()\[\]{};,&|\\\x00\x01]{4,})"
_WITHIN = (
    r"\x01(?:(?:type|kind|name|encoding|sensitive)\x01[^\x00\x01]{0,30}\x00){0,2}"
    r"(?i:(?:raw|plain|secret)?_?(?:value|text|raw))\x01"
)
"""Between a name and its value where the value is an object that holds it: `{"api_key": {"value": …}}`."""
_QUOTED = r"\\{0,3}[\"'`]([^\"'`\\\n\x00\x01]{5,})\\{0,3}[\"'`]"

RULES: tuple[Rule, ...] = (
    Rule(
        "secret",
        rf"{_NAME}(?:(?:\x01|\x00value\x01|{_WITHIN})([^\x00\x01]{{5,}})(?:\x00|$)|{_SEP}(?:{_QUOTED}|{_BARE}))",
        _GATE,
        strong=False,
        check=_assigned,
        learnt=False,
    ),
    Rule(
        "secret",
        r"(?i:\b(?:password|passphrase|passcode|api key|token|secret|credentials?)\b[\w ]{0,24}?(?:\s(?:is|was"
        r"|to)|:|=)\s+)"
        r"[\"'`(*]{0,2}([^\s\"'`\\\x00\x01<>*]{6,200})",
        _GATE,
        strong=False,
        check=_prose,
        learnt=False,
    ),
)
