"""Running one scenario in one sandbox, with its death guaranteed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness_adapters.errors import InfraError
from harness_adapters.sandbox import Sandbox, SandboxSpec, open_sandbox

Scenario = Callable[[Sandbox], Awaitable[Any]]


def run_scenario(scenario: Scenario, *, kind: str = "bubblewrap", spec: SandboxSpec | None = None) -> Any:
    async def run() -> Any:
        sandbox = open_sandbox(kind, spec or SandboxSpec())
        try:
            await sandbox.start()
            return await scenario(sandbox)
        finally:
            await sandbox.kill()

    return asyncio.run(run())


@functools.cache
def refusal() -> str:
    async def nothing(sandbox: Sandbox) -> None:
        return None

    try:
        run_scenario(nothing)
    except InfraError as error:
        return str(error)
    return ""


@pytest.fixture
def inside() -> Callable[..., Any]:
    """`inside(scenario, spec=…)`: run it in a real bubblewrap sandbox; the test is skipped where none can start."""
    if refusal():
        pytest.skip(refusal())
    return run_scenario


@pytest.fixture(params=["bubblewrap", "inprocess"])
def in_each(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Like `inside`, for every kind of sandbox in turn."""
    if request.param == "bubblewrap" and refusal():
        pytest.skip(refusal())
    return functools.partial(run_scenario, kind=request.param)
