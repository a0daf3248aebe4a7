"""Continuous batching, token by token, in one thread: admit, fill in prompts in chunks, decode, sample, deliver.

A step (`step`) computes one token for every decoding sequence and a chunk of prompt tokens for the others. A request
whose prompt shares a long uncached beginning with one being filled in waits for it, so that sessions started together
compute their common prompt once.

Invariants
- Weights, caches and sequences are touched by the engine's thread alone, and never while somebody holds `exclusive`.
- A request that fails is answered with its error; the thread goes on. A thread that died answers everything with
  EngineError and makes `alive` false.

Asymmetry: `exclusive` holders go first; the engine waits for them before each step.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager

import torch

from harness_adapters.engines.embedded.kv import SlotPool
from harness_adapters.engines.embedded.lora import Adapter
from harness_adapters.engines.embedded.model import LlamaModel
from harness_adapters.engines.embedded.prefix_cache import Match, PrefixCache, common_prefix
from harness_adapters.engines.embedded.requests import Answer, Generation
from harness_adapters.engines.embedded.sequence import Sequence
from harness_adapters.engines.embedded.step import Stepper, StepResult
from harness_adapters.errors import EngineError

log = logging.getLogger(__name__)

SLOT_CAPACITY = 512
"""Positions of a slot; a longer answer moves on in segments of this many tokens."""

WORTH_WAITING = 64
"""Uncached tokens in common with a prompt being filled in from which on a request waits for it."""


class Batcher:
    """The engine's thread and its queue. `submit` and `exclusive` may be called from any thread."""

    def __init__(self, model: LlamaModel, cache: PrefixCache, *, max_batch: int) -> None:
        self._model = model
        self._cache = cache
        self._max_batch = max_batch
        self._pool = SlotPool(model.kv_shape, max_batch, min(SLOT_CAPACITY, model.positions))
        self._gate = threading.Condition()
        self._inbox: list[Sequence] = []
        self._errands: list[Callable[[], None]] = []
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._exclusive_wanted = 0
        self._exclusive_held = False
        self._stepping = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._stepper = Stepper(model, self._pool)

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        if self.alive:
            raise EngineError("the engine is already running", "stop it first")
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="embedded-engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its step; requests not answered yet fail."""
        with self._gate:
            self._stopping = True
            self._gate.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def submit(self, request: Generation, adapter: Adapter | None, key: int) -> Future[Answer]:
        """Queue a request. Cancelling the future drops it at the next step."""
        sequence = Sequence(request, adapter, key, Future())
        with self._gate:
            if not self.alive or self._stopping:
                raise EngineError("the engine's thread is not running", "start the engine again")
            self._inbox.append(sequence)
            self._gate.notify_all()
        return sequence.future

    def between_steps(self, errand: Callable[[], None]) -> None:
        """Have the engine's thread do something short before its next step; does not wait for it."""
        with self._gate:
            self._errands.append(errand)
            self._gate.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait until the engine is between steps and hold it there. Not reentrant."""
        with self._gate:
            self._exclusive_wanted += 1
            self._gate.wait_for(lambda: not self._stepping and not self._exclusive_held)
            self._exclusive_held = True
        try:
            yield
        finally:
            with self._gate:
                self._exclusive_held = False
                self._exclusive_wanted -= 1
                self._gate.notify_all()

    def _run(self) -> None:
        failure = EngineError("the engine stopped before the request was answered")
        # torch's own threads would wait for one another at each operation (`blas`).
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                while self._enter_step():
                    # The boundary of a step: whatever fails in it fails its requests, never the thread.
                    try:
                        self._step()
                    except Exception as error:
                        log.exception("a step of the engine failed")
                        self._fail_running(EngineError(f"the engine failed on this batch: {error}"))
                    self._leave_step()
        except BaseException as error:
            failure = EngineError(f"the engine's thread died: {error!r}")
            raise
        finally:
            self._abandon(failure)

    def _enter_step(self) -> bool:
        """Wait for work and for exclusive holders; False when stopping."""
        with self._gate:
            self._gate.wait_for(lambda: self._stopping or (not self._exclusive_wanted and self._has_work()))
            if self._stopping:
                return False
            self._stepping = True
            self._waiting += self._inbox
            self._inbox = []
            errands, self._errands = self._errands, []
        for errand in errands:
            errand()
        return True

    def _leave_step(self) -> None:
        with self._gate:
            self._stepping = False
            self._gate.notify_all()

    def _has_work(self) -> bool:
        return bool(self._inbox or self._errands or self._waiting or self._running)

    def _abandon(self, failure: EngineError) -> None:
        with self._gate:
            self._stopping, self._stepping = True, False
            self._waiting += self._inbox
            self._inbox = []
            self._gate.notify_all()
        self._fail_running(failure)
        for sequence in self._waiting:
            _deliver(sequence, failure)
        self._waiting = []

    def _fail_running(self, failure: EngineError) -> None:
        for sequence in self._running:
            sequence.leave(self._cache, self._pool, store=False)
            _deliver(sequence, failure)
        self._running = []

    def _step(self) -> None:
        self._drop_cancelled()
        self._admit()
        if self._running:
            for result in self._stepper.step(self._running):
                self._book(result)

    def _drop_cancelled(self) -> None:
        self._waiting = [sequence for sequence in self._waiting if not sequence.cancelled]
        for sequence in [s for s in self._running if s.cancelled]:
            sequence.leave(self._cache, self._pool, store=True)
            self._running.remove(sequence)

    def _admit(self) -> None:
        for sequence in list(self._waiting):
            if len(self._running) >= self._max_batch:
                return
            if self._should_wait(sequence):
                continue
            self._waiting.remove(sequence)
            # Among the running ones before anything can fail: a step that fails answers those.
            self._running.append(sequence)
            prompt, scored = sequence.request.prompt, sequence.request.prompt_logprobs
            match = Match(None, 0, ()) if scored else self._cache.match(sequence.key, prompt[:-1])
            sequence.begin(self._model.kv_shape, match)

    def _should_wait(self, sequence: Sequence) -> bool:
        if not self._cache.enabled or sequence.request.prompt_logprobs:
            return False
        prompt = sequence.request.prompt
        filling = [s for s in self._running if s.prompt_left and s.key == sequence.key]
        common = max((common_prefix(s.request.prompt, prompt) for s in filling), default=0)
        return common >= WORTH_WAITING and common - self._cache.matched(sequence.key, prompt) >= WORTH_WAITING

    def _book(self, result: StepResult) -> None:
        """Move a sequence on by what a step computed for it, and answer it when that was its end."""
        sequence = result.sequence
        if sequence.filling is None:
            sequence.slot_length += 1
        else:
            sequence.filled += result.filled
            sequence.prompt_logprobs += result.scores
            if not sequence.prompt_left:
                sequence.end_prompt(self._cache, self._pool)
        if result.drawn is None:
            return
        token, logprob = result.drawn
        sequence.tokens.append(token)
        sequence.logprobs.append(logprob)
        if not all(math.isfinite(value) for value in (logprob, *(s or 0.0 for s in sequence.prompt_logprobs))):
            self._finish(sequence, EngineError("the model gave a log-prob that is not finite", "check the adapter"))
        elif token in sequence.request.stop:
            self._finish(sequence, "stop")
        elif len(sequence.tokens) >= sequence.request.max_tokens:
            self._finish(sequence, "length")

    def _finish(self, sequence: Sequence, result: str | EngineError) -> None:
        self._running.remove(sequence)
        failed = isinstance(result, EngineError)
        sequence.leave(self._cache, self._pool, store=not failed)
        _deliver(sequence, result if isinstance(result, EngineError) else sequence.answer(result))


def _deliver(sequence: Sequence, result: Answer | EngineError) -> None:
    """Answer a request; one that was cancelled in the meantime has nobody to tell."""
    try:
        if isinstance(result, EngineError):
            sequence.future.set_exception(result)
        else:
            sequence.future.set_result(result)
    except InvalidStateError:
        log.debug("a request was cancelled while it was being answered")
