"""Everything a run holds open while it works: engine, client, gateway, renderer, harness, trainer.

The embedded engine and the trainer live in one process and share one copy of the base weights: the engine reads
tensors, the trainer wraps the same modules in LoRA. They take turns on the cores (`engine.exclusive()`).

Asymmetry: the gateway speaks to the engine over HTTP all the same, so that another engine is a URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness_adapters.config import RunConfig
from harness_adapters.engines.weights import check_model_folder, packaged_model
from harness_adapters.errors import ConfigError, InfraError, TrainingError
from harness_adapters.gateway.renderers import Renderer, check_chat_format, open_renderer
from harness_adapters.gateway.renderers.template import CHATML_TEMPLATE
from harness_adapters.harnesses import Harness, get_harness
from harness_adapters.rollouts.session import SessionRunner
from harness_adapters.runs.pools import check_new_tasks, check_tasks
from harness_adapters.sandbox import SandboxSpec, open_sandbox
from harness_adapters.sandbox.leftovers import end_orphans
from harness_adapters.sandbox.protocol import Sandbox
from harness_adapters.storage import cache_root

if TYPE_CHECKING:
    from harness_adapters.engines.client import EngineClient
    from harness_adapters.engines.embedded import EmbeddedEngine
    from harness_adapters.gateway import Gateway


NEEDED_BYTES = 1 << 30
"""Checkpoints (three of about 120 MB while one is replaced), adapters and rollouts of a small run."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One engine, one gateway in front of it, one harness."""

    config: RunConfig
    model_dir: Path
    harness: Harness
    renderer: Renderer
    engine: EmbeddedEngine
    client: EngineClient
    gateway: Gateway
    runner: SessionRunner


def prepare_model(config: RunConfig, say: Callable[[str], None]) -> Path:
    """The transformers folder of the run's base model, converted or checked, and the engine's code compiled."""
    folder = (
        check_model_folder(Path(config.model.path).expanduser())
        if config.model.path
        else packaged_model(CHATML_TEMPLATE, say)
    )
    _compile_engine(say)
    return folder


def _compile_engine(say: Callable[[str], None]) -> None:
    from harness_adapters.engines.embedded.compiled import CACHE
    from harness_adapters.engines.embedded.lean import warm_up

    if not CACHE.exists():
        say("compiling the engine's inner loops (once, about half a minute)")
    warm_up()


def check_choices(config: RunConfig, stand_in: Harness | None = None) -> None:
    """Raise ConfigError for a choice that a run would refuse once it came to it: nothing has been made yet.

    `stand_in`: a harness that plays in place of the configuration's, unchecked.
    """
    _harness_of(config, stand_in)
    check_chat_format(config.model.chat_format)
    if config.engine.kind != "embedded":
        raise ConfigError(f"engine kind {config.engine.kind!r} is not there yet", 'use kind = "embedded"')
    if config.model.path:
        _check_trainable(check_model_folder(Path(config.model.path).expanduser()))
    elif config.warm_start.steps == 0:
        raise ConfigError(
            "warm_start.steps is 0, and the packaged model never solves a task untrained",
            'name a preset (preset = "tiny-cpu" has the values for this machine), or set warm_start.steps above 0',
        )
    check_tasks(config)


def _check_trainable(model_dir: Path) -> None:
    """Raise ConfigError for a model that could be served and not trained, before sessions are recorded for it."""
    from transformers import AutoConfig

    from harness_adapters.training.forward import refuse_layers

    try:
        refuse_layers(AutoConfig.from_pretrained(model_dir, local_files_only=True))
    except TrainingError as error:
        raise ConfigError(error.message, error.hint) from None
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"cannot read {model_dir / 'config.json'}: {error}", "check that the folder is whole"
        ) from None


def check_new(config: RunConfig, stand_in: Harness | None = None) -> None:
    """Raise ConfigError for what `check_choices` refuses, for keys of a new configuration that would do nothing, and
    for a test set that is not the frozen one."""
    check_choices(config, stand_in)
    check_new_tasks(config)


def _harness_of(config: RunConfig, stand_in: Harness | None) -> Harness:
    if stand_in is not None:
        return stand_in
    harness = get_harness(config.harness)
    if harness.name == "scripted":
        raise ConfigError("the scripted harness is for tests", 'train with a real one: harness = "pi"')
    return harness


def prepare_harness(config: RunConfig, say: Callable[[str], None], stand_in: Harness | None = None) -> Harness:
    """The run's harness or its stand-in, installed. Raises ConfigError for one that may not be trained with."""
    harness = _harness_of(config, stand_in)
    harness.install(cache_root(), say)
    return harness


def bubblewrap(spec: SandboxSpec) -> Sandbox:
    """The sandbox that training uses."""
    return open_sandbox("bubblewrap", spec)


def check_disk(folder: Path, runs: int = 1) -> None:
    """Raise InfraError where the disk that `folder` is (or will be) on is too full for so many runs."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
    free = shutil.disk_usage(there).free
    if free < runs * NEEDED_BYTES:
        raise InfraError(
            f"only {free >> 20} MB are free under {folder}",
            f"{'a run needs' if runs == 1 else f'{runs} runs need'} {runs * NEEDED_BYTES >> 20} MB; free some space",
        )


async def check_machine(folder: Path) -> None:
    """Find out in a second what would otherwise fail every session minutes later.

    Sandboxes that a killed run could not take along are ended. Raises InfraError where no sandbox can be started, or
    where the disk under `folder` is too full for a run.
    """
    check_disk(folder)
    end_orphans()
    sandbox = bubblewrap(SandboxSpec())
    try:
        await sandbox.start()
        await sandbox.exec(["true"], timeout=30)
    finally:
        await sandbox.kill()


@contextlib.asynccontextmanager
async def open_stack(
    config: RunConfig, model_dir: Path, harness: Harness, log_verdict: Callable[[Mapping[str, Any]], None]
) -> AsyncIterator[Stack]:
    """Start the embedded engine and a gateway on it; everything is closed at the end, whatever happens.

    Raises EngineError when the model cannot be served, in words when the engine lacks something training needs.
    """
    from harness_adapters.engines.client import EngineClient
    from harness_adapters.engines.embedded import EmbeddedEngine
    from harness_adapters.gateway import Gateway

    renderer = open_renderer(model_dir, config.model.chat_format)
    engine = await _left_behind(
        lambda: EmbeddedEngine(
            model_dir,
            max_batch=config.engine.max_batch,
            prefix_cache_mb=config.engine.prefix_cache_mb,
            threads=config.engine.threads,
        )
    )
    async with (
        engine.serve() as url,
        EngineClient(url) as client,
        Gateway(url, renderer, verdict_log=log_verdict) as gateway,
    ):
        runner = SessionRunner(harness, gateway, bubblewrap, config, context=engine.positions)
        yield Stack(config, model_dir, harness, renderer, engine, client, gateway, runner)


async def _left_behind(work: Callable[[], EmbeddedEngine]) -> EmbeddedEngine:
    """Run `work` in a thread that nobody waits for when this is cancelled: reading a model cannot be interrupted, and
    Ctrl-C should not have to wait for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[EmbeddedEngine] = loop.create_future()

    def settle(set_result: Callable[[], None]) -> None:
        if not done.done():
            set_result()

    def run() -> None:
        try:
            engine = work()
        except BaseException as error:  # noqa: BLE001 - carried over to the task that waits
            told = partial(done.set_exception, error)
        else:
            told = partial(done.set_result, engine)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, told)

    threading.Thread(target=run, name="load-model", daemon=True).start()
    return await done
