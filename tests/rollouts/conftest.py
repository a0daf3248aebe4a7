"""The bench that session tests play on, as a fixture."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from rollouts_bench import CONTEXT, Bench, OpenBench, make_task

from harness_adapters.config import RunConfig, load_config
from harness_adapters.engines.scripted import ScriptedEngine
from harness_adapters.gateway import Gateway
from harness_adapters.gateway.renderers.chatml import ChatMLRenderer
from harness_adapters.harnesses import Harness
from harness_adapters.rollouts.session import SessionRunner
from harness_adapters.sandbox import Sandbox, SandboxSpec, open_sandbox
from harness_adapters.tasks.format import Task
from harness_adapters.testing import byte_tokenizer


@pytest.fixture
def open_bench(tmp_path: Path) -> OpenBench:
    """`open_bench(harness, kind, overrides=..., wrap=..., task=...)`: an async context manager over a `Bench`."""

    @contextlib.asynccontextmanager
    async def bench(
        harness: Harness,
        kind: str,
        *,
        overrides: Sequence[str] = (),
        wrap: Callable[[Sandbox], Sandbox] = lambda sandbox: sandbox,
        task: Task | None = None,
    ) -> AsyncIterator[Bench]:
        tokenizer = byte_tokenizer()
        engine = ScriptedEngine(tokenizer)
        settings = ("session.seconds=90", "sampling.max_tokens=4096", *overrides)
        config: RunConfig = load_config(overrides=settings)
        opened: list[Sandbox] = []

        def opener(spec: SandboxSpec) -> Sandbox:
            opened.append(wrap(open_sandbox(kind, spec)))
            return opened[-1]

        async with engine.serve() as url, Gateway(url, ChatMLRenderer(tokenizer)) as gateway:
            runner = SessionRunner(harness, gateway, opener, config, context=CONTEXT)
            yield Bench(engine, gateway, runner, task or make_task(tmp_path), opened)

    return bench
