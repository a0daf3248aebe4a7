"""`safeagents replay`: what another policy would have said of calls that were made.

A line of the input is a case or a line of a verdict log; a file of neither is a harness's session, each call of which
is judged after what came before it. What was said is what the log recorded; a session's calls were allowed, since they
ran. A case without a verdict is first judged under its own policy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness_adapters.cli.guard_cases import Case, case_from, parse_object, read_lines, read_policy

if TYPE_CHECKING:
    from harness_adapters.errors import HarnessAdaptersError
    from harness_adapters.records import Verdict

DESCRIPTION = """\
Judges recorded calls again and prints those whose verdict changes, one JSON object a line: source, id, was, now, rule,
reason, evidence. A LOG is a verdict log (`blocked.jsonl` of a run), a file of cases as `check` reads them, or a session
of pi, opencode, hermes, claude-code or codex, whose calls count as allowed before. The keys of --policy replace those
that the log recorded; a session is judged in its own working folder.
"""
EXAMPLES = """\
exit codes: 0 done, whatever changes; 1 a policy that cannot be used; 2 a file or line that could not be read (the
others were), or wrong usage
examples:
  safeagents replay runs/demo/blocked.jsonl --policy milder.toml
  safeagents replay ~/.pi/agent/sessions/*/*.jsonl --policy user.toml
"""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """One call with the verdict it once got; `was` is empty where none is recorded."""

    source: str
    case: Case
    was: str


def add_parser(commands: Any, **raw: Any) -> None:
    """Adds `replay` to the commands of `safeagents`."""
    parser = commands.add_parser(
        "replay", help="what changes under another policy", description=DESCRIPTION, epilog=EXAMPLES, **raw
    )
    parser.add_argument("files", nargs="+", metavar="LOG", help="verdict logs, case files or sessions; - is the input")
    parser.add_argument("--policy", type=Path, required=True, metavar="NEW.toml", help="the policy to try")
    parser.add_argument("--all", action="store_true", help="print the verdicts that do not change, too")
    parser.set_defaults(command=_replay)


def _replay(args: argparse.Namespace) -> int:
    from harness_adapters.errors import HarnessAdaptersError

    new = read_policy(args.policy)
    changes: Counter[tuple[str, str]] = Counter()
    refused = 0
    for name in args.files:
        for found in _recorded(name, new):
            if isinstance(found, HarnessAdaptersError):
                refused += 1
                print(_named(name, found.message) + (f"; {found.hint}" if found.hint else ""), file=sys.stderr)
                continue
            verdict, _ = found.case.judge()
            now = verdict.decision.value
            changes[found.was, now] += 1
            if args.all or now != found.was:
                print(json.dumps(_line(found, verdict)), flush=True)
    print(_summary(changes), file=sys.stderr)
    return 2 if refused else 0


def _named(name: str, message: str) -> str:
    """A message with the file that it is about, once: some name it themselves, by its path or by its last part."""
    return (
        message
        if name in message.split() or f"{name}:" in message.split()
        else (f"{name}: {message.removeprefix(f'{Path(name).name}: ')}")
    )


def _line(found: _Recorded, verdict: Verdict) -> dict[str, Any]:
    return {
        "source": found.source,
        "id": found.case.call.id,
        "tool": found.case.call.name,
        "was": found.was,
        "now": verdict.decision.value,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "evidence": verdict.evidence[:300],
    }


def _summary(changes: Counter[tuple[str, str]]) -> str:
    judged = sum(changes.values())
    changed = [f"{was} -> {now}: {n}" for (was, now), n in sorted(changes.items()) if was != now]
    total = sum(n for (was, now), n in changes.items() if was != now)
    return "\n".join([f"judged {judged}, changed {total}", *(f"  {line}" for line in changed)])


def _recorded(name: str, new: Mapping[str, Any]) -> Iterator[_Recorded | HarnessAdaptersError]:
    """The calls in a file with their old verdicts; an error in the place of what cannot be read."""
    from harness_adapters.errors import HarnessAdaptersError

    try:
        if name != "-" and not _holds_cases(name):
            yield from _session(name, new)
            return
        for number, line in read_lines(name):
            try:
                found = _of_line(f"{name}:{number}", line, new)
            except HarnessAdaptersError as error:
                yield type(error)(f"line {number}: {error.message}", error.hint)
                continue
            if found is not None:
                yield found
    except HarnessAdaptersError as error:
        yield error


def _holds_cases(name: str) -> bool:
    """Whether the first line that is JSON is a case or a line of a verdict log, or there is no line: so is the log of
    a run in which nothing was blocked."""
    empty = True
    for _, line in read_lines(name):
        empty = False
        try:
            first = json.loads(line)
        except (ValueError, RecursionError):
            continue
        return isinstance(first, dict) and (isinstance(first.get("call"), dict) or "decision" in first)
    return empty


def _of_line(source: str, line: str, new: Mapping[str, Any]) -> _Recorded | None:
    """None for a line of a log that speaks of no single call."""
    from harness_adapters.errors import ConfigError

    data = parse_object(line, "each line must be a case or a verdict")
    if "decision" in data and "case" not in data:
        raise ConfigError(
            "a verdict without its case", "this log was written by an older version: it cannot be replayed"
        )
    if "case" not in data and "call" not in data:
        return None
    case = data.get("case", data)
    if not isinstance(case, dict):
        raise ConfigError("`case` is not a JSON object", "each line must be a case or a verdict")
    was = str(data.get("decision") or data.get("verdict") or "")
    if not was:
        was = case_from(case, {}).judge()[0].decision.value
    changed = {**case, "id": data.get("call_id", case.get("id", "")), "task": {**(case.get("task") or {}), **new}}
    return _Recorded(source, case_from(changed, {}), was)


def _session(name: str, new: Mapping[str, Any]) -> Iterator[_Recorded | HarnessAdaptersError]:
    from harness_adapters.cli.guard_cases import tool_map_of
    from harness_adapters.errors import ConfigError
    from harness_adapters.guard import Guard, GuardPolicy
    from harness_adapters.guard.history import parse_arguments
    from harness_adapters.records import Call
    from harness_adapters.sessions import read_session

    session = read_session(Path(name))
    if session.unreadable_lines:
        yield ConfigError(
            f"{session.unreadable_lines} damaged lines are left out: the calls in them are not judged",
            "mend the file, or take the figures for what is left",
        )
    policy = GuardPolicy.from_mapping({**_own_folders(session.cwd), **new})
    guard = Guard(policy, tool_map_of(session.harness))
    for n, message in enumerate(session.messages):
        before = list(session.messages[:n])
        for item in message.get("tool_calls") or ():
            function = item["function"]
            call = Call(str(item["id"]), function["name"], parse_arguments(function["arguments"]))
            fields = {"tools": sorted(session.declared), "messages": list(before)}
            yield _Recorded(name, Case(fields, guard, call), "allow")
            before.append({"role": "assistant", "content": None, "tool_calls": [item]})


def _own_folders(cwd: str) -> dict[str, str]:
    """The working folder of a session, and the home that it lies in."""
    if not cwd.startswith("/"):
        return {}
    parts = cwd.split("/")
    home = "/".join(parts[:3]) if parts[1] in ("home", "Users") and len(parts) > 2 else "/root"
    return {"cwd": cwd, "home": home}
