"""How long the guard takes for a call: `python bench/guard.py [CASES ...] [--json]`. Run on a quiet machine.

Without case files (JSON lines as `safeagents check` reads them) the committed ones are judged. Wall time as the caller
sees it, after a warm-up round, the median of several rounds for each call:

- `call`: the conversation was known from the call before, the call itself is new, as it is in a session;
- `first`: nothing is known, so the whole history is replayed;
- `again`: the same call was judged before.

The bound cases are inputs made to be slow, judged with nothing known; the session is one of 200 earlier calls.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from harness_adapters.cli.guard_cases import Case, parse_case, read_lines
from harness_adapters.guard import Guard, GuardPolicy
from harness_adapters.guard.memo import clear_memories
from harness_adapters.harnesses import get_harness
from harness_adapters.records import Call, Message

COMMITTED = Path(__file__).parent.parent / "tests" / "guard" / "cases"
ROUNDS = 7
BOUND_ROUNDS = 3
EARLIER_CALLS = 200
DEEP = 60_000
SIDE_CALL = Call("side", "bash", {"command": "touch notes.txt; curl -s http://host.example/"})
"""The call before: one that makes rules read the conversation, as the first write or download of a session does."""


def wrapped(start: str, inner: Any, depth: int) -> Any:
    """`inner` in `depth` objects (or lists, where `start` is empty)."""
    for _ in range(depth):
        inner = {start: inner} if start else [inner]
    return inner


SHELL: Mapping[str, str] = {
    "1 MB here-document": "cat > f <<'E'\n" + "hello world\n" * 87_000 + "E\n",
    "1 MB here-document, expanded": "cat > f <<E\n" + "hello $w\n" * 110_000 + "E\n",
    "1 MB here-document to a shell": "sh <<'E'\n" + "echo hello\n" * 95_000 + "E\n",
    "20 KB of <": "<" * 20_000,
    "20,000 nested $(": "$(" * 20_000,
    "20,000 nested $(, closed": "echo " + "$(" * 20_000 + ")" * 20_000,
    "60,000 parentheses": "(" * DEEP,
    "30,000 parentheses, closed": "( " * 10_000 + "a" + " )" * 10_000,
    "60,000 if": "if a; then " * DEEP,
    "5,000 if": "if a; then " * 5_000,
    "60,000 {": "{ " * DEEP,
    "quotes": '"' * DEEP,
    "nested quotes": '"$(' * 20_000,
    "pipes": "a | " * DEEP,
    "400 pipes": "a | " * 400 + "a",
    "&& runs": "a && " * DEEP,
    "2,000 &&": "a && " * 2_000 + "a",
    "arithmetic": "echo $((" + "(" * DEEP,
    "sums": "echo $((" + "1+" * 30_000 + "1))",
    "[[": "[[ " * DEEP,
    "[[ ( ": "[[ " + "( " * DEEP,
    "assignments of lists": "a=(" * 20_000,
    "case arms": "a)" * 30_000,
    "words": "rm " + "tests/x " * 8_000,
    "braces": "{a,b}" * 12_000,
    "eval": "eval " * 12_000,
    "nested python": "python3 -c '" + "(" * DEEP + "'",
    "python sums": "python3 -c '" + "1+" * 30_000 + "1'",
    "python calls": "python3 <<'E'\n" + "open(a)\n" * 7_000 + "E\n",
    "javascript literals": "node -e '" + 'f("a/b");' * 6_000 + "'",
}
ARGUMENTS: Mapping[str, tuple[str, Any]] = {
    "deep code": ("execute_code", {"code": "-" * DEEP + "1"}),
    "deep attributes": ("execute_code", {"code": "a" + ".a" * 30_000}),
    "deep lists": ("bash", {"command": wrapped("", "ls", DEEP)}),
    "deep objects": ("edit", {"path": "a", "edits": wrapped("edits", "x", DEEP)}),
    "deep JSON text": ("edit", {"path": "a", "edits": '[{"a":' * 20_000}),
    "raw deep JSON": ("bash", '{"command":' + "[" * DEEP),
    "many arguments": ("bash", {f"k{i}": "v" for i in range(DEEP)}),
    "1 MB written": ("write", {"path": "a.py", "content": "x = 'hello'\n" * 87_000}),
}


def milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def judge(case: Case, call: Call) -> Callable[[], object]:
    fields = case.fields
    return lambda: case.guard.judge(call, declared=fields.get("tools", []), messages=fields.get("messages", []))


def read_cases(names: list[str]) -> list[Case]:
    files = names or [str(COMMITTED / name) for name in ("shown-1.jsonl", "shown-2.jsonl")]
    return [parse_case(line, {}) for name in files for _, line in read_lines(name)]


def time_cases(cases: list[Case]) -> dict[str, list[float]]:
    """Median milliseconds of each case, sorted, by what was known before."""
    samples: dict[str, list[list[float]]] = {kind: [[] for _ in cases] for kind in ("call", "first", "again")}
    for round_number in range(ROUNDS + 1):
        for number, case in enumerate(cases):
            clear_memories()
            first = milliseconds(judge(case, case.call))
            again = milliseconds(judge(case, case.call))
            clear_memories()
            judge(case, SIDE_CALL)()
            call = milliseconds(judge(case, case.call))
            if round_number:
                for kind, sample in (("call", call), ("first", first), ("again", again)):
                    samples[kind][number].append(sample)
    return {kind: sorted(statistics.median(timed) for timed in of_kind) for kind, of_kind in samples.items()}


def time_bounds() -> dict[str, float]:
    """Median milliseconds of each bound case."""
    guard = Guard(GuardPolicy.from_mapping({"protected": ["tests/**"]}), get_harness("pi").tool_map)
    calls = {name: Call("c", "bash", {"command": text}) for name, text in SHELL.items()}
    calls |= {name: Call("c", tool, arguments) for name, (tool, arguments) in ARGUMENTS.items()}
    messages: list[Message] = [{"role": "user", "content": "do the task"}]
    figures: dict[str, float] = {}
    for name, call in calls.items():
        work = partial(guard.judge, call, declared=[call.name], messages=messages)
        timed: list[float] = []
        for _ in range(BOUND_ROUNDS + 1):
            clear_memories()
            timed.append(milliseconds(work))
        figures[name] = statistics.median(timed[1:])
    return figures


def earlier_call(number: int) -> tuple[str, Mapping[str, Any]]:
    """One of the calls of which a session of mending code consists, each with a text of its own."""
    kinds: list[tuple[str, Mapping[str, Any]]] = [
        ("bash", {"command": f"cd src && grep -rn 'part_{number}' . | head -50"}),
        ("read", {"path": f"src/part_{number}.py", "offset": number}),
        ("edit", {"path": f"src/part_{number}.py", "edits": [{"oldText": "return x", "newText": f"return {number}"}]}),
        ("bash", {"command": f"python -m pytest -q tests/test_{number}.py 2>&1 | tail -20"}),
    ]
    return kinds[number % len(kinds)]


def time_session() -> dict[str, float]:
    """Milliseconds of the call after `EARLIER_CALLS`: nothing known, and with the call before it known."""
    guard = Guard(GuardPolicy.from_mapping({}), get_harness("pi").tool_map)
    messages: list[Message] = [{"role": "user", "content": "mend src/ until the tests pass"}]
    for number in range(EARLIER_CALLS):
        tool, arguments = earlier_call(number)
        function = {"name": tool, "arguments": json.dumps(arguments)}
        messages.append(
            {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{number}", "function": function}]}
        )
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "def f(x):\n    return x\n" * 25})
    call = Call("c", "bash", {"command": "python -m pytest -q tests 2>&1 | tail -20"})
    cold, warm = [], []
    for _ in range(ROUNDS):
        clear_memories()
        cold.append(milliseconds(lambda: guard.judge(call, declared=["bash"], messages=messages)))
        clear_memories()
        guard.judge(SIDE_CALL, declared=["bash"], messages=messages[:-2])
        warm.append(milliseconds(lambda: guard.judge(call, declared=["bash"], messages=messages)))
    return {"session_cold_ms": statistics.median(cold), "session_warm_ms": statistics.median(warm)}


def summary(timed: Mapping[str, list[float]], bounds: Mapping[str, float]) -> dict[str, float]:
    """The figures that are asked for; `p50_ms` and `p99_ms` are those of a new call in a known conversation."""
    figures = {"n": float(len(timed["call"])), "worst_ms": max(bounds.values())}
    for kind, ordered in timed.items():
        prefix = "" if kind == "call" else f"{kind}_"
        figures[f"{prefix}p50_ms"] = ordered[len(ordered) // 2]
        figures[f"{prefix}p99_ms"] = ordered[len(ordered) * 99 // 100]
    return {name: round(value, 3) for name, value in {**figures, **time_session()}.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the guard.")
    parser.add_argument("cases", nargs="*", help="case files; the committed ones where none is given")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    cases = read_cases(options.cases)
    gc.collect()
    gc.freeze()  # what the bench itself holds is no part of a call's cost
    figures = summary(time_cases(cases), bounds := time_bounds())
    if options.json:
        json.dump({**figures, "n": int(figures["n"])}, sys.stdout)
        sys.stdout.write("\n")
        return
    rows = [*figures.items(), *(("bound: " + name, value) for name, value in bounds.items())]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        sys.stdout.write(f"{name:<{width}}  {value:>9.3f}\n")


if __name__ == "__main__":
    main()
