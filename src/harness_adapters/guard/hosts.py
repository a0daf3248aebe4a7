"""Host names: one spelling for each, who declared it, and whether it is the machine itself.

Only text of the user declares a host. What a tool printed or the model wrote does not: a call that echoes an address
would otherwise allow itself. Nor does the harness's own prompt, which names its makers' pages.

Invariant: two spellings that a resolver takes for one address (octal IPv4, mapped IPv6, a trailing dot, punycode)
normalise to one string.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

from harness_adapters.guard.hubs import place
from harness_adapters.guard.memo import remembered
from harness_adapters.guard.values import ANY, MADE, ONE, STAR, UNSET, names

URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,20}):[/\\]{2,}([^\s/\\?#'\"<>`,;|)}]*)([/\\][^\s?#'\"<>`,;|)}\]]*)?")
"""A URL anywhere in a text: scheme, authority, path."""
SCP_ADDRESS = re.compile(r"^(?:[\w.+-]+@)([\w.-]+\.[\w-]+|\[[0-9a-fA-F:]+\]|[\w-]+):(?!//)(\S*)")
"""`user@host:path`, as git, scp and rsync take it."""

_UNKNOWN = re.compile(f"[{ANY}{UNSET}{MADE}{STAR}{ONE}]")
_DOMAIN = re.compile(r"(?<![\w@./-])(?:[\w-]+\.)+([A-Za-z][\w-]{1,24})\.?(?![\w@-])(/[\w./%+-]+)?")
_NAME_AND_PORT = re.compile(r"(?<![\w./:@-])([A-Za-z][\w.-]*):(\d{2,5})(?!\w)")
_ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]\d)")
_DISGUISED = re.compile(r"(?:\d{4,}|(?:\w+\.){0,3}0(?:x[0-9a-f]+|[0-7]+)(?:\.\w+){0,3})\.?$", re.IGNORECASE)
_REMOTE = re.compile(r"(?<![\w.+-])[\w.+-]+@([\w-]+(?:\.[\w-]+)+):([\w./-]*)")
_HOST_LIST = re.compile(r"\bhosts?\b[^:\n]{0,40}:\s*([^\n]+)", re.IGNORECASE)
_FILE_SUFFIXES = frozenset(
    names(
        "py md sh txt json jsonl csv tsv toml yaml yml ini cfg js ts tsx jsx go rs c h cc cpp hpp java rb "
        "pl php html css xml svg png jpg gif pdf zip gz tar log lock sql db sqlite ipynb parquet bak tmp "
        "diff patch out err conf env exe so bin md5 pem crt key csr der p12 wasm woff ttf mp4 wav"
    )
)

_MAX_HOST = 1_024
"""No name that a resolver takes is longer, by far."""


class Endpoint(NamedTuple):
    """A normalised host and, where one was written, a port. `host` is empty when it cannot be known; on a hub it goes
    on with the place that is meant (`hub/owner/name`, see `hubs`)."""

    host: str
    port: str = ""


def normalise(host: str) -> str:
    """One spelling for one host; empty where a piece of it is unknown, or where it is too long for one."""
    if not host or len(host) > _MAX_HOST or _UNKNOWN.search(host):
        return ""
    host = unquote(host).strip("[]").rstrip(".").lower()
    address = _numeric(host)
    if address is not None:
        return str(address)
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def _numeric(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if ":" in host:
        try:
            six = ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError:
            return None
        return six.ipv4_mapped or six
    parts = host.split(".")
    if len(parts) > 4 or not parts[-1][:1].isdigit():
        return None
    numbers = [_number(part) for part in parts]
    if any(number is None for number in numbers):
        return None
    value = 0
    for number in numbers[:-1]:
        value = value * 256 + (number or 0) % 256
    value = (value << (8 * (5 - len(parts)))) + (numbers[-1] or 0)
    return ipaddress.IPv4Address(value % 2**32)


def _number(text: str) -> int | None:
    if len(text) > 20:
        return None
    try:
        if re.fullmatch(r"0x[0-9a-f]+", text):
            return int(text, 16)
        if re.fullmatch(r"0[0-7]+", text):
            return int(text, 8)
        return int(text) if re.fullmatch(r"[0-9]+", text) else None
    except ValueError:
        return None


def endpoint(authority: str, path: str = "") -> Endpoint:
    """The endpoint in `user:password@host:port`. An address that is written as nobody who means it openly writes it
    (one number, hexadecimal, octal) counts as unknown."""
    rest = authority.rpartition("@")[2]
    bracketed = re.match(r"^\[([^]]*)\](?::(\d*))?", rest)
    if bracketed:
        return Endpoint(normalise(bracketed[1]), bracketed[2] or "")
    host, colon, port = rest.partition(":")
    if colon and ":" in port:
        return Endpoint(normalise(rest))
    name = "" if _DISGUISED.match(host) else normalise(host)
    return Endpoint(place(name, path), port if port.isdigit() else "")


def url_endpoints(text: str) -> list[Endpoint]:
    """The endpoints of all URLs in `text`, except those of `file:`."""
    if ":/" not in text and ":\\" not in text:
        return []
    found = dict.fromkeys(URL.findall(text))
    return [endpoint(authority, path) for scheme, authority, path in found if scheme.lower() != "file"]


def scp_endpoint(text: str) -> Endpoint:
    """The endpoint of `user@host:path`; one without a host where the text is something else."""
    match = SCP_ADDRESS.match(text)
    return endpoint(match[1], match[2]) if match else Endpoint("")


def is_loopback(host: str) -> bool:
    """Whether the host is this machine (inside the sandbox: the agent's own servers)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def bare_endpoint(text: str) -> Endpoint:
    """The endpoint in `host/path`, an address without its scheme."""
    authority, path = re.split(r"(?=[/\\?#\s]|$)", text, maxsplit=1)
    return endpoint(authority, path)


def looks_like_host(word: str) -> bool:
    """Whether a word without a scheme reads as a host: a dotted name with a plausible last label, or an address."""
    name = word.rpartition("@")[2].partition("/")[0]
    if name.startswith("["):
        return True
    name = name.partition(":")[0].rstrip(".")
    if re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", name):
        return True
    match = re.fullmatch(r"(?:[\w-]+\.)+([A-Za-z][\w-]{1,24})", name)
    return bool(match) and match is not None and match[1].lower() not in _FILE_SUFFIXES


def declared_in(texts: Iterable[str]) -> frozenset[str]:
    """The hosts that texts of the user name, normalised."""
    return frozenset().union(*(_declared(text) for text in texts))


@remembered()
def _declared(text: str) -> frozenset[str]:
    found = {end.host for end in url_endpoints(text)}
    if "." in text:
        found.update(normalise(match[0]) for match in _ADDRESS.finditer(text))
        for named in _DOMAIN.finditer(text):
            if named[1].lower() not in _FILE_SUFFIXES:
                path = named[2] or ""
                found.add(place(normalise(named[0].removesuffix(path)), path))
    if ":" in text:
        found.update(normalise(match[1]) for match in _NAME_AND_PORT.finditer(text))
        for remote in _REMOTE.finditer(text) if "@" in text else ():
            found.add(place(normalise(remote[1]), remote[2]))
        for listed in _HOST_LIST.findall(text):
            found.update(normalise(word) for word in re.findall(r"[\w-]+(?:\.[\w-]+)*", listed.partition("(")[0]))
    found.discard("")
    return frozenset(found)
