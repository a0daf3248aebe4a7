"""Speed of the embedded engine on this machine, next to transformers' `generate` in the same run.

    python bench/engine.py --model FOLDER [--json]

Prints tokens per wall second and per CPU second of this process: on a box that others use too, the second figure and
the ratios are what can be compared. Decoding starts after a shared prefix of `PREFIX` tokens, as sessions of one
harness do; transformers is given the same prefix as a ready cache. Adapters are random, rank 32, on all linear
layers.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import torch

from harness_adapters.engines.client import CompletionRequest, EngineClient
from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.records import BASE_POLICY
from harness_adapters.testing.tiny_models import save_random_adapter

PREFIX = 1_400
NEW = 48
SESSIONS = 8
RANK = 32
ADAPTERS = ("a", "b", "c")


class Clock:
    """Wall and CPU seconds of this process since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def rates(self, tokens: int) -> dict[str, float]:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"tok_per_s": round(tokens / wall, 2), "tok_per_cpu_s": round(tokens / cpu, 2), "wall_s": round(wall, 3)}


def prompt(seed: int, length: int, vocabulary: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(3, vocabulary) for _ in range(length))


async def measured(tokens: int, work: Callable[[], Awaitable[object]]) -> dict[str, float]:
    clock = Clock()
    await work()
    return clock.rates(tokens)


async def measure_prefill(client: EngineClient, vocabulary: int, length: int) -> dict[str, float]:
    ask = CompletionRequest(BASE_POLICY, prompt(length, length, vocabulary), max_tokens=1, seed=0)
    return await measured(length, lambda: client.complete(ask))


async def measure_decode(client: EngineClient, vocabulary: int, models: list[str], seed: int) -> dict[str, float]:
    """Sessions with one prefix and prompts of their own; the prefix is computed before the clock starts."""
    shared = prompt(0, PREFIX, vocabulary)
    asks = [
        CompletionRequest(model, (*shared, *prompt(seed + i, 4, vocabulary)), NEW, temperature=0.8, seed=i)
        for i, model in enumerate(models)
    ]
    for model in dict.fromkeys(models):
        await client.complete(CompletionRequest(model, shared, max_tokens=1, seed=0))
    return await measured(NEW * len(asks), lambda: asyncio.gather(*(client.complete(ask) for ask in asks)))


async def measure_reuse(client: EngineClient, vocabulary: int) -> dict[str, float]:
    """The same 1.4k-token prompt cold, then with another last token."""
    cold = prompt(99, PREFIX, vocabulary)
    first = await measured(PREFIX, lambda: client.complete(CompletionRequest(BASE_POLICY, cold, 1, seed=0)))
    warm = CompletionRequest(BASE_POLICY, (*cold[:-1], 5), 1, seed=0)
    second = await measured(PREFIX, lambda: client.complete(warm))
    speedup = first["wall_s"] / max(second["wall_s"], 1e-3)
    return {"cold_s": first["wall_s"], "warm_s": second["wall_s"], "speedup": round(speedup, 1)}


def measure_generate(module: Any, vocabulary: int, batch: int) -> dict[str, float]:
    """transformers' `generate` after the same prefix, whose cache is ready before the clock starts."""
    shared = torch.tensor([prompt(0, PREFIX, vocabulary)])
    with torch.no_grad():
        cache = copy.deepcopy(module(shared, use_cache=True, logits_to_keep=1).past_key_values)
        cache.batch_repeat_interleave(batch)
        own = torch.tensor([prompt(7 + i, 4, vocabulary) for i in range(batch)])
        ids = torch.cat([shared.expand(batch, -1), own], dim=1)
        clock = Clock()
        module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=cache,
            do_sample=True,
            temperature=0.8,
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            pad_token_id=0,
        )
        return clock.rates(NEW * batch)


async def measure_all(model_dir: Path) -> dict[str, dict[str, float]]:
    engine = EmbeddedEngine(model_dir, max_batch=SESSIONS, prefix_cache_mb=1024)
    vocabulary = engine.vocabulary
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        async with engine.serve() as url, EngineClient(url) as client:
            for seed, name in enumerate(ADAPTERS):
                save_random_adapter(model_dir, Path(scratch) / name, seed=seed, rank=RANK, std=0.01)
                await client.load_adapter(name, Path(scratch) / name)
            await measure_prefill(client, vocabulary, 64)
            for length in (512, 1536):
                results[f"prefill {length}"] = await measure_prefill(client, vocabulary, length)
            results["prefix reuse"] = await measure_reuse(client, vocabulary)
            cases = {
                "decode 1, base": [BASE_POLICY],
                "decode 8, base": [BASE_POLICY] * SESSIONS,
                "decode 1, one adapter": ["a"],
                "decode 8, one adapter": ["a"] * SESSIONS,
                "decode 8, three adapters": [ADAPTERS[i % len(ADAPTERS)] for i in range(SESSIONS)],
            }
            for seed, (name, models) in enumerate(cases.items()):
                results[name] = await measure_decode(client, vocabulary, models, 100 * (seed + 1))
    for batch in (1, SESSIONS):
        results[f"transformers generate {batch}, base"] = measure_generate(engine.model, vocabulary, batch)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the embedded engine on this machine.")
    parser.add_argument("--model", type=Path, required=True, help="a transformers folder of a Llama-type model")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    results = asyncio.run(measure_all(arguments.model))
    if arguments.json:
        sys.stdout.write(json.dumps({"threads": torch.get_num_threads(), "results": results}) + "\n")
        return
    for name, figures in results.items():
        row = "  ".join(f"{key} {value:g}" for key, value in figures.items())
        sys.stdout.write(f"{name:32} {row}\n")


if __name__ == "__main__":
    main()
