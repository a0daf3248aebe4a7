"""The embedded engine: one base model, its adapters, the batcher's thread and the HTTP server, in this process.

Invariants
- There is one transformers model (`model`), which a trainer in this process may wrap and train adapters on; the engine
  took its references to the base weights before, so what it serves are the base and the adapters it loaded from disk.
- An adapter name means one adapter from load to unload. Requests in flight keep theirs when it is unloaded.

Asymmetry: Llama-type models go through the engine's own forward (`lean`), all others through transformers'
(`fallback`), which is said at the start. Loading and unloading never wait for the engine; it opens and drops an
adapter's prefixes between two steps.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness_adapters.engines.embedded.backend import Backend
from harness_adapters.engines.embedded.batcher import Batcher
from harness_adapters.engines.embedded.fallback import TransformersBackend
from harness_adapters.engines.embedded.lean import LeanBackend
from harness_adapters.engines.embedded.model import load_module, not_lean
from harness_adapters.engines.embedded.requests import Answer, Generation
from harness_adapters.engines.embedded.server import listen
from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY

BASE_KEY = 0


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Served:
    adapter: Any
    key: int


class EmbeddedEngine:
    """Serve the causal language model of a transformers folder.

    `max_batch` sequences run together; `prefix_cache_mb` bounds stored prefixes (0: none); `threads` are torch's
    threads in a trainer's turn (0: as many as torch takes by itself); the engine computes with its own (`helpers`).
    Raises EngineError where the folder cannot be served.
    """

    def __init__(self, model_dir: Path, *, max_batch: int, prefix_cache_mb: int, threads: int = 0) -> None:
        self._trainer_threads = threads or torch.get_num_threads()
        self.model_dir = model_dir
        self.model: Any = load_module(model_dir)
        self._backend = _backend(self.model, max_batch=max_batch, prefix_cache_bytes=prefix_cache_mb << 20)
        self._backend.open(BASE_KEY)
        self._batcher = Batcher(self._backend, max_batch=max_batch)
        self._names = threading.Lock()
        self._served = {BASE_POLICY: _Served(None, BASE_KEY)}
        self._keys = itertools.count(BASE_KEY + 1)

    @property
    def vocabulary(self) -> int:
        return self._backend.vocabulary

    @property
    def positions(self) -> int:
        """The longest context in tokens, prompt and answer together."""
        return self._backend.positions

    @property
    def healthy(self) -> bool:
        return self._batcher.alive

    def models(self) -> list[str]:
        """The base's name first, then the adapters' in order of loading."""
        with self._names:
            return list(self._served)

    def start(self) -> None:
        self._batcher.start()

    def stop(self) -> None:
        self._batcher.stop()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the engine idle between two steps, for a trainer's turn on torch's threads.

        Blocks; from any thread; not reentrant.
        """
        with self._batcher.exclusive():
            # A setting of the calling thread: one that is new would begin with the engine's single one.
            torch.set_num_threads(self._trainer_threads)
            yield

    def submit(self, name: str, request: Generation) -> Future[Answer]:
        """Queue a request for a model name. Raises KeyError for an unknown name, EngineError where it cannot be."""
        with self._names:
            served = self._served[name]
        room = self.positions - len(request.prompt)
        if not request.prompt or room < 1:
            what = f"{len(request.prompt)} tokens, this model takes 1 to {self.positions - 1}"
            raise EngineError(f"the prompt has {what}", "shorten the prompt")
        if not 0 <= min(request.prompt) <= max(request.prompt) < self.vocabulary:
            raise EngineError(f"the prompt has token ids outside 0 to {self.vocabulary - 1}", "check its tokenizer")
        if request.max_tokens > room:
            request = Generation(**{**_fields(request), "max_tokens": room})
        return self._batcher.submit(request, served.adapter, served.key)

    def load_adapter(self, name: str, folder: Path) -> None:
        """Serve a PEFT folder under a new name. Raises EngineError where the name exists or the folder does not fit."""
        self._check_new(name)
        adapter = self._backend.read_adapter(name, folder)
        with self._names:
            if name in self._served:
                raise EngineError(f"a model named {name!r} is already loaded", "unload it, or use a new name")
            key = next(self._keys)
            self._batcher.between_steps(lambda: self._backend.open(key))
            self._served[name] = _Served(adapter, key)

    def unload_adapter(self, name: str) -> None:
        """Stop serving a name. Raises KeyError for an unknown one and EngineError for the base."""
        if name == BASE_POLICY:
            raise EngineError("the base model cannot be unloaded")
        with self._names:
            served = self._served.pop(name)
        self._batcher.between_steps(lambda: self._backend.drop(served.key))

    @asynccontextmanager
    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Start the thread and the HTTP server; yields its URL. Raises EngineError when the port is taken."""
        self.start()
        try:
            async with listen(self, host, port) as url:
                yield url
        finally:
            await asyncio.to_thread(self.stop)

    def _check_new(self, name: str) -> None:
        if not name:
            raise EngineError("an adapter needs a name", "give lora_name")
        with self._names:
            if name in self._served:
                raise EngineError(f"a model named {name!r} is already loaded", "unload it, or use a new name")


def _fields(request: Generation) -> dict[str, Any]:
    return {name: getattr(request, name) for name in Generation.__slots__}


def _backend(module: Any, *, max_batch: int, prefix_cache_bytes: int) -> Backend:
    reason = not_lean(module.config)
    if not reason:
        return LeanBackend(module, max_batch=max_batch, prefix_cache_bytes=prefix_cache_bytes)
    log.warning("%s: it is served by transformers' own forward, slower and without shared prefixes", reason)
    return TransformersBackend(module)
