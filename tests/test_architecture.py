"""The arrows of the design, kept: imports go to a lower floor only, no circles, no god files, a light command line.

The checker reads every import with `ast`: at module level, inside functions and under `TYPE_CHECKING` alike, since a
hidden import is still an arrow. It is itself tested on trees with planted faults.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import harness_adapters

PACKAGE = "harness_adapters"
SOURCE = Path(harness_adapters.__file__).parent
LONGEST_FILE = 450
HEAVY = ("torch", "transformers", "peft", "scipy", "aiohttp", "tree_sitter")

FLOORS: tuple[tuple[str, ...], ...] = (
    ("events", "config", "records", "errors", "storage"),
    ("scrub", "sessions", "guard"),
    ("gateway", "engines", "tasks", "sandbox", "harnesses"),
    ("training", "rollouts"),
    ("runs", "evaluation", "dashboard", "publishing"),
    ("cli",),
    ("__main__",),
)
"""Lowest first. Modules of the lowest floor are single files and may use each other; a circle is caught apart."""

SAME_FLOOR = {("scrub", "sessions"), ("tasks", "sandbox"), ("runs", "evaluation")}
"""Pairs of packages on one floor of which the first may import the second."""

FREE = "testing"
"""May import anything; nothing but itself may import it."""


@dataclass(frozen=True)
class Import:
    importer: str
    imported: str
    line: int


def modules_of(root: Path) -> dict[str, Path]:
    """Dotted module name -> file, the package's own `__init__` under the package's name."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(root).with_suffix("").parts]
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imports_of(modules: Mapping[str, Path]) -> list[Import]:
    """All imports of the package's modules by each other; `from p import m` is one of p.m where that is a module."""
    return [
        Import(importer, imported, node.lineno)
        for importer, path in modules.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for imported in _targets(node, importer, path, modules)
        if imported.split(".")[0] == PACKAGE and imported != importer
    ]


def _targets(
    node: ast.Import | ast.ImportFrom, importer: str, path: Path, modules: Mapping[str, Path]
) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (_known(alias.name, modules) for alias in node.names)
    else:
        base = node.module or ""
        if node.level:
            package = importer.split(".") if path.name == "__init__.py" else importer.split(".")[:-1]
            above = package[: len(package) - node.level + 1]
            base = ".".join([*above, node.module] if node.module else above)
        for alias in node.names:
            yield _known(f"{base}.{alias.name}", modules)


def _known(name: str, modules: Mapping[str, Path]) -> str:
    """The longest leading part of `name` that is a module, or `name` itself if none is."""
    parts = name.split(".")
    return next((".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in modules), name)


def _part(module: str) -> str:
    """The top-level package or module below `harness_adapters`, empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def _floor(part: str) -> int | None:
    return next((index for index, parts in enumerate(FLOORS) if part in parts), None)


def arrow_fault(arrow: Import) -> str:
    """What is wrong with one import, empty if nothing is."""
    source, target = _part(arrow.importer), _part(arrow.imported)
    where = f"{arrow.importer}:{arrow.line} imports {arrow.imported}"
    if source in (target, FREE) or target == "":
        return ""
    if target == FREE:
        return f"{where}: nothing imports {FREE}"
    above, below = _floor(source), _floor(target)
    if below is None or (above is None and source != ""):
        return f"{where}: {target if below is None else source} is on no floor"
    if above is None or above < below:
        return f"{where}: an import goes down, not up"
    if above == below and above != 0 and (source, target) not in SAME_FLOOR:
        return f"{where}: packages of one floor do not import each other"
    return ""


def circles(arrows: Sequence[Import]) -> list[tuple[str, ...]]:
    """Groups of modules that reach each other (strongly connected components of more than one)."""
    edges: dict[str, set[str]] = {}
    for arrow in arrows:
        edges.setdefault(arrow.importer, set()).add(arrow.imported)

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        stack = [start]
        while stack:
            for following in edges.get(stack.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        return seen

    reached = {module: reach(module) for module in edges}
    found = {
        tuple(sorted(other for other in reached[module] if module in reached.get(other, ())))
        for module in edges
        if module in reached[module]
    }
    return sorted(found)


def faults(root: Path) -> list[str]:
    """All that is wrong with a source tree."""
    modules = modules_of(root)
    arrows = imports_of(modules)
    found = [fault for arrow in arrows if (fault := arrow_fault(arrow))]
    found += [f"circle: {' -> '.join(circle)}" for circle in circles(arrows)]
    for path in modules.values():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LONGEST_FILE:
            found.append(f"{path.relative_to(root)} has {lines} lines, at most {LONGEST_FILE}")
        if path.name == "utils.py":
            found.append(f"{path.relative_to(root)}: name it for what it does")
    return found


def test_the_package_keeps_its_arrows() -> None:
    assert faults(SOURCE) == []


@pytest.mark.skipif(not (SOURCE / "cli" / "main.py").exists(), reason="there is no command line yet")
def test_the_command_line_imports_nothing_heavy() -> None:
    code = f"import sys, {PACKAGE}.cli.main; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == []


def plant(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(root).parents:
            (root / folder / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("guard/judge.py", "from harness_adapters.gateway import proxy\n"),
        ("guard/judge.py", "def f() -> None:\n    import harness_adapters.gateway.proxy\n"),
        (
            "guard/judge.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from harness_adapters.gateway.proxy import x\n",
        ),
        ("guard/judge.py", "from ..gateway.proxy import x\n"),
        ("guard/judge.py", "from .. import gateway\n"),
        ("guard/__init__.py", "from ..gateway import proxy\n"),
        ("events.py", "import harness_adapters.gateway as g\n"),
        ("__init__.py", "from harness_adapters import gateway\n"),
    ],
)
def test_an_upward_import_is_caught_wherever_it_hides(tmp_path: Path, name: str, text: str) -> None:
    found = faults(plant(tmp_path, {"gateway/proxy.py": "x = 1\n", name: text}))
    assert len(found) == 1
    assert "an import goes down, not up" in found[0]


def test_a_sideways_import_is_caught_and_the_named_pairs_are_let_through(tmp_path: Path) -> None:
    named = {
        "tasks/grading.py": "from harness_adapters.sandbox import box\n",
        "sandbox/box.py": "",
        "runs/loop.py": "import harness_adapters.evaluation\n",
        "evaluation/report.py": "",
        "gateway/proxy.py": "from harness_adapters.guard import rules\n",
        "guard/rules.py": "",
    }
    assert faults(plant(tmp_path, named)) == []
    plant(tmp_path, {"sandbox/box.py": "from harness_adapters.tasks import grading\n", "tasks/grading.py": ""})
    assert [fault.split(": ")[1] for fault in faults(tmp_path)] == ["packages of one floor do not import each other"]


def test_a_circle_is_caught_with_all_its_members(tmp_path: Path) -> None:
    files = {
        "guard/a.py": "from harness_adapters.guard import b\n",
        "guard/b.py": "def late() -> None:\n    from harness_adapters.guard.c import x\n",
        "guard/c.py": "from . import a\nx = 1\n",
        "guard/d.py": "from harness_adapters.guard import a\n",
    }
    assert faults(plant(tmp_path, files)) == [
        "circle: harness_adapters.guard.a -> harness_adapters.guard.b -> harness_adapters.guard.c"
    ]


def test_testing_may_import_anything_and_is_imported_by_nothing(tmp_path: Path) -> None:
    plant(tmp_path, {"testing/fakes.py": "from harness_adapters.cli import main\n", "cli/main.py": ""})
    assert faults(tmp_path) == []
    plant(tmp_path, {"cli/main.py": "from harness_adapters.testing import fakes\n", "testing/fakes.py": ""})
    assert any("nothing imports testing" in fault for fault in faults(tmp_path))


def test_a_package_on_no_floor_a_long_file_and_a_utils_file_are_caught(tmp_path: Path) -> None:
    plant(tmp_path, {"guard/long.py": "x = 1\n" * (LONGEST_FILE + 1), "tasks/utils.py": ""})
    plant(tmp_path, {"misc/thing.py": "from harness_adapters import records\n", "records.py": ""})
    found = "\n".join(faults(tmp_path))
    assert "misc is on no floor" in found
    assert "long.py has 451 lines" in found
    assert "utils.py: name it" in found
