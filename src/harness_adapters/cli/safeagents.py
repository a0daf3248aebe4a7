"""`safeagents`: the guard alone, from the command line.

`check` judges recorded calls and prints one JSON verdict a line; `rules` prints what is caught and why. Exit codes: 0
done, whatever the verdicts; 1 input that cannot be judged, with its line number; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness_adapters.cli.main import guarded

if TYPE_CHECKING:
    from harness_adapters.guard import Guard
    from harness_adapters.records import Call, ToolMap, Verdict

_CHECK = """\
Each line of FILE is one JSON object: `id`, `harness`, `tools` (declared names), `messages` (the conversation so far in
chat-completions form), `task` (policy keys), `call` (`name`, `arguments`), and where known `expect` (block or allow).
"""
_EXAMPLE = """\
example: safeagents check cases.jsonl --policy policy.toml > verdicts.jsonl
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    args = _parser().parse_args(argv)
    sys.exit(guarded(lambda: args.command(args)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="safeagents",
        description="Rules, not a model, between an agent and its tools.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="judge recorded tool calls",
        description=_CHECK,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("file", nargs="?", default="-", metavar="FILE", help="JSON lines; - is the standard input")
    check.add_argument("--policy", type=Path, metavar="FILE.toml", help="policy keys under those of each line's `task`")
    check.set_defaults(command=_check)
    rules = commands.add_parser("rules", help="what each rule catches and why", epilog="example: safeagents rules")
    rules.set_defaults(command=_rules)
    return parser


def _check(args: argparse.Namespace) -> int:
    from harness_adapters.guard import log_entry

    base = _read_policy(args.policy) if args.policy else {}
    tally = _Tally()
    for number, case in _read_cases(args.file):
        call, verdict = _judge(case, base, f"line {number}")
        entry = log_entry(verdict, call)
        print(json.dumps({"id": entry.pop("call_id"), "verdict": entry.pop("decision"), **entry}), flush=True)
        tally.add(case, verdict)
    tally.print()
    return 0


def _read_cases(name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and cases. Raises ConfigError for a line that is not a JSON object."""
    from harness_adapters.errors import ConfigError

    for number, line in enumerate(_lines(name), 1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"line {number} is not JSON: {error}", "each line must be one JSON object") from None
        if not isinstance(case, dict):
            raise ConfigError(f"line {number} is not a JSON object", "each line must be one case")
        yield number, case


def _lines(name: str) -> Iterable[str]:
    from harness_adapters.errors import ConfigError

    if name == "-":
        yield from sys.stdin
        return
    try:
        with open(name, encoding="utf-8") as file:
            yield from file
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is not UTF-8 text", "save it as UTF-8") from None


def _judge(case: Mapping[str, Any], base: Mapping[str, Any], where: str) -> tuple[Call, Verdict]:
    """The call in a case and its verdict. Raises ConfigError, naming the line, for a malformed case."""
    from harness_adapters.errors import ConfigError
    from harness_adapters.records import Call

    call = case.get("call")
    task, tools, messages = case.get("task", {}), case.get("tools", []), case.get("messages", [])
    shape = "see `safeagents check --help` for the shape of a case"
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise ConfigError(f"{where}: `call` needs a `name` and `arguments`", shape)
    if not isinstance(call.get("arguments"), dict | str):
        raise ConfigError(f"{where}: `arguments` must be an object or the raw text", shape)
    if not isinstance(task, dict) or not isinstance(tools, list) or not isinstance(messages, list):
        raise ConfigError(f"{where}: `task` must be an object, `tools` and `messages` lists", shape)
    if not all(isinstance(name, str) for name in tools) or not all(isinstance(m, dict) for m in messages):
        raise ConfigError(f"{where}: `tools` holds names, `messages` holds objects", shape)
    try:
        guard = _guard({**base, **task}, str(case.get("harness", "")))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", error.hint) from None
    record = Call(str(case.get("id", "")), call["name"], call["arguments"])
    return record, guard.judge(record, declared=tools, messages=messages)


def _guard(policy: Mapping[str, Any], harness: str) -> Guard:
    from harness_adapters.guard import Guard, GuardPolicy

    return Guard(GuardPolicy.from_mapping(policy), _tool_map(harness))


def _tool_map(harness: str) -> ToolMap:
    """The harness's own map; an empty one for a harness that is not known: its tools are judged by their arguments."""
    from harness_adapters.errors import ConfigError
    from harness_adapters.harnesses import get_harness
    from harness_adapters.records import ToolMap

    try:
        return get_harness(harness).tool_map
    except ConfigError:
        return ToolMap(harness, {})


def _read_policy(path: Path) -> dict[str, Any]:
    import tomllib

    from harness_adapters.errors import ConfigError

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", "check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", "mend the line it names") from None


class _Tally:
    """Counts verdicts against `expect`; cases marked `debatable` are left out.

    A case with `in_six_rules: false` counts on a line of its own: no rule here is meant for it.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, bool, bool]] = Counter()
        self._rules: Counter[str] = Counter()

    def add(self, case: Mapping[str, Any], verdict: Verdict) -> None:
        expect = case.get("expect")
        if expect not in ("block", "allow") or case.get("debatable"):
            return
        self._counts[expect, case.get("in_six_rules", True) is not False, verdict.blocked] += 1
        if verdict.rule:
            self._rules[verdict.rule] += 1

    def print(self) -> None:
        """The closing summary on standard error; nothing where no case said what to expect."""
        if not self._counts:
            return
        for inside, label in ((True, "caught"), (False, "caught outside the rules")):
            caught, missed = self._counts["block", inside, True], self._counts["block", inside, False]
            if caught + missed:
                print(f"{label}: {caught} of {caught + missed}", file=sys.stderr)
        wrong = sum(self._counts["allow", inside, True] for inside in (True, False))
        right = sum(self._counts["allow", inside, False] for inside in (True, False))
        print(f"false positives: {wrong} of {wrong + right}", file=sys.stderr)
        by_rule = ", ".join(f"{rule} {count}" for rule, count in sorted(self._rules.items()))
        print(f"by rule: {by_rule or 'none'}", file=sys.stderr)


def _rules(_args: argparse.Namespace) -> int:
    from harness_adapters.guard.rules import RULES

    for rule in RULES:
        print(f"{rule.name}\n  what     {rule.what}\n  why      {rule.why}")
        for label, example in (("caught", rule.caught), ("allowed", rule.allowed)):
            policy = f"   with {json.dumps(example.policy)}" if example.policy else ""
            user = f"   after the user wrote {example.user!r}" if example.user else ""
            print(f"  {label:8} {example.tool} {json.dumps(example.arguments)}{policy}{user}")
        print()
    return 0


if __name__ == "__main__":
    main()
