"""The secrets that are live on this machine: what must not leave it, whatever form its provider gave it.

Where from: environment variables with names that say so, `~/.netrc`, `~/.git-credentials`, the hub's token files, and
the files where harnesses and common tools keep their keys. Values are held in memory and never printed.

Found are the value itself, its base64 at all three alignments (both alphabets), its URL-encoded form, also with every
byte encoded, and its hex, bare or as escapes (`\\x5a`), in either case of letters. The whole base64 run around a hit
goes, since its neighbours may be a user name or the rest of a header.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import re2

from harness_adapters.scrub.finding import Span
from harness_adapters.scrub.placeholder_values import is_placeholder

_SHORTEST = 8
_NAME = re.compile(
    r"(?i)(?:key|token|secret|passw|passwd|passphrase|credential|auth|pwd|_pass$|_pat$|_dsn$|_jwt$|cookie"
    r"|webhook|database_url|_uri$)"
)
_NOT_NAME = re.compile(
    r"(?i)(?:sock|askpass|keyboard|keymap|_file$|_path$|_dir$|_id$|_name$|tokenizers_parallelism|authority$)"
)
_FILES = (
    ".cache/huggingface/token",
    ".huggingface/token",
    ".pi/agent/auth.json",
    ".pi/agent/models.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".local/share/opencode/auth.json",
    ".config/opencode/opencode.json",
    ".hermes/.env",
    ".hermes/auth.json",
    ".netrc",
    ".git-credentials",
    ".config/gh/hosts.yml",
    ".npmrc",
    ".pypirc",
    ".aws/credentials",
    ".docker/config.json",
    ".kaggle/kaggle.json",
    ".config/wandb/settings",
)
_MAX_FILE_BYTES = 1 << 20
_ASSIGNED = re.compile(
    r"(?im)^[\s\"'-]*([\w./:@-]*(?:key|token|secret|passw\w*|auth\w*|credential\w*)[\w-]*)[\"']?\s*[=:]\s*[\"']?"
    r"([^\s\"',]+)"
)


def live_secrets(environ: Mapping[str, str], home: Path) -> dict[bytes, str]:
    """Value -> kind (`env_secret`, `own_secret`). Files that are absent or unreadable are passed over."""
    found: dict[bytes, str] = {}
    for name, value in environ.items():
        if _NAME.search(name) and not _NOT_NAME.search(name):
            for part in _parts(value):
                found.setdefault(part.encode(), "env_secret")
    paths = [home / name for name in _FILES]
    paths += [Path(environ[name]) for name in ("HF_TOKEN_PATH", "NETRC") if environ.get(name)]
    if environ.get("HF_HOME"):
        paths.append(Path(environ["HF_HOME"]) / "token")
    for path in paths:
        for value in _file_values(path):
            found.setdefault(value.encode(), "own_secret")
    return found


def _parts(value: str) -> Iterator[str]:
    """What of a variable's value is secret: itself, or the password where it is a URL."""
    value = value.strip()
    url = re.match(r"[a-z][a-z0-9+.-]*://[^\s:/@]*:([^\s/@]+)@", value)
    if url:
        yield from (part for part in (url[1], urllib.parse.unquote(url[1])) if _counts(part))
    elif _counts(value):
        yield value


def _counts(value: str) -> bool:
    """Long enough, no path, no sentence, no stand-in, more than digits."""
    if len(value) < _SHORTEST or value.startswith(("/", "~", "./", "http://", "https://")) or " " in value:
        return False
    return not is_placeholder(value.encode()) and not re.fullmatch(
        r"[\d.,:-]+|[a-z]+|[A-Z]+|[a-z]+(?:[-_.][a-z]+)+", value
    )


def _file_values(path: Path) -> Iterator[str]:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            return
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    candidates: list[str] = []
    if path.name == "token" or "\n" not in text.strip():
        candidates.append(text.strip())
    candidates += _json_values(text)
    candidates += [match[2] for match in _ASSIGNED.finditer(text)]
    candidates += re.findall(r"\bpassword\s+(\S+)", text) + re.findall(r"://[^\s:/@]*:([^\s/@]+)@", text)
    yield from (value for value in dict.fromkeys(candidates) if _counts(value) and len(value) < 8192)


def _json_values(text: str) -> list[str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return list(_secret_strings(value, False))


def _secret_strings(value: Any, named: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            secret = bool(_NAME.search(key) or key in ("access", "refresh")) and not _NOT_NAME.search(key)
            yield from _secret_strings(inner, secret)
    elif isinstance(value, list):
        for inner in value:
            yield from _secret_strings(inner, named)
    elif isinstance(value, str) and named:
        yield value


def _many_words() -> Any:
    """re2's options for thousands of words at once: room for them, and no word of its own where it is short of it (it
    goes on by a slower way)."""
    options = re2.Options()
    options.max_mem = 256 << 20
    options.log_errors = False
    return options


class OwnSecretFinder:
    """Finds the given values in all their forms."""

    def __init__(self, secrets: Mapping[bytes, str]) -> None:
        self._forms: dict[bytes, tuple[bytes, str, bool]] = {}
        for value, kind in secrets.items():
            for form, encoded in _forms(value):
                self._forms.setdefault(form, (value, kind, encoded))
        forms = sorted(self._forms, key=len, reverse=True)
        self._any = re2.compile(b"|".join(map(re2.escape, forms)), options=_many_words()) if forms else None

    def spans(self, text: bytes) -> Iterator[Span]:
        if self._any is None:
            return
        for match in self._any.finditer(text):
            value, kind, encoded = self._forms[match.group()]
            start, end = match.span()
            if encoded:
                start, end = _base64_run(text, start, end)
            yield Span(start, end, kind, value, strong=True)


def _forms(value: bytes) -> Iterator[tuple[bytes, bool]]:
    """(form, is base64) of a value. Of a base64 only the characters that its neighbours cannot change are taken."""
    yield value, False
    yield json.dumps(value.decode(errors="replace"))[1:-1].encode(), False
    quoted = {urllib.parse.quote(value, safe=""), urllib.parse.quote_plus(value), urllib.parse.quote(value)}
    for form in quoted:
        yield form.encode(), False
        yield re.sub(r"%[0-9A-F]{2}", lambda m: m[0].lower(), form).encode(), False
    for lead in ("%", "", "\\x"):
        for digits in ("02X", "02x"):
            yield "".join(f"{lead}{byte:{digits}}" for byte in value).encode(), False
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + value)
        first = (shift * 8 + 5) // 6
        last = (shift + len(value)) * 8 // 6
        core = whole[first:last]
        if len(core) >= _SHORTEST:
            yield core, True
            yield core.translate(bytes.maketrans(b"+/", b"-_")), True


_RUN_BACK = re.compile(rb"[A-Za-z0-9+/_-]*$")
_RUN_ON = re.compile(rb"[A-Za-z0-9+/_-]*={0,2}")


def _base64_run(text: bytes, start: int, end: int) -> tuple[int, int]:
    back = _RUN_BACK.search(text[max(0, start - 4096) : start])
    ahead = _RUN_ON.match(text, end)
    return start - len(back.group() if back else b""), ahead.end() if ahead else end
