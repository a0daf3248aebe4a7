"""A written adapter loads with PEFT and gives the trainer's own log-probs; a published folder never changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import peft
import pytest
import torch
from training_cases import VOCABULARY, session_rows, tiny_model, tiny_trainer
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from harness_adapters.errors import TrainingError
from harness_adapters.training import adapter


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_saved_adapter_loads_with_peft_and_gives_the_same_log_probs(tmp_path: Path, kind: str) -> None:
    trainer = tiny_trainer(kind)
    trainer.supervised_step(session_rows(0, 3), 0.05)
    trainer.save_adapter(tmp_path / "v1")
    assert sorted(path.name for path in (tmp_path / "v1").iterdir()) == ["adapter_config.json", adapter.WEIGHTS]
    loaded = peft.PeftModel.from_pretrained(tiny_model(kind), tmp_path / "v1").eval()
    rows = session_rows(1, 3)
    for values, row in zip(trainer.logprobs(rows, temperature=1.0), rows, strict=True):
        tokens = torch.tensor([row.token_ids])
        with torch.no_grad():
            logs = loaded(input_ids=tokens).logits[0, :-1].log_softmax(-1)
        own = logs.gather(1, tokens[0, 1:, None])[:, 0][torch.tensor(row.trained[1:])]
        assert values == pytest.approx(own.tolist(), abs=1e-5)


def test_the_adapter_config_is_the_plain_lora_that_engines_read(tmp_path: Path) -> None:
    tiny_trainer().save_adapter(tmp_path / "v1")
    config = json.loads((tmp_path / "v1" / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA"
    assert (config["r"], config["lora_alpha"], config["lora_dropout"], config["bias"]) == (4, 8, 0.0, "none")
    assert config["target_modules"] == sorted(config["target_modules"])
    assert config["base_model_name_or_path"] == "llama"
    assert config["inference_mode"] is True
    assert not config["modules_to_save"]


def test_saving_the_same_version_again_is_left_alone_and_another_is_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer()
    trainer.save_adapter(tmp_path / "v1")
    written = (tmp_path / "v1" / adapter.WEIGHTS).stat().st_mtime_ns
    trainer.save_adapter(tmp_path / "v1")
    assert (tmp_path / "v1" / adapter.WEIGHTS).stat().st_mtime_ns == written
    trainer.supervised_step(session_rows(0, 2), 1e-2)
    with pytest.raises(TrainingError, match="already holds another adapter"):
        trainer.save_adapter(tmp_path / "v1")
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


def test_a_folder_that_is_no_adapter_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="already holds"):
        tiny_trainer().save_adapter(tmp_path / "v1")
    assert (tmp_path / "v1" / "notes.txt").read_text() == "mine"


def test_experts_and_routers_get_no_adapter() -> None:
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        decoder_sparse_step=2,
    )
    targets = adapter.find_targets(Qwen3MoeForCausalLM(config))
    assert {"q_proj", "k_proj", "v_proj", "o_proj", "down_proj"} <= set(targets)
    assert not [name for name in targets if "expert" in name or name == "gate" or "head" in name]


def test_linear_experts_force_full_names_so_that_dense_layers_of_the_same_name_are_kept_apart() -> None:
    model = tiny_model()
    model.model.layers[1].mlp.experts = torch.nn.ModuleList([torch.nn.ModuleDict({"up_proj": torch.nn.Linear(4, 4)})])
    targets = adapter.find_targets(model)
    assert "model.layers.1.mlp.up_proj" in targets
    assert not [name for name in targets if "experts" in name]


def test_a_model_without_a_linear_layer_to_adapt_is_refused() -> None:
    model = tiny_model()
    model.model.layers = torch.nn.ModuleList()
    with pytest.raises(TrainingError, match="no linear layer"):
        adapter.find_targets(model)


def test_the_parts_that_others_import_at_start_do_not_bring_torch_in() -> None:
    code = (
        "import sys, harness_adapters.training.backend, harness_adapters.training.trie, "
        "harness_adapters.training.warm_start; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
