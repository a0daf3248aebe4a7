"""Trainer, publisher and embedded engine together: what is served is what was trained, or training stops."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness_adapters.config import LoraConfig, TrainerConfig
from harness_adapters.engines.client import CompletionRequest, EngineClient
from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.engines.publisher import Canary, CanaryScores, Publisher
from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY, PolicyVersion, TrainRow
from harness_adapters.training.trainer import Trainer

START = 6
SEQUENCES = (tuple(range(3, 27)), tuple(range(40, 10, -1)))
TEMPERATURE = 0.8


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


class Swapped(EngineClient):
    """An engine that quietly serves another model under one name."""

    swap: tuple[str, str] = ("", "")

    async def score(self, model: str, token_ids: tuple[int, ...] | list[int]) -> list[float | None]:
        return await super().score(self.swap[1] if model == self.swap[0] else model, token_ids)


def rows(advantage: float = 1.0) -> list[TrainRow]:
    return [
        TrainRow(
            f"r{number}",
            ids,
            tuple(place >= START for place in range(len(ids))),
            tuple(-4.0 if place >= START else 0.0 for place in range(len(ids))),
            advantage,
        )
        for number, ids in enumerate(SEQUENCES)
    ]


def scores(trainer: Trainer) -> CanaryScores:
    return CanaryScores(tuple(tuple(values) for values in trainer.logprobs(rows(), temperature=1.0)))


def trained_by(engine: EmbeddedEngine) -> Trainer:
    return Trainer(
        engine.model, lora=LoraConfig(rank=4, alpha=8), config=TrainerConfig(), temperature=TEMPERATURE, seed=1
    )


async def publish(trainer: Trainer, publisher: Publisher, number: int) -> Any:
    version = PolicyVersion("run", "pi", number)
    trainer.save_adapter(publisher.folder(version))
    return await publisher.publish(version, scores(trainer))


@pytest.mark.parametrize("served_instead", [BASE_POLICY, "run-pi-v0"])
def test_the_base_or_the_previous_version_under_the_new_name_stops_training(
    model_dir: Path, tmp_path: Path, served_instead: str
) -> None:
    async def run() -> None:
        engine = EmbeddedEngine(model_dir, max_batch=2, prefix_cache_mb=16)
        async with engine.serve() as url, Swapped(url) as client:
            trainer = trained_by(engine)
            publisher = Publisher(
                client, tmp_path / "adapters", Canary(SEQUENCES, (START, START)), tokens=24, threshold=0.02
            )
            publisher.remember(BASE_POLICY, scores(trainer))
            trainer.supervised_step(rows(), 1e-2)
            assert (await publish(trainer, publisher, 0)).verdict == "passed"
            trainer.supervised_step(rows(), 1e-3)
            client.swap = ("run-pi-v1", served_instead)
            with pytest.raises(EngineError, match="does not serve run-pi-v1"):
                await publish(trainer, publisher, 1)
            assert publisher.current == "run-pi-v0"
            assert sorted(await client.models()) == sorted([BASE_POLICY, "run-pi-v0"])
            client.swap = ("", "")
            trainer.supervised_step(rows(), 1e-3)
            assert (await publish(trainer, publisher, 2)).verdict == "passed"

    asyncio.run(run())


def test_an_untrained_adapter_cannot_be_told_from_the_base_and_that_is_what_is_recorded(
    model_dir: Path, tmp_path: Path
) -> None:
    async def run() -> None:
        engine = EmbeddedEngine(model_dir, max_batch=2, prefix_cache_mb=16)
        async with engine.serve() as url, EngineClient(url) as client:
            trainer = trained_by(engine)
            publisher = Publisher(
                client, tmp_path / "adapters", Canary(SEQUENCES, (START, START)), tokens=24, threshold=0.02
            )
            publisher.remember(BASE_POLICY, scores(trainer))
            assert (await publish(trainer, publisher, 0)).verdict == "indistinguishable"

    asyncio.run(run())


def test_log_probs_sampled_by_the_engine_are_the_trainers_to_1e_4(model_dir: Path, tmp_path: Path) -> None:
    async def run() -> None:
        engine = EmbeddedEngine(model_dir, max_batch=4, prefix_cache_mb=16)
        async with engine.serve() as url, EngineClient(url) as client:
            trainer = trained_by(engine)
            for _ in range(3):
                trainer.supervised_step(rows(), 1e-2)
            trainer.save_adapter(tmp_path / "v0")
            await client.load_adapter("v0", tmp_path / "v0")
            prompt = SEQUENCES[0][:12]
            for seed in range(4):
                answer = await client.complete(
                    CompletionRequest(
                        model="v0",
                        prompt_ids=prompt,
                        max_tokens=20,
                        temperature=TEMPERATURE,
                        top_p=1.0,
                        seed=seed,
                        stop_token_ids=(1,),
                    )
                )
                ids = (*prompt, *answer.token_ids)
                trained = tuple(place >= len(prompt) for place in range(len(ids)))
                mine = trainer.logprobs([TrainRow("r", ids, trained, (0.0,) * len(ids))])[0]
                assert mine == pytest.approx(answer.logprobs, abs=1e-4)

    asyncio.run(run())
