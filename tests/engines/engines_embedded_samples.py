"""What the embedded engine's tests share: a tiny model with adapters, a PEFT reference, requests without HTTP."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import LlamaForCausalLM

from harness_adapters.engines.embedded import Answer, EmbeddedEngine, Generation
from harness_adapters.records import BASE_POLICY

TOLERANCE = 1e-4
VOCABULARY = 97


@dataclass(frozen=True)
class Folders:
    base: Path
    adapters: dict[str, Path]


class Reference:
    """Plain transformers + PEFT forwards of the same folders, one sequence at a time."""

    def __init__(self, folders: Folders) -> None:
        self._models: dict[str, Any] = {
            BASE_POLICY: LlamaForCausalLM.from_pretrained(folders.base, dtype=torch.float32).eval()
        }
        for name, folder in folders.adapters.items():
            base = LlamaForCausalLM.from_pretrained(folders.base, dtype=torch.float32)
            self._models[name] = PeftModel.from_pretrained(base, str(folder)).eval()

    def logprobs(self, name: str, tokens: Sequence[int], temperature: float = 1.0) -> list[float]:
        """Log-prob of each token but the first."""
        ids = torch.tensor([list(tokens)])
        with torch.no_grad():
            logits = self._models[name](ids).logits[0, :-1] / temperature
        return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0].tolist()


@contextmanager
def running(folders: Folders, *, max_batch: int = 4, prefix_cache_mb: int = 8) -> Iterator[EmbeddedEngine]:
    """An engine with all adapters loaded and its thread running."""
    engine = EmbeddedEngine(folders.base, max_batch=max_batch, prefix_cache_mb=prefix_cache_mb)
    for name, folder in folders.adapters.items():
        engine.load_adapter(name, folder)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def complete(engine: EmbeddedEngine, name: str, request: Generation) -> Answer:
    return engine.submit(name, request).result(timeout=60)


def together(engine: EmbeddedEngine, asks: Sequence[tuple[str, Generation]]) -> list[Answer]:
    """All requests queued before the engine takes its next step."""
    with engine.exclusive():
        futures = [engine.submit(name, request) for name, request in asks]
    return [future.result(timeout=60) for future in futures]


def tokens(seed: int, length: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(VOCABULARY) for _ in range(length))


def worst(left: Sequence[float], right: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(left, right, strict=True))
