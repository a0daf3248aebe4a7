"""The lean backend: Llama-type models by the engine's own forward, with shared prefixes and slots.

A request whose prompt shares a long uncached beginning with one being filled in waits for it, so that sessions started
together compute their common prompt once.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from harness_adapters.engines.embedded import forward, sampling
from harness_adapters.engines.embedded.backend import StepResult
from harness_adapters.engines.embedded.kv import SlotPool
from harness_adapters.engines.embedded.lora import Adapter, read_adapter
from harness_adapters.engines.embedded.model import LlamaModel
from harness_adapters.engines.embedded.prefix_cache import Match, PrefixCache, common_prefix
from harness_adapters.engines.embedded.requests import Answer, Generation
from harness_adapters.engines.embedded.sequence import Sequence
from harness_adapters.engines.embedded.step import Stepper

SLOT_CAPACITY = 512
"""Positions of a slot; a longer answer moves on in segments of this many tokens."""

WORTH_WAITING = 64
"""Uncached tokens in common with a prompt being filled in from which on a request waits for it."""


def warm_up() -> None:
    """Compile what the engine computes with: half a minute, the first time on a machine."""
    forward.warm_up()
    sampling.warm_up()


class LeanBackend:
    """See `Backend`. `module` is a transformers `LlamaForCausalLM`; its weights are used where they are."""

    def __init__(self, module: Any, *, max_batch: int, prefix_cache_bytes: int) -> None:
        warm_up()
        self.model = LlamaModel(module)
        self.vocabulary = self.model.vocabulary
        self.positions = self.model.positions
        self.cache = PrefixCache(self.model.kv_shape, prefix_cache_bytes)
        self.pool = SlotPool(self.model.kv_shape, max_batch, min(SLOT_CAPACITY, self.positions))
        self._stepper = Stepper(self.model, self.pool)

    def read_adapter(self, name: str, folder: Path) -> Adapter:
        return read_adapter(name, folder, self.model)

    def open(self, key: int) -> None:
        self.cache.open(key)

    def drop(self, key: int) -> None:
        self.cache.drop(key)

    def new(self, request: Generation, adapter: Adapter | None, key: int, future: Future[Answer]) -> Sequence:
        return Sequence(request, adapter, key, future)

    def should_wait(self, job: Sequence, running: Ordered[Sequence]) -> bool:
        if not self.cache.enabled or job.request.prompt_logprobs:
            return False
        prompt = job.request.prompt
        filling = [s for s in running if s.prompt_left and s.key == job.key]
        common = max((common_prefix(s.request.prompt, prompt) for s in filling), default=0)
        return common >= WORTH_WAITING and common - self.cache.matched(job.key, prompt) >= WORTH_WAITING

    def begin(self, job: Sequence) -> None:
        scored = job.request.prompt_logprobs
        match = Match(None, 0, ()) if scored else self.cache.match(job.key, job.request.prompt[:-1])
        job.begin(self.model.kv_shape, match)

    def step(self, running: Ordered[Sequence]) -> list[StepResult]:
        return self._stepper.step(running)

    def book(self, result: StepResult) -> None:
        job: Sequence = result.job
        if job.filling is None:
            job.slot_length += 1
            return
        job.filled += result.filled
        if not job.prompt_left:
            job.end_prompt(self.cache, self.pool)

    def leave(self, job: Sequence, *, store: bool) -> None:
        job.leave(self.cache, self.pool, store=store)
