"""Speed of the embedded engine on this machine, next to transformers' `generate` on the same weights in the same run.

    python bench/engine.py [--model FOLDER] [--rounds 3] [--json]

Every figure is the median of `--rounds` measurements; a round measures everything once, so that whatever else the
machine does meets all alike. Figures are tokens per wall second and per CPU second of this process: on a box that
others use too, the second figure and the ratios are what can be compared. Decoding starts after a shared prefix of
`PREFIX` tokens, as sessions of one harness do; transformers is given the same prefix as a ready cache. Adapters are
random, rank 32, on all linear layers. `generate` runs a module of its own, in fp32, as transformers is used.

`--json` prints tokens per second under `prefill512`, `decode1`, `decode8`, `decode8_1adapter`, `decode8_3adapters`,
`generate1`, `generate8`, the factor `prefix_speedup`, what follows from them under `ratios`, and all under `details`.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from harness_adapters.engines.client import CompletionRequest, EngineClient
from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.engines.weights import packaged_model
from harness_adapters.gateway.renderers.template import CHATML_TEMPLATE
from harness_adapters.records import BASE_POLICY
from harness_adapters.testing.tiny_models import save_random_adapter

PREFIX = 1_400
NEW = 48
SESSIONS = 8
RANK = 32
ADAPTERS = ("a", "b", "c")

Figures = dict[str, dict[str, float]]


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


async def measure_prefill(client: EngineClient, vocabulary: int, length: int, seed: int) -> dict[str, float]:
    ask = CompletionRequest(BASE_POLICY, prompt(seed, length, vocabulary), max_tokens=1, seed=0)
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


async def measure_reuse(client: EngineClient, vocabulary: int, seed: int) -> dict[str, float]:
    """The same 1.4k-token prompt cold, then with another last token."""
    cold = prompt(seed, PREFIX, vocabulary)
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


CASES = {
    "decode1": [BASE_POLICY],
    "decode8": [BASE_POLICY] * SESSIONS,
    "decode1_1adapter": ["a"],
    "decode8_1adapter": ["a"] * SESSIONS,
    "decode8_3adapters": [ADAPTERS[i % len(ADAPTERS)] for i in range(SESSIONS)],
}


async def measure_round(client: EngineClient, module: Any, vocabulary: int, number: int) -> Figures:
    """Everything once; prompts differ from round to round, so that no prefix of an earlier one is met."""
    figures: Figures = {}
    for length in (512, 1536):
        figures[f"prefill{length}"] = await measure_prefill(client, vocabulary, length, 1000 * number + length)
    figures["prefix"] = await measure_reuse(client, vocabulary, 1000 * number + 99)
    for seed, (name, models) in enumerate(CASES.items()):
        figures[name] = await measure_decode(client, vocabulary, models, 1000 * number + 100 * (seed + 1))
        batch = {"decode1": 1, "decode8": SESSIONS}.get(name)
        if batch:
            figures[f"generate{batch}"] = measure_generate(module, vocabulary, batch)
    return figures


async def measure_all(model_dir: Path, rounds: int) -> Figures:
    engine = EmbeddedEngine(model_dir, max_batch=SESSIONS, prefix_cache_mb=1024)
    vocabulary = engine.vocabulary
    with tempfile.TemporaryDirectory() as scratch:
        async with engine.serve() as url, EngineClient(url) as client:
            for seed, name in enumerate(ADAPTERS):
                save_random_adapter(model_dir, Path(scratch) / name, seed=seed, rank=RANK, std=0.01)
                await client.load_adapter(name, Path(scratch) / name)
            await measure_prefill(client, vocabulary, 64, 1)
            module: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True)
            seen = [await measure_round(client, module.eval(), vocabulary, number) for number in range(1, rounds + 1)]
    return {
        case: {key: round(statistics.median(one[case][key] for one in seen), 3) for key in seen[0][case]}
        for case in seen[0]
    }


def summary(details: Figures) -> dict[str, Any]:
    """The figures by the names that others compare, and what follows from them."""
    speed = {name: figures["tok_per_s"] for name, figures in details.items() if "tok_per_s" in figures}
    return {
        **speed,
        "prefix_speedup": details["prefix"]["speedup"],
        "ratios": {
            "decode1/generate1": round(speed["decode1"] / speed["generate1"], 2),
            "decode8/generate8": round(speed["decode8"] / speed["generate8"], 2),
            "decode8_3adapters/decode8_1adapter": round(speed["decode8_3adapters"] / speed["decode8_1adapter"], 2),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the embedded engine on this machine.")
    parser.add_argument(
        "--model", type=Path, help="a transformers folder of a Llama-type model (default: the packaged)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measurements of which the median is taken (default: 3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    model = arguments.model or packaged_model(CHATML_TEMPLATE, lambda text: print(text, file=sys.stderr))
    details = asyncio.run(measure_all(model, arguments.rounds))
    if arguments.json:
        print(json.dumps({**summary(details), "threads": torch.get_num_threads(), "details": details}))
        return
    for name, figures in details.items():
        print(f"{name:20}", "  ".join(f"{key} {value:g}" for key, value in figures.items()))
    print(*(f"{name} {value:g}" for name, value in summary(details)["ratios"].items()), sep="\n")


if __name__ == "__main__":
    main()
