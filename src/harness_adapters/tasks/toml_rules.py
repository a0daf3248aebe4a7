"""What a `task.toml` may say here: every known field of Harbor's schema 1.0 to 1.4, and whether we do what it asks.

Invariants
- A field is done, is information only, or is refused by name; an unknown field is refused too. Nothing is skipped
  silently, since a task that loses half its meaning would be trained on all the same.
- Every refusal is one TaskError in one line: file, line where it can be told, field, reason.

Asymmetries: `cpus`, `storage_mb` and their like ask for capacity, not behaviour, and are accepted without being
enforced per task; `memory_mb` is given to the verifier's sandbox. A sandbox here has no network, so a task that says
nothing about the network is run without one, and a task that asks for one is refused.
"""

from __future__ import annotations

import re
import reprlib
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from harness_adapters.errors import TaskError

SCHEMA_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")

Check = Callable[[Any], str]
"""Says what is wrong with a value; empty when nothing is."""


def parse_task_toml(text: str, where: str) -> dict[str, Any]:
    """The content of a `task.toml` that can run here; `where` names the file in errors.

    Raises TaskError for broken TOML and for the first field that is unknown, malformed or asks for what is not done.
    """
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise TaskError(f"{where} is not TOML: nested too deeply", "flatten it") from None
    except ValueError as error:
        raise TaskError(f"{where} is not TOML: {one_line(error)}", "mend the line it names") from None
    for key, value in data.items():
        if key in SECTIONS:
            if not isinstance(value, dict):
                refuse(text, where, "", key, "must be a table")
            _check_fields(text, where, key, value, SECTIONS[key])
        elif key != "metadata":
            _check_fields(text, where, "", {key: value}, ROOT)
    if not isinstance(data.get("metadata", {}), dict):
        refuse(text, where, "", "metadata", "must be a table")
    if "schema_version" not in data and "version" not in data:
        raise TaskError(f"{where} states no schema_version", 'write schema_version = "1.4" on its first line')
    return data


def one_line(value: object, limit: int = 200) -> str:
    """`value` as text without line breaks or control characters, shortened to `limit` characters."""
    text = "".join(c if c.isprintable() else " " for c in str(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shown(value: object) -> str:
    """`value` as short source text in one line; deep nesting is cut, not followed."""
    return one_line(reprlib.repr(value), 80)


def line_of(text: str, section: str, key: str) -> int | None:
    """The line (from 1) where `key` of `section` (empty: top level) is set, or None when it is not plain to see.

    Reads lines, not TOML: a key in an inline table or after a quoted header is not found.
    """
    wanted = f"{section}.{key}" if section else key
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([\w.\-]+)\s*\]", line):
            current = header[1]
            if current == wanted or current.startswith(wanted + "."):
                return number
            continue
        if not (found := re.match(r"\s*[\"']?([\w\-]+(?:\.[\w\-]+)*)[\"']?\s*=", line)):
            continue
        dotted = f"{current}.{found[1]}" if current else found[1]
        if dotted == wanted or dotted.startswith(wanted + "."):
            return number
    return None


def _check_fields(text: str, where: str, section: str, table: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    for key, value in table.items():
        if key not in checks:
            refuse(text, where, section, key, f"unknown field; known here: {', '.join(checks)}")
        if problem := checks[key](value):
            refuse(text, where, section, key, problem)


def refuse(text: str, where: str, section: str, key: str, problem: str) -> NoReturn:
    """Raise the TaskError of one field, with the line it stands on where that can be told."""
    line = line_of(text, section, key)
    place = f"{where} line {line}" if line else where
    field = f"{section}.{key}" if section else key
    raise TaskError(f"{place}: {one_line(field)}: {problem}", "change the task, or run it with Harbor itself")


def _text(value: Any) -> str:
    return "" if isinstance(value, str) else f"must be text, not {shown(value)}"


def _anything(value: Any) -> str:
    return ""


def _seconds(value: Any) -> str:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 86_400
    return "" if good else f"must be seconds between 0 and 86400, not {shown(value)}"


def _amount(value: Any) -> str:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1 << 31
    return "" if good else f"must be a positive number, not {shown(value)}"


def _megabytes(value: Any) -> str:
    good = isinstance(value, int) and not isinstance(value, bool) and 64 <= value <= 1 << 20
    return "" if good else f"must be whole megabytes from 64 up, not {shown(value)}"


def _one_of(*allowed: Any, why: str) -> Check:
    def check(value: Any) -> str:
        same_type = any(type(value) is type(item) and value == item for item in allowed)
        return "" if same_type else f"{shown(value)} is not done here: {why}"

    return check


def _nothing(why: str) -> Check:
    """Accepts only values that ask for nothing: empty, false, zero."""

    def check(value: Any) -> str:
        return "" if value in ("", False, 0, [], {}) else f"not done here: {why}"

    return check


_VERSION = _one_of(*SCHEMA_VERSIONS, why=f"schema versions {SCHEMA_VERSIONS[0]} to {SCHEMA_VERSIONS[-1]} are read")
_NETWORK = _one_of("no-network", why='a sandbox has no network; only network_mode = "no-network" can be kept')
_HOSTS = _nothing("a sandbox has no network, so no host can be allowed")
_USER = _nothing("everything in a sandbox runs as its one user")

ROOT: Mapping[str, Check] = {
    "schema_version": _VERSION,
    "version": _VERSION,
    "source": _text,
    "artifacts": _anything,
    "steps": _nothing("tasks of several steps are not run"),
    "multi_step_reward_strategy": _nothing("tasks of several steps are not run"),
    "metadata": _anything,
}
"""Top-level fields that are not tables; `format` checks the artifacts' paths."""

SECTIONS: Mapping[str, Mapping[str, Check]] = {
    "task": {
        "name": _text,
        "version": _text,
        "description": _text,
        "authors": _anything,
        "keywords": _anything,
    },
    "agent": {
        "timeout_sec": _seconds,
        "user": _USER,
        "network_mode": _NETWORK,
        "allowed_hosts": _HOSTS,
    },
    "verifier": {
        "timeout_sec": _seconds,
        "env": _nothing("a verifier gets no extra environment variables"),
        "user": _USER,
        "environment_mode": _one_of("separate", why="a verifier always runs in a sandbox of its own"),
        "environment": _nothing("the verifier's sandbox is the agent's kind, without an image of its own"),
        "collect": _nothing("only declared artifacts are collected"),
        "network_mode": _NETWORK,
        "allowed_hosts": _HOSTS,
    },
    "environment": {
        "build_timeout_sec": _seconds,
        "docker_image": _anything,
        "os": _one_of("linux", why="sandboxes are Linux"),
        "cpus": _amount,
        "memory_mb": _megabytes,
        "storage_mb": _megabytes,
        "gpus": _nothing("a sandbox has no GPU"),
        "gpu_types": _nothing("a sandbox has no GPU"),
        "tpu": _nothing("a sandbox has no TPU"),
        "mcp_servers": _nothing("MCP servers are not started"),
        "env": _nothing("a sandbox gets no extra environment variables"),
        "skills_dir": _nothing("skills are not installed into the harness"),
        "healthcheck": _nothing("health checks are not run"),
        "workdir": _text,
        "network_mode": _NETWORK,
        "allowed_hosts": _HOSTS,
        "allow_internet": _one_of(False, why="a sandbox has no network"),
        "memory": _nothing("the deprecated form is not read; use memory_mb"),
        "storage": _nothing("the deprecated form is not read; use storage_mb"),
    },
    "solution": {"env": _nothing("a solution gets no extra environment variables")},
}
"""Fields of each section; `metadata` is free-form and checked in `format`."""
