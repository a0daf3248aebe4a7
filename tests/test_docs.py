"""What the documentation shows runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def test_the_session_in_the_testing_guide_ends_solved(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / "testing.md").read_text(), flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("graded RewardParts(verifier=1.0")
    assert "Traceback" not in done.stderr


def test_the_testing_guide_names_what_the_package_exports() -> None:
    from harness_adapters import testing

    guide = (DOCS / "testing.md").read_text()
    missing = [name for name in testing.__all__ if f"`{name}`" not in guide]
    assert not missing


@pytest.mark.parametrize(
    "document", ["README.md", "docs/architecture.md", "docs/tasks.md", "docs/testing.md", "docs/results.md"]
)
def test_links_between_documents_lead_somewhere(document: str) -> None:
    path = DOCS.parent / document
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    assert all((path.parent / link).exists() for link in links), links
