"""A printed command can be pasted into the shell that the program was started from."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from harness_adapters.runs.invocation import command, program


@pytest.fixture(autouse=True)
def _not_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)


def test_a_name_that_the_shell_finds_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "nothing" / "harness-adapters"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert program() == "harness-adapters"


@pytest.mark.parametrize(
    ("started", "printed"),
    [
        ("./harness-adapters", "./harness-adapters"),
        (".venv/bin/harness-adapters", ".venv/bin/harness-adapters"),
        ("sp ace/bin/harness-adapters", "'sp ace/bin/harness-adapters'"),
        ("/opt/x/harness-adapters", "/opt/x/harness-adapters"),
    ],
)
def test_a_script_off_the_path_is_called_by_its_own(
    started: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert program() == printed


def test_a_script_below_the_folder_is_named_from_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin" / "harness-adapters")])
    assert program() == "bin/harness-adapters"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "harness-adapters")])
    assert program() == "./harness-adapters"


def test_a_module_is_called_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/site-packages/harness_adapters/__main__.py"])
    assert shlex.split(program()) == [sys.executable, "-m", "harness_adapters"]


def test_words_with_spaces_come_back_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["./harness-adapters"])
    line = command("demo", "--resume", Path("runs a/demo"))
    assert shlex.split(line) == ["./harness-adapters", "demo", "--resume", "runs a/demo"]
