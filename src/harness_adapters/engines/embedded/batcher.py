"""Continuous batching, token by token, in one thread: admit, fill in prompts in chunks, decode, sample, deliver.

A step of the backend computes one token for every decoding job and a chunk of prompt tokens for the others. Jobs are
admitted in the order they came, but in turns among the adapters: a crowd at one does not keep another's waiting.

Invariants
- Weights, caches and jobs are touched by the engine's thread alone, and never while somebody holds `exclusive`.
- A request that fails is answered with its error; the thread goes on. A thread that died answers everything with
  EngineError and makes `alive` false.

Asymmetry: `exclusive` holders go first; the engine waits for them before each step.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from harness_adapters.engines.embedded.backend import Backend, Job, StepResult
from harness_adapters.engines.embedded.requests import Answer, Generation
from harness_adapters.errors import EngineError

log = logging.getLogger(__name__)


class Batcher:
    """The engine's thread and its queue. `submit` and `exclusive` may be called from any thread."""

    def __init__(self, backend: Backend, *, max_batch: int) -> None:
        self._backend = backend
        self._max_batch = max_batch
        self._gate = threading.Condition()
        self._inbox: list[Job] = []
        self._errands: list[Callable[[], None]] = []
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._exclusive_wanted = 0
        self._exclusive_held = False
        self._stepping = False
        self._stopping = False
        self._thread: threading.Thread | None = None

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

    def submit(self, request: Generation, adapter: Any, key: int) -> Future[Answer]:
        """Queue a request. Cancelling the future drops it at the next step."""
        job: Job = self._backend.new(request, adapter, key, Future())
        with self._gate:
            if not self.alive or self._stopping:
                raise EngineError("the engine's thread is not running", "start the engine again")
            self._inbox.append(job)
            self._gate.notify_all()
        return job.future

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
        # torch's own threads would wait for one another at each operation (`helpers`).
        torch.set_num_threads(1)
        try:
            # What is not finite is answered with an error where it shows.
            with torch.inference_mode(), np.errstate(over="ignore", invalid="ignore"):
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
        for job in self._waiting:
            _deliver(job, failure)
        self._waiting = []

    def _fail_running(self, failure: EngineError) -> None:
        for job in self._running:
            self._backend.leave(job, store=False)
            _deliver(job, failure)
        self._running = []

    def _step(self) -> None:
        self._drop_cancelled()
        self._admit()
        if self._running:
            for result in self._backend.step(self._running):
                self._book(result)

    def _drop_cancelled(self) -> None:
        self._waiting = [job for job in self._waiting if not job.cancelled]
        for job in [job for job in self._running if job.cancelled]:
            self._backend.leave(job, store=True)
            self._running.remove(job)

    def _admit(self) -> None:
        passed_over: set[int] = set()
        while len(self._running) < self._max_batch:
            job = self._next_in_turn(passed_over)
            if job is None:
                return
            if self._backend.should_wait(job, self._running):
                passed_over.add(id(job))
                continue
            self._waiting.remove(job)
            # Among the running ones before anything can fail: a step that fails answers those.
            self._running.append(job)
            self._backend.begin(job)

    def _next_in_turn(self, passed_over: Collection[int]) -> Job | None:
        """The first that came of those whose adapter has the fewest running; None when all wait."""
        running = Counter(job.key for job in self._running)
        open_jobs = [job for job in self._waiting if id(job) not in passed_over]
        return min(open_jobs, key=lambda job: running[job.key], default=None)

    def _book(self, result: StepResult) -> None:
        """Move a job on by what a step computed for it, and answer it when that was its end."""
        job: Job = result.job
        job.prompt_logprobs += result.scores
        self._backend.book(result)
        if result.drawn is None:
            return
        token, logprob = result.drawn
        job.tokens.append(token)
        job.logprobs.append(logprob)
        if not all(math.isfinite(value) for value in (logprob, *(s or 0.0 for s in job.prompt_logprobs))):
            self._finish(job, EngineError("the model gave a log-prob that is not finite", "check the adapter"))
        elif token in job.request.stop:
            self._finish(job, "stop")
        elif len(job.tokens) >= job.request.max_tokens:
            self._finish(job, "length")

    def _finish(self, job: Job, result: str | EngineError) -> None:
        self._running.remove(job)
        failed = isinstance(result, EngineError)
        self._backend.leave(job, store=not failed)
        _deliver(job, result if isinstance(result, EngineError) else job.answer(result))


def _deliver(job: Job, result: Answer | EngineError) -> None:
    """Answer a request; one that was cancelled in the meantime has nobody to tell."""
    try:
        if isinstance(result, EngineError):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
    except InvalidStateError:
        log.debug("a request was cancelled while it was being answered")
