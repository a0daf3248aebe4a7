"""Models and adapters that do not fit are refused by name; nothing half-fitting is ever served."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from harness_adapters.engines.embedded import EmbeddedEngine
from harness_adapters.engines.embedded.lora import read_adapter
from harness_adapters.engines.embedded.model import LlamaModel, load_module, not_lean
from harness_adapters.errors import EngineError
from harness_adapters.testing.tiny_models import LINEAR, save_random_adapter, save_tiny_llama

DOWN = "base_model.model.model.layers.1.mlp.down_proj"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("adapters") / "base")


@pytest.fixture(scope="module")
def model(base: Path) -> LlamaModel:
    return LlamaModel(load_module(base))


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_adapter(base, tmp_path_factory.mktemp("adapters") / "a", seed=1)


def set_config(**changes: object) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return damage


def set_tensors(edit: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "adapter_model.safetensors"
        tensors = load_file(path)
        edit(tensors)
        save_file(tensors, path)

    return damage


def truncate(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (remove("adapter_config.json"), "adapter_config.json"),
    "config is not JSON": (write("adapter_config.json", b"{"), "not JSON"),
    "config is nested too deep": (write("adapter_config.json", b"[" * 100_000), "not JSON"),
    "config is not text": (write("adapter_config.json", b"\xff\xfe"), "not JSON"),
    "config is of no LoRA": (set_config(peft_type="IA3"), "LoRA"),
    "no weights": (remove("adapter_model.safetensors"), "adapter_model.safetensors is missing"),
    "truncated weights": (truncate, "damaged"),
    "empty weights": (write("adapter_model.safetensors", b""), "damaged"),
    "rank zero": (set_config(r=0), "rank is 0"),
    "rank is a word": (set_config(r="4"), "rank"),
    "alpha is a word": (set_config(lora_alpha="8"), "lora_alpha"),
    "another rank than the tensors": (set_config(r=8), r"not \[8"),
    "no targets": (set_config(target_modules=[]), "target_modules"),
    "targets as a pattern": (set_config(target_modules=".*proj"), "target_modules"),
    "a target this model lacks": (set_config(target_modules=[*LINEAR, "w13"]), "w13"),
    "a target fewer than the tensors": (set_config(target_modules=list(LINEAR[:-1])), "down_proj"),
    "DoRA": (set_config(use_dora=True), "use_dora"),
    "a rank per module": (set_config(rank_pattern={"q_proj": 2}), "rank_pattern"),
    "trained embeddings": (set_config(modules_to_save=["lm_head"]), "modules_to_save"),
    "trained biases": (set_config(bias="all"), "biases"),
    "a tensor missing": (set_tensors(lambda t: t.pop(f"{DOWN}.lora_B.weight")), f"{DOWN}.lora_B.weight"),
    "a tensor too many": (set_tensors(lambda t: t.update({f"{DOWN}.lora_C.weight": torch.ones(1)})), "lora_C"),
    "a layer too many": (
        set_tensors(lambda t: t.update({f"{DOWN.replace('.1.', '.2.')}.lora_A.weight": torch.ones(4, 160)})),
        r"layers\.2",
    ),
    "another base": (set_tensors(lambda t: t.update({f"{DOWN}.lora_A.weight": torch.ones(4, 161)})), r"\[4, 161\]"),
    "a value that is not finite": (
        set_tensors(lambda t: t[f"{DOWN}.lora_A.weight"].view(-1)[:1].fill_(float("nan"))),
        "not finite",
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_adapter_is_refused_by_name(what: str, whole: Path, model: LlamaModel, tmp_path: Path) -> None:
    damage, message = DAMAGES[what]
    folder = Path(shutil.copytree(whole, tmp_path / "adapter"))
    damage(folder)
    with pytest.raises(EngineError, match=message):
        read_adapter("adapter", folder, model)


def test_a_refused_adapter_leaves_its_name_free(base: Path, whole: Path, tmp_path: Path) -> None:
    engine = EmbeddedEngine(base, max_batch=1, prefix_cache_mb=0)
    folder = Path(shutil.copytree(whole, tmp_path / "adapter"))
    truncate(folder)
    with pytest.raises(EngineError):
        engine.load_adapter("a", folder)
    engine.load_adapter("a", whole)
    with pytest.raises(EngineError, match="already loaded"):
        engine.load_adapter("a", whole)
    with pytest.raises(EngineError, match="base"):
        engine.unload_adapter("base")


def test_full_module_names_and_all_linear_are_the_same_adapter(whole: Path, model: LlamaModel, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "adapter"))
    named = read_adapter("a", folder, model)
    set_config(target_modules="all-linear")(folder)
    every = read_adapter("a", folder, model)
    full = [f"model.layers.{layer}.{kind}" for layer in range(2) for kind in model.module_shapes]
    set_config(target_modules=full)(folder)
    spelled = read_adapter("a", folder, model)
    for other in (every, spelled):
        for mine, its in zip(named.pairs, other.pairs, strict=True):
            assert mine.keys() == its.keys()
            assert all(torch.equal(a, b) for group in mine for a, b in zip(mine[group], its[group], strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen3"}, "qwen3"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "dynamic"),
    ],
)
def test_what_the_lean_forward_does_not_compute_is_known_by_name(
    changes: dict[str, object], message: str, base: Path
) -> None:
    config = json.loads((base / "config.json").read_text())
    assert not not_lean(AutoConfig.for_model(**config))
    assert message in not_lean(AutoConfig.for_model(**{**config, **changes}))


def test_an_architecture_that_transformers_lacks_is_refused(base: Path, tmp_path: Path) -> None:
    config = json.loads((base / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "gpt9"}))
    with pytest.raises(EngineError, match="gpt9"):
        load_module(tmp_path)


def test_a_folder_without_a_model_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"config\.json is missing"):
        load_module(tmp_path)
    shutil.copy(base / "config.json", tmp_path)
    with pytest.raises(EngineError, match="cannot load"):
        load_module(tmp_path)
    weights = (base / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(EngineError, match="cannot load"):
        load_module(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(EngineError, match="cannot load"):
        load_module(tmp_path)


def test_training_in_place_does_not_reach_what_is_served(base: Path, whole: Path) -> None:
    """PEFT wraps the engine's own module and moves its adapter; the engine's base scores stay as they were."""
    from engines_embedded_samples import complete, tokens
    from peft import LoraConfig, get_peft_model

    from harness_adapters.engines.embedded import Generation

    engine = EmbeddedEngine(base, max_batch=1, prefix_cache_mb=0)
    engine.start()
    ask = Generation(tokens(1, 20), 1, seed=1, prompt_logprobs=True)
    before = complete(engine, "base", ask)
    wrapped = get_peft_model(engine.model, LoraConfig(r=4, target_modules=list(LINEAR), task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.fill_(0.5)
    after = complete(engine, "base", ask)
    engine.stop()
    assert before.prompt_logprobs == after.prompt_logprobs


def test_there_is_one_copy_of_the_weights(base: Path) -> None:
    """Turn the module's output head to nothing: every token is as probable as any other, prompt and answer alike."""
    from engines_embedded_samples import VOCABULARY, complete, tokens

    from harness_adapters.engines.embedded import Generation

    engine = EmbeddedEngine(base, max_batch=1, prefix_cache_mb=0)
    with torch.no_grad():
        engine.model.lm_head.weight.zero_()
    engine.start()
    answer = complete(engine, "base", Generation(tokens(1, 20), 5, seed=1, prompt_logprobs=True))
    engine.stop()
    assert answer.prompt_logprobs is not None
    assert (*answer.prompt_logprobs[1:], *answer.logprobs) == pytest.approx([-math.log(VOCABULARY)] * 24)
