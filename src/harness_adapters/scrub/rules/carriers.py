"""Secrets known by what carries them: URLs, headers, key files, connection strings, command lines, signed links."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from harness_adapters.scrub.placeholder_values import is_placeholder
from harness_adapters.scrub.rule import Rule, entropy

_ARG = r"(?:\x00|\\{0,3}[\"']\s?,\s?\\{0,3}[\"'])"
"""Between the words of a command that is given as a list: of JSON, or in the source of a program."""
_ARGS = rf"(?:[^\x00\x01\n\"']*{_ARG}){{0,12}}?"
_BEGIN_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:\s|\\[nrt]){1,4}(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\\x00]{0,100})*"
)
_KEY_GAP = r"(?:[\s>|+:\d]|\\[nrt]){1,24}"
_Q = r"\\{0,3}[\"'`]?"
_V = r"[^\s\"'`<>\\\x00\x01]"


def _real(text: bytes, match: Any) -> bool:
    """A value that nobody would take for an example."""
    return not is_placeholder(match.group(1))


_NO_KEY_BODY = re.compile(rb"\.{3}|\xe2\x80\xa6|[<\[*{$]|x{4}|(?i:\byour|example|redacted|placeholder|omitted)")

_ELIDED = re.compile(rb"\s*(?:\.{3}|\xe2\x80\xa6)")


def _key_body(text: bytes, match: Any) -> bool:
    """A key file whose body is no stand-in. Runs of one letter, as every OpenSSH key has, do not make it one."""
    body = match.group(1).partition(b"KEY")[2].partition(b"-----")[2].partition(b"-----END")[0]
    end = match.end()
    elided = len(body) < 64 and _ELIDED.match(text, end, end + 8)
    return entropy(body) >= 2.5 and not elided and not _NO_KEY_BODY.search(body)


def _listed_name(text: bytes, match: Any) -> bool:
    """A pair in a list: only what nobody would write as a second name beside the first."""
    value = match.group(1)
    return _bearer(text, match) and _generated(text, match) and len(value) >= 12


def _is_jwt(text: bytes, match: Any) -> bool:
    """A token whose first part is a JSON object that names an algorithm, and whose subject is not the textbook's."""
    head, _, rest = match.group(1).partition(b".")
    header = _object(head)
    payload = _object(rest.partition(b".")[0])
    if not isinstance(header, dict) or not ({"alg", "enc", "typ", "kid"} & header.keys()):
        return False
    return not (isinstance(payload, dict) and payload.get("sub") == "1234567890" and payload.get("name") == "John Doe")


def _object(part: bytes) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, binascii.Error):
        return None


def _basic(text: bytes, match: Any) -> bool:
    """Base64 of `user:password`."""
    value = match.group(1)
    try:
        user, colon, password = base64.b64decode(value + b"=" * (-len(value) % 4)).partition(b":")
    except (ValueError, binascii.Error):
        return False
    return bool(colon) and (user + password).isascii() and not is_placeholder(password)


def _bearer(text: bytes, match: Any) -> bool:
    value = match.group(1)
    return not is_placeholder(value) and entropy(value) >= 3.0 and any(b in b"0123456789" for b in value)


def _url_password(text: bytes, match: Any) -> bool:
    """Any password in a URL but placeholders, which the stock passwords of databases are, too."""
    value = match.group(1)
    return not is_placeholder(value) and not value.startswith((b"$", b"{", b"%s", b"#"))


def _generated(text: bytes, match: Any) -> bool:
    """A value of both cases and digits, as a generator writes and a name never is."""
    value = match.group(1)
    kinds = (any(65 <= b <= 90 for b in value), any(97 <= b <= 122 for b in value))
    digits = sum(48 <= b <= 57 for b in value)
    return all(kinds) and digits >= 3 and value.count(b"-") + value.count(b"_") < 4 and not is_placeholder(value)


def _cookie(text: bytes, match: Any) -> bool:
    return not is_placeholder(match.group(1)) and entropy(match.group(1)) >= 3.3


RULES: tuple[Rule, ...] = (
    Rule(
        "private_key",
        r"(-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----[^\x00\x01]*?-----END [A-Z0-9 ]{0,30}PRIVATE KEY"
        r"(?: BLOCK)?-----)",
        ("private key",),
        3.0,
        check=_key_body,
    ),
    Rule(
        "private_key",
        rf"({_BEGIN_KEY}(?:{_KEY_GAP}[A-Za-z0-9+/=]{{16,}})+)",
        ("private key",),
        3.0,
        check=_key_body,
        learnt=False,  # the beginning of a whole one
    ),
    Rule(
        "private_key",
        rf"({_BEGIN_KEY}(?:{_KEY_GAP}[A-Za-z0-9+/=]{{16,}})*{_KEY_GAP}[A-Za-z0-9+/=]{{4,15}})(?:[\r\n\\\x00\x01\"'`]|$)",
        ("private key",),
        3.0,
        check=_key_body,
        learnt=False,  # the beginning of a whole one
    ),
    Rule(
        "putty_key",
        r"PuTTY-User-Key-File-[0-9][^\x00]*?Private-Lines: [0-9]+\s+((?:[A-Za-z0-9+/=]{1,64}\s*)+)",
        ("putty-user-key-file",),
    ),
    Rule(
        "wireguard_key",
        rf"(?i:private_?key|preshared_?key){_Q}\s?(?:=|:|\x01)\s?{_Q}([A-Za-z0-9+/]{{42}}[AEIMQUYcgkosw048]=)",
        ("privatekey", "private_key", "presharedkey", "preshared_key"),
        4.0,
        strong=False,
    ),
    Rule("jwt", r"\b(ey[A-Za-z0-9_-]{8,}\.ey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})", ("eyj",), 3.5, check=_is_jwt),
    Rule(
        "jwt",
        r"\b(ey[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})",
        ("eyj",),
        3.5,
        check=_is_jwt,
    ),
    Rule(
        "url_password",
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,24}:(?://|\\/\\/)[^\s:/?#@\"'`<>\\\x00\x01]{0,100}:"
        r"([^\s/@\"'`<>\\\x00\x01]{3,200})@[^\s\"'`<>]",
        (),
        check=_url_password,
        strong=False,
        gate=r"(?://|\\/)[^\s/@\"'<>]+@",
    ),
    Rule(
        "url_token", r"\bhttps?://([A-Za-z0-9_-]{20,200})@[A-Za-z0-9]", (), 3.3, strong=False, gate=r"://[^\s/@\"'<>]+@"
    ),
    Rule(
        "bearer_token",
        r"(?i:bearer)(?:\s|%20|\\{0,3}[\"']){1,3}([A-Za-z0-9_.~+/=-]{16,1000})",
        ("bearer",),
        check=_bearer,
        strong=False,
    ),
    Rule("basic_auth", r"(?i:basic)\s+([A-Za-z0-9+/]{8,400}={0,2})", ("basic",), check=_basic, strong=False),
    Rule(
        "auth_header",
        rf"(?i:authorization|x-api-key|x-auth-token|x-access-token|private-token|x-vault-token|x-gitlab-token"
        rf"|api-key|apikey|x-goog-api-key|x-amz-security-token){_Q}\s?(?:=>|:|=|\x01)\s?{_Q}(?:(?i:token|apikey"
        rf"|api-key|key|negotiate)\s+)?([A-Za-z0-9_.~+/=-]{{12,1000}})",
        (
            "authorization",
            "x-api-key",
            "x-auth-token",
            "x-access-token",
            "private-token",
            "x-vault-token",
            "x-gitlab-token",
            "api-key",
            "apikey",
            "x-goog-api-key",
            "x-amz-security-token",
        ),
        3.0,
        strong=False,
        check=_bearer,
    ),
    Rule(
        "auth_header",
        r"[\x00\x01](?i:authorization|proxy-authorization|(?:[a-z]{1,12}-){0,3}(?:api-?key|(?:auth|access|private"
        r"|vault|gitlab|security|secret|csrf|session)-?token|secret-?key|secret))\x00([A-Za-z0-9_.~+/=-]{12,1000})\x00",
        (
            "authorization\x00",
            "key\x00",
            "token\x00",
            "secret\x00",
        ),
        3.0,
        strong=False,
        check=_listed_name,
    ),
    Rule(
        "netrc_password",
        rf"\b(?:machine\s+\S+|default)\s+(?:login|account)\s+\S+\s+(?:account\s+\S+\s+)?password\s+({_V}{{3,200}})",
        ("password",),
        check=_real,
        strong=False,
    ),
    Rule(
        "netrc_password",
        rf"\bmachine\s+\S+\s+password\s+({_V}{{3,200}})",
        ("machine ", "machine\t"),
        check=_real,
        strong=False,
    ),
    Rule(
        "pgpass_password",
        rf"(?:^|[\n\x00\x01\"']|\\n)[A-Za-z0-9.*-]{{1,80}}:(?:[0-9]{{2,5}}"
        rf"|\*):[A-Za-z0-9_*-]{{1,60}}:[A-Za-z0-9_.-]{{1,60}}:({_V}{{4,120}})(?:$|[\n\r\"'\x00\\])",
        (":5432:", ":*:", ":5433:", ":6432:"),
        check=_real,
        strong=False,
    ),
    Rule(
        "connection_password",
        r"(?i:;\s?(?:password|pwd|passwd)\s?=\s?)([^;\s\"'`<>\\\x00\x01]{4,120})(?:;|[\s\"'\x00\\]|$)",
        ("password", "pwd", "passwd"),
        check=_real,
        strong=False,
    ),
    Rule(
        "connection_password",
        r"(?i)(?:server|host|data source|user id|uid|user|dbname|initial catalog)\s?=[^;\n\x00]{1,120}[; ]"
        r"(?:[^\n\x00]{0,200}[; ])?\s?(?:password|pwd)\s?=\s?([^;\s\"'`<>\\\x00\x01]{4,120})",
        ("password", "pwd"),
        check=_real,
        strong=False,
    ),
    Rule(
        "cookie",
        r"(?i:\bcookie:\s|set-cookie:\s|--cookie[ =][\"']?|-b\s[\"'])"
        r"(?:[^\n\x00\"']{0,200}?;\s?)?[A-Za-z0-9_.-]*(?i:sess|sid|auth|token|jwt|csrf|login|remember"
        r"|id)[A-Za-z0-9_.-]*=([^;\s\"'\\\x00]{12,1000})",
        ("cookie", '-b "', "-b '"),
        check=_cookie,
        strong=False,
    ),
    Rule(
        "cookie",
        r"(?i:\b(?:connect\.sid|sessionid|phpsessid|jsessionid|asp\.net_sessionid|laravel_session|_session_id"
        r"|__host-[a-z_-]+|__secure-[a-z0-9_-]+|user_session|li_at|auth_session|remember_token))="
        r"([^;\s\"'\\\x00<>]{12,1000})",
        (
            "sid=",
            "sessionid=",
            "sessid=",
            "session=",
            "session_id=",
            "__host-",
            "__secure-",
            "li_at=",
            "remember_token=",
        ),
        check=_cookie,
        strong=False,
    ),
    Rule(
        "url_signature",
        r"(?i:[?&;](?:amp;)?(?:x-amz-signature|x-amz-security-token|x-goog-signature|signature|sig|hmac"
        r"|auth_token|access_token|refresh_token|id_token|api_?key|apikey|token|key|secret|client_secret"
        r"|password|passwd|pwd|auth|code|sas|subscription-key|appid|access_key)=)([A-Za-z0-9_.~+/%=-]{8,1000})",
        (
            "signature=",
            "sig=",
            "token=",
            "key=",
            "secret=",
            "password=",
            "passwd=",
            "pwd=",
            "auth=",
            "code=",
            "sas=",
            "appid=",
            "hmac=",
        ),
        strong=False,
        check=_cookie,
    ),
    Rule(
        "cli_password",
        r"(?i:(?:^|[\s\"'\x00\x01`])--?(?:[a-z]+-)?(?:password|passwd|passphrase|pass|pwd|token|secret|api-?key"
        r"|auth-?token|access-?token|access-?key|secret-?key|client-?secret|account-key|storage-key|private-key"
        r"|encryption-key|license-key|pat)(?:[ =]|\x00|\\{0,3}\"\s?,\s?\\{0,3}\"))\\{0,3}[\"']?"
        r"([^\s\"'`<>\\$\x00\x01-][^\s\"'`<>\\\x00\x01]{4,400})",
        (
            "-pass",
            "-pwd",
            "-token",
            "-secret",
            "-api-key",
            "-apikey",
            "-access-key",
            "-auth-token",
            "-client-secret",
            "-account-key",
            "-storage-key",
            "-private-key",
            "-encryption-key",
            "-license-key",
            "--pat",
        ),
        check=_real,
        strong=False,
    ),
    Rule(
        "curl_user",
        r"\b(?:curl|http|https|wget|xh)\b[^\n\x00]{0,400}?\s(?:-u|--user|-a|--auth|--proxy-user"
        r"|-U)[ =]?[\"']?[^\s:\"'\x00]{1,80}:([^\s\"'\\\x00<>]{4,200})",
        (),
        check=_real,
        strong=False,
        gate=r"\s(?:-u|--user|-a|--auth|--proxy-user|-U)[ =]?[\"']?[^\s:\"'\x00]+:",
    ),
    Rule(
        "curl_user",
        r"\x00(?:-u|--user)\x00[^\s:\x00]{1,80}:([^\s\x00<>]{4,200})\x00",
        ("\x00-u\x00", "\x00--user\x00"),
        check=_real,
        strong=False,
    ),
    Rule(
        "cli_password",
        rf"\b(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|mongosh?|mongodump){_ARG}{_ARGS}-p"
        r"([^\s\"'`\\\x00\x01<>-][^\s\"'`\\\x00\x01<>]{4,120})",
        ("mysql", "mariadb", "mongo"),
        check=_real,
        strong=False,
    ),
    Rule(
        "cli_password",
        rf"\b(?:sshpass{_ARG}-p{_ARG}?|redis-cli{_ARG}{_ARGS}(?:-a|--pass){_ARG}|mongo(?:sh|dump)?{_ARG}{_ARGS}-p{_ARG}"
        rf"|login{_ARG}{_ARGS}-p{_ARG})([^\s\"'`\\\x00\x01<>$-][^\s\"'`\\\x00\x01<>]{{4,160}})",
        ("sshpass", "redis-cli", "mongo", "login"),
        check=_real,
        strong=False,
    ),
    Rule("cli_password", r"\bsshpass\s+-p\s?[\"']?([^\s\"'`\\\x00<>]{3,120})", ("sshpass",), check=_real, strong=False),
    Rule(
        "cli_password",
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb|mongosh?|mongodump)\b[^\n\x00|;]{0,200}?\s-p\s?\\{0,3}[\"']?"
        r"([^\s\"'`\\\x00<>-][^\s\"'`\\\x00<>]{4,120})",
        ("mysql", "mariadb", "mongo"),
        check=_real,
        strong=False,
    ),
    Rule(
        "cli_password",
        r"\bredis-cli\b[^\n\x00|;]{0,120}?\s(?:-a|--pass)\s?[\"']?([^\s\"'`\\\x00<>]{4,160})",
        ("redis-cli",),
        check=_real,
        strong=False,
    ),
    Rule(
        "cli_password",
        r"\b(?:docker|podman|buildah|helm|skopeo|az|oc|cf)\s[^\n\x00|;]{0,160}?login\b[^\n\x00"
        r"|;]{0,160}?\s-p\s?\\{0,3}[\"']?([^\s\"'`\\\x00<>-][^\s\"'`\\\x00<>]{3,160})",
        ("login",),
        check=_real,
        strong=False,
    ),
    Rule(
        "cli_password",
        r"\bopenssl\b[^\n\x00]{0,200}?\bpass:([^\s\"'`\\\x00<>]{4,120})",
        ("openssl",),
        check=_real,
        strong=False,
    ),
    Rule(
        "piped_password",
        r"\becho\s+(?:-n\s+)?\\{0,3}[\"']?([^\s\"'`\\\x00<>|$]{6,200})\\{0,3}[\"']?\s*\|\s*(?:sudo\s+-S"
        r"|docker\s+login|gh\s+auth\s+login|\S+[^\n|]{0,80}--password-stdin|su\b|passwd\b|chpasswd\b)",
        ("sudo -s", "docker login", "gh auth login", "--password-stdin", "|su", "| su", "passwd"),
        check=_real,
        strong=False,
    ),
    Rule(
        "password_hash",
        r"(\$(?:2[abxy]|5|6|y|7|apr1|argon2(?:id?|d)|scrypt|pbkdf2-sha(?:256|512))\$[A-Za-z0-9./$,=+-]{20,300})",
        ("$2", "$5$", "$6$", "$y$", "$7$", "$apr1$", "$argon2", "$scrypt$", "$pbkdf2"),
        3.5,
    ),
    Rule(
        "seed_phrase",
        r"(?i:mnemonic|seed[ _-]?phrase|recovery[ _-]?phrase)\w*[\"']?\s?(?:=|:|is|\x01)\s?\\?[\"']?("
        r"(?:[a-z]{3,8}\s){11,23}[a-z]{3,8})",
        (
            "mnemonic",
            "seed phrase",
            "seed_phrase",
            "seedphrase",
            "seed-phrase",
            "recovery phrase",
            "recovery_phrase",
            "recoveryphrase",
            "recovery-phrase",
        ),
        strong=False,
    ),
    Rule(
        "secret",
        r"\bkey\\{0,3}[\"']?(?:\s?[:=]\s?|\x01)\\{0,3}[\"']?([A-Za-z0-9_-]{24,100})(?:[^\w/+=.-]|$)",
        ("key=", 'key"', "key\x01", "key:", "key\\"),
        4.0,
        strong=False,
        check=_generated,
        learnt=False,
    ),
    Rule(
        "wallet_key",
        r"(?i:(?:private|deployer|wallet|signer|secret)_?key|mnemonic)\w*[\"']?\s?(?:=|:|\x01)\s?\\?[\"']?("
        r"(?:0x)?[a-fA-F0-9]{64})\b",
        ("private_key", "privatekey", "deployer", "wallet", "signer", "secret_key", "secretkey", "mnemonic"),
        3.2,
        strong=False,
    ),
)
