"""The embedded engine keeps the engine contract, check by check, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.testing.engine_contract import CHECKS, Check, EngineUnderTest
from harness_adapters.testing.tiny_models import save_random_adapter, save_tiny_llama


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    root = tmp_path_factory.mktemp("contract")
    base = save_tiny_llama(root / "base")
    return base, save_random_adapter(base, root / "a", seed=1), save_random_adapter(base, root / "b", seed=2)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_embedded_engine_keeps_the_contract(check: Check, folders: tuple[Path, Path, Path]) -> None:
    base, *adapters = folders
    engine = EmbeddedEngine(base, max_batch=4, prefix_cache_mb=8)

    async def run() -> None:
        async with engine.serve() as url:
            await check(EngineUnderTest(url, engine.vocabulary, engine.positions, (adapters[0], adapters[1])))

    asyncio.run(run())
