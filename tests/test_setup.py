"""The setup script, run for real on a bare clone without a package index: how it finds Python and makes .venv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "setup.sh"


def setup(clone: Path, python: Path) -> subprocess.CompletedProcess[str]:
    (clone / "scripts").mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPT, clone / "scripts" / "setup.sh")
    environment = {**os.environ, "PYTHON": str(python), "PIP_NO_INDEX": "1"}
    command = ["bash", str(clone / "scripts" / "setup.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def python_in(folder: Path) -> Path:
    """A Python whose own path has spaces."""
    folder.mkdir()
    wrapper = folder / "python3"
    wrapper.write_text(f'#!/bin/sh\nexec "{getattr(sys, "_base_executable", sys.executable)}" "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def test_an_unusable_python_that_was_named_is_refused_by_name(tmp_path: Path) -> None:
    result = setup(tmp_path / "clone", tmp_path / "no python")
    assert result.returncode == 1
    assert f"PYTHON={tmp_path / 'no python'}" in result.stderr.splitlines()[0]
    assert not (tmp_path / "clone" / ".venv").exists()


def test_a_half_made_environment_is_made_again_where_paths_have_spaces(tmp_path: Path) -> None:
    clone, python = tmp_path / "a clone", python_in(tmp_path / "a python")
    subprocess.run([python, "-m", "venv", "--without-pip", clone / ".venv"], check=True)
    result = setup(clone, python)
    assert "making .venv" in result.stdout
    assert "installing torch" in result.stderr  # the first step that needs the index, which this test takes away
    pip = [clone / ".venv" / "bin" / "python", "-m", "pip", "--version"]
    assert subprocess.run(pip, capture_output=True, check=False).returncode == 0
    assert "making .venv" not in setup(clone, python).stdout
