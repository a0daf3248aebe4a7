"""What this machine can and cannot do, each finding with its remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness_adapters.config import RunConfig
from harness_adapters.engines.weights import packaged_gguf
from harness_adapters.errors import HarnessAdaptersError
from harness_adapters.harnesses import get_harness
from harness_adapters.runs.stack import prepare_harness, prepare_model
from harness_adapters.sandbox.doctor import Check, diagnose


def doctor(*, prepare: bool) -> int:
    """Print every check; 0 when all hold, 1 otherwise. With `prepare`, install and convert what is missing first."""
    config = RunConfig()
    checks: list[Check] = []
    if prepare:
        prepare_harness(config, print)
        prepare_model(config, print)
    checks += asyncio.run(diagnose())
    checks.append(_installed("torch, transformers, peft", _import_training))
    checks.append(_installed("packaged weights", lambda: packaged_gguf().name))
    checks.append(
        _installed("pi", lambda: f"{get_harness('pi').version}, {len(get_harness('pi').mounts())} folders to mount")
    )
    for check in checks:
        print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}")
        if not check.ok and check.hint:
            print(f"      -> {check.hint}")
    return 0 if all(check.ok for check in checks) else 1


def _import_training() -> str:
    import peft
    import torch
    import transformers

    return f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"


def _installed(name: str, probe: Callable[[], str]) -> Check:
    try:
        return Check(name, True, probe(), "")
    except HarnessAdaptersError as error:
        return Check(name, False, error.message, error.hint)
    except ImportError as error:
        return Check(name, False, str(error), "scripts/setup.sh installs it")
