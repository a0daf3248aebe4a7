"""What tells who and where a person is: home folders, user and host names, mail, network and phone addresses.

Invariants
- The person's own names are replaced wherever they stand as a word; other people's only where the place says what
  they are (a home folder, an author line, a shell prompt).
- Names that belong to no person (`root`, `runner`, `agent`, …) and addresses that reach none (loopback, documentation
  ranges, example domains, bots) are kept.
- Phone numbers are taken only where they are written as such: the shape alone also fits times and sums.
"""

from __future__ import annotations

import functools
import ipaddress
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from harness_adapters.scrub.finding import Span, WordGate

NOBODY = frozenset(
    b"""root user users admin administrator agent runner runneradmin ubuntu debian ec2-user vagrant node app docker dev
    developer build builder ci github gitlab jenkins circleci travis vscode codespace gitpod coder jovyan linuxbrew
    shared public guest default test tests tester demo example username your-username youruser yourname you me name
    user1 user2 foo bar baz someone somebody nobody daemon www www-data nginx postgres mysql redis git claude codex pi
    opencode hermes openhands sandbox workspace work home node_modules library applications localhost local host alice
    bob john jane johndoe janedoe all account container appuser nonroot pwuser oracle pi-user ${user} $user user_name
    root-user myuser xxx kernel version""".split()
)
_NO_PERSON = frozenset({b"john doe", b"jane doe", b"your name", b"test user", b"copilot", b"claude", b"and", b"github"})
_ASSISTANTS = (b"claude", b"gpt", b"codex", b"copilot", b"gemini", b"cursor", b"opencode", b"openhands", b"devin")
_ANYONE = (
    rb"(?i)(?:noreply|no-reply|donotreply|do-not-reply|mailer-daemon|\[bot\]|-bot@|^bot@|dependabot|renovate"
    rb"|github-actions|^git@|^user@|^you@|^your|^test@|^admin@localhost|^example@|^name@|^username@|^foo@|^email@|^someone@)"
)
_NO_DOMAIN = (
    rb"(?i)(?:^|\.)(?:example\.(?:com|org|net|edu|co)|example|test|invalid|localhost|local|domain\.com"
    rb"|email\.com|company\.com|acme\.com|foo\.com|bar\.com|yourdomain\.com|mydomain\.com|your-?company\.com)$"
)
_TOP = rb"""com org net edu gov mil int info biz name pro io dev app ai me co tech cloud online site xyz email page team
    science academy systems agency company digital software solutions studio design network services world live blog
    ac ad ae af ag al am ao aq ar as at au aw az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc cd cf cg ch
    ci cl cm cn cr cu cv cx cy cz de dj dk dm do dz ec ee eg es et eu fi fj fk fm fo fr ga gb gd ge gf gg gh gi gl gm gn
    gp gq gr gs gt gu gy hk hn hr ht hu id ie il im in iq ir is it je jm jo jp ke kg kh ki km kn kr kw ky kz la lb lc li
    lk lr ls lt lu lv ly ma mc md mg mk ml mm mn mo mp mr ms mt mu mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om
    pa pe pf pg ph pk pl pn pr ps pt pw qa re ro rs ru rw sa sb sc sd se sg si sk sl sm sn sr st su sv sx sz tc td tf tg
    tj tk tl tm tn to tr tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw""".split()
_TOP_DOMAINS = frozenset(_TOP)
_PUBLIC_SERVERS = frozenset(
    b"8.8.8.8 8.8.4.4 1.1.1.1 1.0.0.1 9.9.9.9 169.254.169.254 1.2.3.4 4.4.4.4 168.63.129.16".split()
)
_NOWHERE = tuple(
    ipaddress.ip_network(net)
    for net in (
        *("127.0.0.0/8", "0.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        *("::/127", "2001:db8::/32", "ff00::/8", "fe80::/127"),
    )
)  # fmt: skip
_VERSION_BEFORE = re.compile(rb"(?i)(?:\bv|ver(?:sion)?[\s:=\"'\x01]{1,4}|[=~^<>]=?\s?|[a-z]/|[a-z]-|[a-z]@|\d\.|\$)$")
_ASSIGNED_BEFORE = re.compile(
    rb"(?i)(?:ip|addr|address|host|server|hostname|listen|bind|gateway|dns|remote|from|to|peer|url)\w*\s?[=:]=?\s?$"
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of personal detail; group 1 is the detail, where there is one, else the match."""

    kind: str
    pattern: str
    words: tuple[bytes, ...]
    """One of them stands in every text that the pattern matches; none where the pattern is cheap enough by itself."""
    check: Callable[[bytes, int, int], bool]
    """(whole text, where the detail starts and ends) -> whether it is one."""


def _person_name(text: bytes, start: int, end: int) -> bool:
    name = text[start:end].lower()
    return name not in NOBODY and not name.startswith((b"<", b"$", b"{", b"%", b"*", b".", b"["))


_FIRST_NAMES = frozenset(b"alice bob john jane johndoe janedoe".split())
"""Names of nobody in examples, but of somebody where they have a home."""


def _home_owner(text: bytes, start: int, end: int) -> bool:
    return text[start:end].lower() in _FIRST_NAMES or _person_name(text, start, end)


def _author(text: bytes, start: int, end: int) -> bool:
    name = text[start:end].strip().lower()
    if b"[bot]" in name or name in _NO_PERSON or name.startswith(_ASSISTANTS) or name in NOBODY or b"<" in name:
        return False
    if not any(65 <= byte <= 90 or byte > 127 for byte in text[start:end]) and b" " not in name:
        return False
    address = text[end : end + 80]
    return not re.search(rb"(?i)<(?:\d+\+)?(?:no-?reply|copilot|claude|cursoragent|[^>]*\[bot\])|^\W*bot\b", address)


def _mail(text: bytes, start: int, end: int) -> bool:
    address = text[start:end]
    kind = _mailbox(address)
    if kind and text[end : end + 1] == b":" and text[end + 1 : end + 2].isalpha():
        return address.partition(b"@")[0] not in (b"git", b"root", b"hg")  # scp-like remote
    return kind == _PERSONS


_NO_MAILBOX, _NO_TOP_DOMAIN, _PERSONS = range(3)
_ANYONE_BUT_A_USER = re.compile(rb"(?i)\[bot\]|dependabot|renovate|github-actions")


@functools.lru_cache(maxsize=4096)
def _mailbox(address: bytes) -> int:
    """Whether an address is nobody's, one in no known top domain, or a person's. The same ones come again and again."""
    domain = address.rpartition(b"@")[2]
    if re.search(_ANYONE, address) and not re.search(rb"(?i)\d+\+[a-z0-9-]+@users\.noreply", address):
        return _NO_MAILBOX
    if _ANYONE_BUT_A_USER.search(address) or re.search(_NO_DOMAIN, domain):
        return _NO_MAILBOX
    return _PERSONS if domain.rpartition(b".")[2].lower() in _TOP_DOMAINS else _NO_TOP_DOMAIN


def _ipv4(text: bytes, start: int, end: int) -> bool:
    value = text[start:end]
    parts = value.split(b".")
    if any(int(part) > 255 or (len(part) > 1 and part.startswith(b"0")) for part in parts) or value in _PUBLIC_SERVERS:
        return False
    address = ipaddress.ip_address(value.decode())
    if any(address in net for net in _NOWHERE) or value.endswith(b".0"):
        return False
    before = text[max(0, start - 14) : start]
    after = text[end : end + 2]
    if re.match(rb"\.\d|[-+][a-z0-9]|[a-z_]", after):
        return False
    if _VERSION_BEFORE.search(before) and not _ASSIGNED_BEFORE.search(before) and not before.endswith(b"//"):
        return bool(re.search(rb"(?i)[a-z0-9_]@$", before)) and max(map(int, parts)) > 30
    return address.is_private or max(map(int, parts)) > 30


def _ipv6(text: bytes, start: int, end: int) -> bool:
    value = text[start:end]
    groups = [group for group in value.split(b":") if group]
    try:
        address = ipaddress.ip_address(value.decode())
    except ValueError:
        return False
    if any(address in net for net in _NOWHERE if net.version == 6):
        return False
    plausible = re.match(rb"(?i)(?:2[0-9a-f]{3}|3[0-9a-f]{3}|f[cd][0-9a-f]{2}|fe80):", value) is not None
    return plausible and len(groups) >= 3 and any(len(group) >= 3 for group in groups[1:])


def _mac(text: bytes, start: int, end: int) -> bool:
    value = text[start:end].lower().replace(b"-", b":")
    around = text[start - 1 : start] + text[end : end + 1]
    if re.search(rb"[:0-9a-fA-F-]", around):
        return False
    return (
        len(set(value.split(b":"))) > 2
        and not value.startswith(b"00:00:5e:00:53")
        and value != b"00:11:22:33:44:55"
        and value != b"aa:bb:cc:dd:ee:ff"
    )


def _phone(text: bytes, start: int, end: int) -> bool:
    digits = re.sub(rb"\D", b"", text[start:end])
    return (
        9 <= len(digits) <= 15
        and len(set(digits)) > 3
        and not re.search(rb"55501\d\d$", digits)
        and b"123456" not in digits
    )


def _host(text: bytes, start: int, end: int) -> bool:
    name = text[start:end].lower()
    return name not in NOBODY and len(name) >= 3 and not name.startswith((b"<", b"$"))


_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,38}"

PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "user",
        rf"(?:/home/|/Users/|[A-Za-z]:[\\/]{{1,4}}Users[\\/]{{1,4}}|/mnt/[a-z]/Users/|%2FUsers%2F"
        rf"|%2Fhome%2F)({_NAME})",
        (b"/home/", b"Users", b"%2Fhome"),
        _home_owner,
    ),
    Pattern(
        "user",
        r"(?:^|[/\\\s\"'\x00\x01=(-])-(?:Users|home)-([A-Za-z0-9_.]{2,39})(?:-|$|/|[\x00\"'])",
        (b"-Users-", b"-home-"),
        _home_owner,
    ),
    Pattern(
        "user",
        r"(?:\b(?:USER|LOGNAME|USERNAME|SUDO_USER)(?:=|\x01))([A-Za-z0-9_.-]{2,40})\b",
        (b"USER=", b"LOGNAME", b"USERNAME", b"USER\x01"),
        _person_name,
    ),
    Pattern(
        "user",
        r"\b([a-z_][a-z0-9_-]{1,31})@[A-Za-z][A-Za-z0-9-]{2,40}(?::[~/][^\s$#]{0,120}\$|\s[~/]?[\w.-]{0,60}\s?[%$])\s",
        (b"@",),
        _person_name,
    ),
    Pattern(
        "user",
        r"(?:^|[\n\x00\x01]|\\n)[bcdlps-][rwxsStT-]{9}[+@.]?[ \t]+\d+[ \t]+"
        r"([A-Za-z_][A-Za-z0-9_.-]{2,31})[ \t]+[A-Za-z_][\w.-]*[ \t]+\d",
        (b"rw", b"r--", b"r-x"),
        _person_name,
    ),
    Pattern(
        "host",
        r"(?:\b[a-z_][a-z0-9_-]{1,31}@)([A-Za-z][A-Za-z0-9-]{2,40})(?::[~/][^\s$#]{0,120}[$#]"
        r"|\s[~/]?[\w.-]{0,60}\s?[%$])\s",
        (b"@",),
        _host,
    ),
    Pattern(
        "host",
        r"(?:\b(?:HOSTNAME|COMPUTERNAME|HOST)=)([A-Za-z0-9][A-Za-z0-9.-]{2,60})",
        (b"HOST=", b"HOSTNAME=", b"COMPUTERNAME="),
        _host,
    ),
    Pattern(
        "host",
        r"\b(?:Linux|Darwin|FreeBSD)\s([A-Za-z0-9][A-Za-z0-9.-]{2,60})\s\d{1,2}\.\d{1,3}[.-]\d",
        (b"Linux", b"Darwin", b"FreeBSD"),
        _host,
    ),
    Pattern(
        "host",
        r"\b([A-Za-z0-9-]*(?:MacBook|iMac|Mac-?mini|Mac-?Studio|Mac-?Pro)[A-Za-z0-9-]*(?:\.local|\.lan)|"
        r"(?:DESKTOP|LAPTOP|WIN)-[A-Z0-9]{6,12})\b",
        (b"MacBook", b"iMac", b"Mac-", b"Macmini", b"MacPro", b"MacStudio", b"DESKTOP-", b"LAPTOP-", b"WIN-"),
        _host,
    ),
    Pattern(
        "email",
        # no group: the search for a match is then twice as fast
        r"\b[A-Za-z0-9][A-Za-z0-9._%+\[\]-]{0,63}@[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,10}\b",
        (b"@",),
        _mail,
    ),
    Pattern(
        "person",
        r"(?:(?i:author|committer|co-authored-by|signed-off-by|reviewed-by|acked-by|tested-by|reported-by"
        r"|tagger):[ \t]+)([^\s<>@\n\\\x00][^<>@\n\\\x00]{1,60}?)[ \t]+<[^<>\s]*@",
        (b"uthor", b"ommitter", b"-by: ", b"-By: ", b"agger: "),
        _author,
    ),
    Pattern(
        "person",
        r"(?:\bGIT_(?:AUTHOR|COMMITTER)_NAME=|user\.name[= ])[\"']?([^\"'\n\\\x00=<>$]{2,60}?)(?:[\"'\n\\\x00]|$)",
        (b"GIT_AUTHOR_NAME", b"GIT_COMMITTER_NAME", b"user.name"),
        _author,
    ),
    Pattern("ip", r"\b([0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3})\b", (), _ipv4),
    Pattern("ip", r"(?:^|[^0-9A-Za-z:.])([23fF][0-9A-Fa-f]{3}(?::{1,2}[0-9A-Fa-f]{1,4}){2,7})\b", (), _ipv6),
    Pattern("mac", r"\b([0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){5}|(?:-[0-9A-Fa-f]{2}){5}))\b", (), _mac),
    Pattern(
        "phone",
        r"(?i:\b(?:phone|tel|telephone|mobile|cell|fax|whatsapp|call(?: me)?(?: at| on)?|sms|signal|handy"
        r"|tlf)[a-z ]{0,12}[\"']?[:.=\x01]?\s?[\"']?)(\+?\(?[0-9][0-9() ./-]{7,18}[0-9])\b",
        (),
        _phone,
    ),
    Pattern(
        "phone",
        r"(?:^|[\s(\"'\x01\x00:])(\+[1-9][0-9]{0,2}[ -]\(?[0-9]{2,4}\)?[ -][0-9]{3,4}[ -][0-9]{3,4})\b",
        (),
        _phone,
    ),
)


_AT = (b"@",)
_BEFORE_AT, _AFTER_AT = 65, 400
"""Bytes around an `@` that a pattern of it may take: 64 of a local part, a host and a prompt or a long domain."""
_EVERYDAY = frozenset({b"@", b"/home/", b"Users", b"%2Fhome", b"rw", b"r--", b"r-x"})


class PersonalFinder:
    """The patterns above, and the person's own names (`own`: value -> kind), which are replaced as whole words."""

    def __init__(self, own: dict[bytes, str]) -> None:
        patterns = [(p, re2.compile(p.pattern.encode())) for p in PATTERNS]
        self._shaped = [pair for pair in patterns if not pair[0].words]
        self._everyday = [pair for pair in patterns if _EVERYDAY & {*pair[0].words}]
        self._rare = [pair for pair in patterns if pair[0].words and not _EVERYDAY & {*pair[0].words}]
        self._any_shape = re2.compile(b"|".join(p.pattern.encode() for p, _ in self._shaped))
        self._rare_words = WordGate((word, number) for number, (p, _) in enumerate(self._rare) for word in p.words)
        self._own = own
        words = sorted(own, key=len, reverse=True)
        self._own_words = re2.compile(b"|".join(map(re2.escape, words))) if words else None

    def spans(self, text: bytes) -> Iterator[Span]:
        if self._own_words is not None:
            for match in self._own_words.finditer(text):
                if _is_word(text, match.start(), match.end()):
                    value = match.group()
                    yield Span(match.start(), match.end(), self._own[value], value)
        for pattern, compiled, windows in self._worth_trying(text):
            group = compiled.groups
            for match in itertools.chain.from_iterable(compiled.finditer(text, *window) for window in windows):
                start, end = match.span(group)
                if pattern.check(text, start, end):
                    yield Span(start, end, pattern.kind, text[start:end])

    def _worth_trying(self, text: bytes) -> Iterator[tuple[Pattern, Any, Sequence[tuple[int, int]]]]:
        """The patterns that may match, each with the parts of the text where it may."""
        whole = [(0, len(text))]
        shaped = self._shaped if self._any_shape.search(text) is not None else ()
        rare = [self._rare[number] for number in sorted(self._rare_words.chosen(text))]
        around_at = _around_at(text)
        for pattern, compiled in itertools.chain(shaped, rare):
            yield pattern, compiled, whole
        for pattern, compiled in self._everyday:
            if pattern.words == _AT:
                yield pattern, compiled, around_at
            elif any(word in text for word in pattern.words):
                yield pattern, compiled, whole


def _around_at(text: bytes) -> list[tuple[int, int]]:
    """The parts of a text that are near enough to an `@` for an address or a prompt. They do not touch: a pattern that
    looks at the byte beside its part sees what is there."""
    windows: list[tuple[int, int]] = []
    place = text.find(b"@")
    while place >= 0:
        start, end = max(0, place - _BEFORE_AT), place + _AFTER_AT
        if windows and start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
        place = text.find(b"@", place + 1)
    return windows


def _is_word(text: bytes, start: int, end: int) -> bool:
    """Neither side goes on with a letter or digit; `\\n` and `\\t` left in a text are no letters."""
    before, after = text[start - 1 : start] if start else b"", text[end : end + 1]
    escaped = start >= 2 and text[start - 2 : start] in (b"\\n", b"\\t", b"\\r")
    return (escaped or not before.isalnum()) and not after.isalnum()
