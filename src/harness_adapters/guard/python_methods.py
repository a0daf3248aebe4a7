"""String methods and decoders of Python on values: the part of constant folding that needs no syntax tree."""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Callable, Mapping

from harness_adapters.guard.values import ANY, MADE, is_known, join


def decode(name: str, value: str) -> str:
    if not is_known(value):
        return MADE if name not in ("decode", "loads") else value
    try:
        match name:
            case "rot13":
                return codecs.decode(value, "rot13")
            case "b64decode":
                return base64.b64decode(value).decode("utf-8", "replace")
            case "b32decode":
                return base64.b32decode(value).decode("utf-8", "replace")
            case "fromhex" | "unhexlify":
                return bytes.fromhex(value).decode("utf-8", "replace")
            case "decode" | "loads":
                return value
    except (ValueError, binascii.Error):
        return MADE
    return MADE


def _replace(values: list[str], arguments: list[list[str]]) -> list[str]:
    if len(arguments) < 2:
        return values
    return [value.replace(arguments[0][0], arguments[1][0]) for value in values if arguments[0][0]] or values


def _added(values: list[str], arguments: list[list[str]]) -> list[str]:
    return join([values, *arguments[:1]])


METHODS: Mapping[str, Callable[[list[str], list[list[str]]], list[str]]] = {
    "strip": lambda values, _: [value.strip() for value in values],
    "rstrip": lambda values, _: [value.rstrip() for value in values],
    "lower": lambda values, _: [value.lower() for value in values],
    "upper": lambda values, _: [value.upper() for value in values],
    "encode": lambda values, _: values,
    "replace": _replace,
    "__add__": _added,
    "split": lambda values, _: [word for value in values for word in value.split()] or [ANY],
}
