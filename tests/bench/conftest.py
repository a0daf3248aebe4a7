"""The benches are scripts, not a package: tests of them import them from their folder, as running one does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
