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

from harness_adapters.config import RunConfig, TasksConfig
from harness_adapters.engines.weights import check_model_folder, packaged_model
from harness_adapters.errors import ConfigError, InfraError
from harness_adapters.gateway.renderers import Renderer, check_chat_format, open_renderer
from harness_adapters.gateway.renderers.template import CHATML_TEMPLATE
from harness_adapters.harnesses import Harness, get_harness
from harness_adapters.rollouts.session import SessionRunner
from harness_adapters.sandbox import SandboxSpec, open_sandbox
from harness_adapters.sandbox.leftovers import end_orphans
from harness_adapters.sandbox.protocol import Sandbox
from harness_adapters.storage import cache_root
from harness_adapters.tasks.format import read_tasks
from harness_adapters.tasks.sources.first_steps import STYLES, oracle_turns

if TYPE_CHECKING:
    from harness_adapters.engines.client import EngineClient
    from harness_adapters.engines.embedded import EmbeddedEngine
    from harness_adapters.gateway import Gateway


SPLITS = ("train", "heldout", "unseen")
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
    """The transformers folder of the run's base model, converted or checked."""
    if config.model.path:
        return check_model_folder(Path(config.model.path).expanduser())
    return packaged_model(CHATML_TEMPLATE, say)


def check_choices(config: RunConfig, stand_in: Harness | None = None) -> None:
    """Raise ConfigError for a choice that a run would refuse once it came to it: nothing has been made yet.

    `stand_in`: a harness that plays in place of the configuration's, unchecked.
    """
    _harness_of(config, stand_in)
    check_chat_format(config.model.chat_format)
    if config.engine.kind != "embedded":
        raise ConfigError(f"engine kind {config.engine.kind!r} is not there yet", 'use kind = "embedded"')
    if config.model.path:
        check_model_folder(Path(config.model.path).expanduser())
    elif config.warm_start.steps == 0:
        raise ConfigError(
            "warm_start.steps is 0, and the packaged model never solves a task untrained",
            'name a preset (preset = "tiny-cpu" has the values for this machine), or set warm_start.steps above 0',
        )
    check_task_folder(config.tasks, oracles=config.warm_start.steps > 0)


def check_new(config: RunConfig, stand_in: Harness | None = None) -> None:
    """Raise ConfigError for what `check_choices` refuses, and for keys of a new configuration that would do nothing."""
    check_choices(config, stand_in)
    usual = TasksConfig()
    idle = [key for key in ("train", "heldout", "unseen") if getattr(config.tasks, key) != getattr(usual, key)]
    if config.tasks.source != "first-steps" and idle:
        raise ConfigError(
            f"tasks.{idle[0]} says how many first-steps tasks to make; {config.tasks.source} holds its own",
            "leave it out (and --tasks), or tasks.source",
        )


def check_task_folder(tasks: TasksConfig, *, oracles: bool) -> None:
    """Raise ConfigError where `tasks.source` is a folder that cannot hold a run's pools, TaskError for a task in it
    that does not parse or, where `oracles` are to be recorded, for one without an oracle that does."""
    if tasks.source == "first-steps":
        return
    source = Path(tasks.source).expanduser()
    if not all((source / split).is_dir() for split in ("train", "heldout")):
        raise ConfigError(
            f"tasks.source: {source.resolve()} has no train/ and heldout/ folders of tasks",
            "a relative one is looked up from the current folder; harness-adapters tasks first-steps shows the form",
        )
    pools = {split: read_tasks(source / split) for split in SPLITS if (source / split).is_dir()}
    for task in pools["train"] if oracles else ():
        there = [style for style in STYLES if (task.path / "solution" / f"{style}.json").exists()]
        for style in there or STYLES[:1]:
            oracle_turns(task, style)


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


def check_disk(folder: Path) -> None:
    """Raise InfraError where the disk that `folder` is (or will be) on is too full for a run."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
    free = shutil.disk_usage(there).free
    if free < NEEDED_BYTES:
        raise InfraError(
            f"only {free >> 20} MB are free under {folder}", f"a run needs {NEEDED_BYTES >> 20} MB; free some space"
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
