"""Images and other base64 in sessions: large, unreadable, and as likely to show something private as any text.

Dropped are `data:` URLs, strings that are nothing but base64, and long runs or columns of base64 within a text. Kept
are public keys and certificates, and whatever stands in an identifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import re2

from harness_adapters.scrub.finding import Span

LEAST = 256
IMAGE, BLOB = "image", "blob"

_DATA_URL = re2.compile(rb"data:([a-z]+/[A-Za-z0-9.+-]+)?(?:;[A-Za-z0-9=._-]+)*;base64,([A-Za-z0-9+/=_%-]{16,})")
_COLUMN = re2.compile(rb"(?:[A-Za-z0-9+/]{60,}(?:\r?\n|\\n)[ \t>|]*){3,}[A-Za-z0-9+/]*={0,2}")
_RUN = re2.compile(rb"[A-Za-z0-9+/_-]{%d,}={0,2}" % LEAST)
_ANY = re2.compile(rb"[A-Za-z0-9+/_-]{%d}|" % LEAST + _COLUMN.pattern)
"""Either of the two above, in one pass."""
_PUBLIC_BEFORE = re.compile(
    rb"(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+)\s+$|-----BEGIN (?:[A-Z0-9 ]*PUBLIC KEY(?: BLOCK)?|CERTIFICATE"
    rb"(?: REQUEST)?|X509 CRL|PGP SIGNATURE|SSH SIGNATURE)-----[^-]{0,4000}$"
)
_IMAGE_HEADS = (
    b"iVBORw0KGgo",
    b"/9j/",
    b"R0lGOD",
    b"UklGR",
    b"Qk0",
    b"PHN2Zy",
    b"AAAAIGZ0eXBhdmlm",
    b"SUkqA",
    b"TU0AK",
)


class BlobFinder:
    """Spans whose value is not kept at all; their kind is `image` or `blob`."""

    def spans(self, text: bytes) -> Iterator[Span]:
        if b";base64," in text:
            for match in _DATA_URL.finditer(text):
                start, end = match.span()
                kind = IMAGE if (match.group(1) or b"").startswith(b"image/") or _is_image(match.group(2)) else BLOB
                yield Span(start, end, kind, b"")
        if len(text) < LEAST or _ANY.search(text) is None:
            return
        for match in _RUN.finditer(text):
            if _is_base64(match.group()) and not _PUBLIC_BEFORE.search(
                text[max(0, match.start() - 4096) : match.start()]
            ):
                start, end = match.span()
                yield Span(start, end, IMAGE if _is_image(match.group()) else BLOB, b"")
        for column in _COLUMN.finditer(text):
            start, end = column.span()
            if (
                end - start >= LEAST
                and _is_base64(column.group())
                and not _PUBLIC_BEFORE.search(text[max(0, start - 4096) : start])
            ):
                yield Span(start, end, IMAGE if _is_image(column.group()) else BLOB, b"")


def _is_base64(run: bytes) -> bool:
    """Letters of both cases and digits, well mixed: no ruler, path or hex dump is."""
    sample = run[:512]
    kinds = (
        any(65 <= b <= 90 for b in sample),
        any(97 <= b <= 122 for b in sample),
        any(48 <= b <= 57 for b in sample),
    )
    return all(kinds) and len(set(sample)) >= 24


def _is_image(run: bytes) -> bool:
    return run.startswith(_IMAGE_HEADS)
