"""The fallback backend: any causal language model that transformers has, by its own forward, one job at a time.

Slower than the lean one by the whole batch, and nothing is shared between prompts: hybrid models keep states that are
no keys and values, and only the model itself knows how to carry them on.

Invariants
- Modules are this backend's own, weights are not: a trainer that wraps the engine's model does not change what is
  computed here.
- A job's cache holds what the model computed for that job's tokens under its adapter, nothing else.

Asymmetry: a prompt is computed whole, in one step of its own, since some models take several tokens at a time only
with an empty cache; decoding goes token by token.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness_adapters.engines.embedded.backend import Job, StepResult
from harness_adapters.engines.embedded.helpers import helpers
from harness_adapters.engines.embedded.peft_folder import LowRank, read_low_rank
from harness_adapters.engines.embedded.requests import Answer, Generation
from harness_adapters.engines.embedded.sampling import sample, token_logprobs


@dataclass(slots=True, eq=False)
class PlainJob(Job):
    """`cache` is the model's own, None until the prompt is computed."""

    cache: Any = None


class TransformersBackend:
    """See `Backend`. `module` is a transformers causal language model."""

    def __init__(self, module: Any) -> None:
        config = module.config.get_text_config(decoder=True)
        self.vocabulary: int = module.get_input_embeddings().weight.shape[0]
        self.positions: int = config.max_position_embeddings
        # A tree of modules of its own around the same tensors.
        shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        self._module: Any = copy.deepcopy(module, shared)
        self._active: LowRank | None = None
        head = self._module.get_output_embeddings()
        self._linear: dict[str, torch.nn.Linear] = {}
        for name, part in self._module.named_modules():
            if isinstance(part, torch.nn.Linear) and part is not head:
                self._linear[name] = part
                part.register_forward_hook(self._adding(name))

    def read_adapter(self, name: str, folder: Path) -> LowRank:
        return read_low_rank(folder, {name: (m.in_features, m.out_features) for name, m in self._linear.items()})

    def open(self, key: int) -> None:
        """Nothing is kept by key."""

    def drop(self, key: int) -> None:
        """Nothing is kept by key."""

    def new(self, request: Generation, adapter: LowRank | None, key: int, future: Future[Answer]) -> PlainJob:
        return PlainJob(request, adapter, key, future)

    def should_wait(self, job: PlainJob, running: Sequence[PlainJob]) -> bool:
        return False

    def begin(self, job: PlainJob) -> None:
        """A cache comes with the prompt."""

    def step(self, running: Sequence[PlainJob]) -> list[StepResult]:
        """A token for every job whose prompt is computed, and one prompt."""
        with _threads():
            results = [self._decode(job) for job in running if job.cache is not None]
            starting = next((job for job in running if job.cache is None), None)
            return results if starting is None else [*results, self._start(starting)]

    def book(self, result: StepResult) -> None:
        """The model's cache has moved on by itself."""

    def leave(self, job: PlainJob, *, store: bool) -> None:
        job.cache = None

    def _start(self, job: PlainJob) -> StepResult:
        prompt = job.request.prompt
        scored = job.request.prompt_logprobs
        logits = self._forward(job, prompt, keep=0 if scored else 1)
        scores: list[float | None] = []
        if scored:
            scores = [None, *(token_logprobs(logits[:-1], prompt[1:]) if len(prompt) > 1 else [])]
        return StepResult(job, filled=len(prompt), scores=scores, drawn=sample(logits[-1:], [job.draw])[0])

    def _decode(self, job: PlainJob) -> StepResult:
        logits = self._forward(job, job.tokens[-1:], keep=1)
        return StepResult(job, drawn=sample(logits, [job.draw])[0])

    def _forward(self, job: PlainJob, tokens: Sequence[int], keep: int) -> Tensor:
        """Logits fp32 of the last `keep` tokens (0: of all), `[tokens, vocabulary]`; the job's cache moves on."""
        self._active = job.adapter
        try:
            out = self._module(
                input_ids=torch.tensor([list(tokens)]), past_key_values=job.cache, use_cache=True, logits_to_keep=keep
            )
        finally:
            self._active = None
        job.cache = out.past_key_values
        logits: Tensor = out.logits[0].float().contiguous()
        return logits

    def _adding(self, name: str) -> Any:
        """A hook that adds the active adapter's low-rank product to a module's output."""

        def add(_: Any, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            pair = self._active.pairs.get(name) if self._active is not None else None
            return None if pair is None else output + arguments[0] @ pair[0].t() @ pair[1].t()

        return add


@contextmanager
def _threads() -> Iterator[None]:
    """torch's own threads for the model's operations; the engine's thread has a single one otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(helpers().count + 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
