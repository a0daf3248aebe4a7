"""The base model that learners are tested on."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_adapters.testing.tiny_models import save_tiny_llama


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("model") / "m")
