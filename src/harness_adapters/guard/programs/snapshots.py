"""Test runners asked to rewrite what they compare with: snapshots, golden files, expected outputs."""

from __future__ import annotations

import re

from harness_adapters.guard.facts import Writes
from harness_adapters.guard.machine import Run
from harness_adapters.guard.programs.generic import add_path
from harness_adapters.guard.values import ANY, DEEP

_FLAG = re.compile(
    r"^(-u|--update(-?snapshots?|-?goldens?|-?expect\w*)?|--updateSnapshot|--snapshot-update|--force-regen|--regen(-all)?"
    r"|--inline-snapshot=(fix|update|create)|-update|--bless|--accept|--overwrite-expected|--approve|--write-snapshots)$"
)
_VARIABLE = re.compile(
    r"^INSTA_(?:UPDATE|FORCE\w*)$|^TRYBUILD$|^(UPDATE|BLESS|REGEN|OVERWRITE|INSTA|ACCEPT|APPROVE|WRITE)_?(\w*(SNAP|GOLD|EXPECT|UPDATE|TEST|BASELINE|FIXTURE)\w*)?$"
)
_RUNNERS = frozenset(
    {"jest", "vitest", "pytest", "py.test", "playwright", "ava", "tap", "go", "cargo", "mocha", "ctest", "rspec"}
)
_TESTS = re.compile(r"^(?:tests?|specs?|__tests__)$|^test_\w+\.py$")
_FOLDERS = ("__snapshots__", "snapshots", "golden", "goldens", "testdata", "expected", "baselines")


def updates(run: Run) -> None:
    """Adds the writes of a run that renews what its tests compare with, wherever below the folder that lies."""
    if run.name not in _RUNNERS:
        return
    flagged = any(_FLAG.match(arg) for arg in run.args)
    if run.name in ("go",):
        flagged = run.args[:1] == ["test"] and any(arg in ("-update", "--update", "-golden") for arg in run.args)
    elif run.name == "cargo":
        flagged = run.args[:1] == ["insta"] and run.args[1:2] in (["accept"], ["test"]) and len(run.args) > 1
    variables = any(
        _VARIABLE.match(name) and any(v not in ("", "0", "no") for v in values)
        for name, values in run.scope.variables.items()
    )
    if not flagged and not variables:
        return
    operands = run.args[1:] if run.name in ("go", "cargo") else run.args
    named = [arg for arg in operands if not arg.startswith("-") and ("/" in arg or _TESTS.search(arg))]
    if not named and run.name == "cargo":
        add_path(run, Writes, f"tests/{DEEP}/{ANY}.snap")
    for arg in named or ["", "tests", "test"]:
        folder = arg if not re.search(r"\.\w+(::.*)?$", arg) else arg.rpartition("/")[0]
        for name in _FOLDERS:
            add_path(run, Writes, f"{folder}/{name}/{ANY}" if folder else f"{DEEP}/{name}/{ANY}")
