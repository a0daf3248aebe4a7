"""Speed and exactness of trie training on this machine: sessions of one harness, packed and one by one.

    python bench/training.py --model FOLDER [--sessions 6] [--prefix 1450] [--tail 110] [--json]

Sessions are English text: one shared prefix, then a tail each, of which the second half is trained. Three ways to
take the same supervised step: `detached` (prefix shared, no gradient through it), `packed` (prefix shared, exact) and
`one by one` (nothing shared, as in ordinary batches). Seconds are wall and CPU time of this process; the resident peak
is the largest so far, so the ways run from the smallest to the largest. `gradient` compares the adapter gradients of
`detached` and `packed`: their cosine, their norms' ratio, and the largest difference of a log-prob (nats).
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from harness_adapters.config import LoraConfig, TrainerConfig
from harness_adapters.records import TrainRow
from harness_adapters.training import forward
from harness_adapters.training.trainer import Trainer
from harness_adapters.training.trie import build

LEARNING_RATE = 1e-3


def text_rows(tokenizer: Tokenizer, sessions: int, prefix: int, tail: int) -> list[TrainRow]:
    """Rows of `prefix` + `tail` tokens from Python's own manual."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    ids = tokenizer.encode(text[: 8 * (prefix + sessions * tail)], add_special_tokens=False).ids
    size = prefix + tail
    trained = tuple(place >= size - tail // 2 for place in range(size))
    rows = []
    for number in range(sessions):
        start = prefix + number * tail
        rows.append(TrainRow(f"session-{number}", (*ids[:prefix], *ids[start : start + tail]), trained, (0.0,) * size))
    return rows


def measure_step(trainer: Trainer, rows: list[TrainRow], config: TrainerConfig) -> dict[str, float]:
    trainer.config = config
    metrics = trainer.supervised_step(rows, LEARNING_RATE)
    return {
        "seconds": round(metrics.seconds, 2),
        "cpu_seconds": round(metrics.cpu_seconds, 2),
        "unique_tokens": metrics.unique_tokens,
        "detached_tokens": metrics.detached_tokens,
        "raw_tokens_per_second": round(metrics.raw_tokens / metrics.seconds, 1),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def measure_gradient(trainer: Trainer, rows: list[TrainRow]) -> dict[str, float]:
    """The detached gradient next to the exact one."""
    trie = build(rows)
    parameters = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    found = []
    for prefix in (forward.compute_prefix(trainer.model, trie, trie.detachable), None):
        logprobs = forward.term_values(trainer.model, trie, temperature=1.0, prefix=prefix).logprobs
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(-logprobs.mean(), parameters)])
        found.append((logprobs.detach(), gradient))
    (values, detached), (exact_values, exact) = found
    return {
        "cosine": round(float(torch.nn.functional.cosine_similarity(detached, exact, dim=0)), 4),
        "norm_ratio": round(float(detached.norm() / exact.norm()), 4),
        "largest_log_prob_difference": float((values - exact_values).abs().max()),
    }


def measure_all(model_dir: Path, sessions: int, prefix: int, tail: int) -> dict[str, dict[str, float]]:
    model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    rows = text_rows(Tokenizer.from_file(str(model_dir / "tokenizer.json")), sessions, prefix, tail)
    whole = TrainerConfig(max_unique_tokens=prefix + sessions * tail)
    trainer = Trainer(model, lora=LoraConfig(), config=whole, temperature=1.0, seed=0)
    # One step first: it touches the memory once, and moves B away from 0, where A has no gradient.
    trainer.supervised_step(rows[:1], LEARNING_RATE)
    results = {
        "detached": measure_step(trainer, rows, whole.model_copy(update={"detach_prefix": True})),
        "one by one": measure_step(trainer, rows, TrainerConfig(max_unique_tokens=prefix + tail)),
        "packed": measure_step(trainer, rows, whole),
    }
    seconds = {name: figures["seconds"] for name, figures in results.items()}
    results["speed against one by one"] = {
        name: round(seconds["one by one"] / seconds[name], 2) for name in ("packed", "detached")
    }
    results["gradient"] = measure_gradient(trainer, rows)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and exactness of trie training on this machine.")
    parser.add_argument("--model", type=Path, required=True, help="a transformers folder of a full-attention model")
    parser.add_argument("--sessions", type=int, default=6, help="sessions in the step")
    parser.add_argument("--prefix", type=int, default=1450, help="tokens that all sessions share")
    parser.add_argument("--tail", type=int, default=110, help="tokens of each session's own")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    results = measure_all(arguments.model, arguments.sessions, arguments.prefix, arguments.tail)
    if arguments.json:
        sys.stdout.write(json.dumps({"threads": torch.get_num_threads(), "results": results}) + "\n")
        return
    for name, figures in results.items():
        row = "  ".join(f"{key} {value:g}" for key, value in figures.items())
        sys.stdout.write(f"{name:26} {row}\n")


if __name__ == "__main__":
    main()
