"""Recorded calls for `safeagents`: read, judged, counted."""

from __future__ import annotations

import io
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from harness_adapters.guard import Guard
    from harness_adapters.records import Call, ToolMap, Verdict

_SHAPE = "see `safeagents check --help` for the shape of a case"


@dataclass(frozen=True, slots=True)
class Case:
    """One call with everything it is judged by."""

    fields: Mapping[str, Any]
    guard: Guard
    call: Call

    def judge(self) -> tuple[Verdict, float]:
        """The verdict and the microseconds that it took."""
        started = time.perf_counter()
        verdict = self.guard.judge(
            self.call, declared=self.fields.get("tools", []), messages=self.fields.get("messages", [])
        )
        return verdict, (time.perf_counter() - started) * 1e6


def read_lines(name: str) -> Iterator[tuple[int, str]]:
    """Numbers and texts of the lines that hold something; `-` is the standard input. Raises ConfigError."""
    return ((number, line) for number, line in enumerate(_lines(name), 1) if line.strip())


def _lines(name: str) -> Iterable[str]:
    from harness_adapters.errors import ConfigError

    if name == "-":
        yield from standard_input()
        return
    try:
        with open(name, encoding="utf-8", errors="surrogateescape") as file:
            yield from file
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}", "check the path") from None


def standard_input() -> TextIO:
    """The standard input. Raises ConfigError where it is closed."""
    from harness_adapters.errors import ConfigError

    if sys.stdin is None:
        raise ConfigError("the standard input is closed", "name a file, or pipe one in")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin


def read_policy(path: Path | None) -> dict[str, Any]:
    """The policy keys in a TOML file; none without one. Raises ConfigError for what is no policy."""
    from harness_adapters.config import read_toml
    from harness_adapters.errors import ConfigError
    from harness_adapters.guard import GuardPolicy

    keys = read_toml(path) if path else {}
    for table in ("metadata", "guard"):
        if isinstance(keys.get(table), dict):
            raise ConfigError(
                f"{path} has its policy keys in a table {table!r}",
                "--policy takes the keys of a task's [metadata.guard] at the top level: leave out the table's line",
            )
    GuardPolicy.from_mapping(keys)
    return keys


def parse_case(line: str, base: Mapping[str, Any]) -> Case:
    """The case in a line; `base` are policy keys under those of its `task`. Raises ConfigError for a malformed one."""
    return case_from(parse_object(line, "each line must be one case"), base)


def parse_object(line: str, hint: str) -> dict[str, Any]:
    """The JSON object in a line. Raises ConfigError, with `hint` where it holds another value."""
    from harness_adapters.errors import ConfigError

    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}", "each line must be one JSON object") from None
    if not isinstance(data, dict):
        raise ConfigError("not a JSON object", hint)
    return data


def case_from(case: Mapping[str, Any], base: Mapping[str, Any]) -> Case:
    """The case in a decoded object, as `parse_case`."""
    from harness_adapters.errors import ConfigError
    from harness_adapters.guard import Guard, GuardPolicy
    from harness_adapters.records import Call

    call = case.get("call")
    task, tools, messages = case.get("task", {}), case.get("tools", []), case.get("messages", [])
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise ConfigError("`call` needs a `name` and `arguments`", _SHAPE)
    if not isinstance(call.get("arguments"), dict | str):
        raise ConfigError("`arguments` must be an object or the raw text", _SHAPE)
    if not isinstance(task, dict) or not isinstance(tools, list) or not isinstance(messages, list):
        raise ConfigError("`task` must be an object, `tools` and `messages` lists", _SHAPE)
    if not all(isinstance(name, str) for name in tools) or not all(isinstance(m, dict) for m in messages):
        raise ConfigError("`tools` holds names, `messages` holds objects", _SHAPE)
    policy = GuardPolicy.from_mapping({**base, **task})
    guard = Guard(policy, tool_map_of(str(case.get("harness", ""))))
    return Case(case, guard, Call(str(case.get("id", "")), call["name"], call["arguments"]))


def tool_map_of(harness: str) -> ToolMap:
    """The harness's own map; an empty one for a harness that is not known: its tools are judged by their arguments."""
    from harness_adapters.harnesses import TOOL_MAPS
    from harness_adapters.records import ToolMap

    return TOOL_MAPS.get(harness) or ToolMap(harness, {})


class Tally:
    """Counts verdicts against `expect`; cases marked `debatable` are left out. `block` and `zero` count as caught."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, bool]] = Counter()
        self._rules: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()
        self._micros: list[float] = []

    def add(self, case: Mapping[str, Any], verdict: Verdict, micros: float) -> None:
        from harness_adapters.records import Decision

        self._micros.append(micros)
        self._decisions[verdict.decision.value] += 1
        if verdict.rule:
            self._rules[verdict.rule] += 1
        expect = case.get("expect")
        if expect in ("block", "allow") and not case.get("debatable"):
            self._counts[expect, verdict.decision in (Decision.BLOCK, Decision.ZERO)] += 1

    def lines(self) -> list[str]:
        """The summary, a line each: decisions, rules, times, and where the input says what to expect, the score."""
        lines = [f"judged: {len(self._micros)}", f"verdicts: {_counted(self._decisions)}"]
        lines.append(f"by rule: {_counted(self._rules)}")
        if self._micros:
            ranked = sorted(self._micros)
            median, high = ranked[len(ranked) // 2], ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)]
            lines.append(f"microseconds a call: median {median:.0f}, 99 % {high:.0f}, worst {ranked[-1]:.0f}")
        for expect, label in (("block", "caught"), ("allow", "false positives")):
            all_of = self._counts[expect, True] + self._counts[expect, False]
            if all_of:
                hit = self._counts[expect, True]
                lines.append(f"{label}: {hit} of {all_of} ({100 * hit / all_of:.1f} %)")
        return lines


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
