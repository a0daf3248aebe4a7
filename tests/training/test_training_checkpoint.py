"""A checkpoint continues exactly, appears whole or not at all, and is refused where it does not belong."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import LORA, adapter_parameters, session_rows, tiny_model, tiny_trainer

from harness_adapters.config import LoraConfig, TrainerConfig
from harness_adapters.errors import InfraError, TrainingError
from harness_adapters.training import adapter, checkpoint
from harness_adapters.training.checkpoint import FORMAT, Refusal, Restored
from harness_adapters.training.trainer import Trainer


def _weights(trainer: Trainer) -> dict[str, Any]:
    return {name: parameter.tolist() for name, parameter in adapter_parameters(trainer).items()}


def _steps(trainer: Trainer, first: int, count: int) -> None:
    for seed in range(first, first + count):
        trainer.supervised_step(session_rows(seed, 3), 1e-2)
        trainer.policy_step(session_rows(seed, 3))


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_stopping_and_resuming_equals_never_stopping(tmp_path: Path, kind: str) -> None:
    whole = tiny_trainer(kind)
    _steps(whole, 0, 4)
    first = tiny_trainer(kind)
    _steps(first, 0, 2)
    first.save_checkpoint(tmp_path / "c", {"cursor": [1, 2], "name": "å"})
    second = tiny_trainer(kind, seed=99)
    assert second.load_checkpoint(tmp_path / "c") == {"cursor": [1, 2], "name": "å"}
    assert second.step == first.step == 4
    _steps(second, 2, 2)
    assert _weights(second) == _weights(whole)
    assert second.step == whole.step == 8


def test_a_checkpoint_taken_before_the_first_step_loads_over_a_trained_trainer(tmp_path: Path) -> None:
    fresh = tiny_trainer()
    fresh.save_checkpoint(tmp_path / "c")
    start = _weights(fresh)
    _steps(fresh, 0, 1)
    after = _weights(fresh)
    assert fresh.load_checkpoint(tmp_path / "c") == {}
    assert _weights(fresh) == start
    _steps(fresh, 0, 1)
    assert _weights(fresh) == after


def test_the_random_state_comes_back(tmp_path: Path) -> None:
    trainer = tiny_trainer()
    trainer.save_checkpoint(tmp_path / "c")
    expected = torch.rand(4)
    trainer.load_checkpoint(tmp_path / "c")
    assert torch.equal(torch.rand(4), expected)


def test_a_writer_killed_before_the_rename_leaves_the_previous_checkpoint_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = tiny_trainer()
    trainer.save_checkpoint(tmp_path / "step-1", {"at": 1})
    trainer.supervised_step(session_rows(0, 2), 1e-2)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(checkpoint, "write_tensors", killed)
    with pytest.raises(Killed):
        trainer.save_checkpoint(tmp_path / "step-2", {"at": 2})
    # A real kill also leaves the temporary folder, half filled.
    (tmp_path / ".step-2.xyz.tmp").mkdir()
    adapter.write_into(trainer.peft_model, tmp_path / ".step-2.xyz.tmp")
    assert tiny_trainer().load_newest_checkpoint(tmp_path) == Restored(
        tmp_path / "step-1", 0, {"at": 1}, (Refusal(".step-2.xyz.tmp", "writing it was interrupted"),)
    )


def test_saving_under_a_name_again_replaces_the_checkpoint(tmp_path: Path) -> None:
    trainer = tiny_trainer()
    trainer.save_checkpoint(tmp_path / "c", {"at": 1})
    _steps(trainer, 0, 1)
    trainer.save_checkpoint(tmp_path / "c", {"at": 2})
    assert tiny_trainer().load_checkpoint(tmp_path / "c") == {"at": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_the_newest_checkpoint_that_is_whole_and_fits_is_loaded_and_each_other_is_named_with_why(
    tmp_path: Path,
) -> None:
    trainer = tiny_trainer()
    assert trainer.load_newest_checkpoint(tmp_path / "absent") == Restored(None, 0, {}, ())
    weights: dict[str, Any] = {}
    for name in ("b", "a", "d", "c"):
        trainer.supervised_step(session_rows(0, 2), 1e-2)
        trainer.save_checkpoint(tmp_path / name, {"at": name})
        weights[name] = _weights(trainer)
    with (tmp_path / "c" / checkpoint.OPTIMIZER).open("r+b") as file:
        file.truncate(100)
    (tmp_path / "empty").mkdir()
    other = Trainer(tiny_model(), lora=LoraConfig(rank=8, alpha=8), config=TrainerConfig(), temperature=1.0, seed=0)
    for seed in range(6):
        other.supervised_step(session_rows(seed, 2), 1e-2)
    other.save_checkpoint(tmp_path / "other")
    fresh = tiny_trainer(seed=3)
    found = fresh.load_newest_checkpoint(tmp_path)
    assert (found.folder, found.step, found.state) == (tmp_path / "d", 3, {"at": "d"})
    assert (fresh.step, _weights(fresh)) == (3, weights["d"])
    reasons = {refusal.name: (refusal.foreign, refusal.reason) for refusal in found.refused}
    assert reasons.keys() == {"c", "empty", "other"}
    assert not reasons["c"][0]
    assert "damaged: optimizer.safetensors" in reasons["c"][1]
    assert not reasons["empty"][0]
    assert "incomplete" in reasons["empty"][1]
    assert reasons["other"][0]
    assert "another rank: 8, this run has 4" in reasons["other"][1]


@pytest.mark.parametrize("lost", ["identity", "state", "files", "step", "format"])
def test_a_manifest_without_one_of_its_parts_is_refused_and_changes_nothing(tmp_path: Path, lost: str) -> None:
    trainer = tiny_trainer(trained=True)
    trainer.save_checkpoint(tmp_path / "c")
    path = tmp_path / "c" / checkpoint.MANIFEST
    whole = json.loads(path.read_text())
    other = tiny_trainer(seed=5)
    before = _weights(other)
    for manifest in ({key: value for key, value in whole.items() if key != lost}, {**whole, lost: []}):
        path.write_text(json.dumps(manifest))
        found = other.load_newest_checkpoint(tmp_path)
        assert (found.folder, len(found.refused), _weights(other)) == (None, 1, before)


@pytest.mark.parametrize("name", [adapter.WEIGHTS, checkpoint.OPTIMIZER, checkpoint.MANIFEST, "adapter_config.json"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(tmp_path: Path, name: str, harm: str) -> None:
    trainer = tiny_trainer(trained=True)
    trainer.save_checkpoint(tmp_path / "c")
    path = tmp_path / "c" / name
    data = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if harm == "truncate" else bytes([data[0] ^ 1]) + data[1:])
    other = tiny_trainer(seed=5)
    before = _weights(other)
    with pytest.raises(TrainingError):
        other.load_checkpoint(tmp_path / "c")
    assert _weights(other) == before
    assert other.load_newest_checkpoint(tmp_path).folder is None
    assert (other.step, _weights(other)) == (0, before)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"model": 1}, "base"),
        ({"lora": LoraConfig(rank=8, alpha=8)}, "rank"),
        ({"lora": LoraConfig(rank=4, alpha=16)}, "alpha"),
    ],
)
def test_a_checkpoint_of_another_base_or_shape_is_refused_by_name(
    tmp_path: Path, other: dict[str, Any], named: str
) -> None:
    tiny_trainer().save_checkpoint(tmp_path / "c")
    model = tiny_model(seed=other.get("model", 0))
    trainer = Trainer(model, lora=other.get("lora", LORA), config=TrainerConfig(), temperature=1.0, seed=0)
    before = _weights(trainer)
    with pytest.raises(TrainingError, match=f"another {named}"):
        trainer.load_checkpoint(tmp_path / "c")
    assert _weights(trainer) == before


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    trainer = tiny_trainer()
    trainer.save_checkpoint(tmp_path / "c")
    path = tmp_path / "c" / checkpoint.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT + 1}))
    with pytest.raises(TrainingError, match=f"format {FORMAT + 1}"):
        trainer.load_checkpoint(tmp_path / "c")


def test_a_state_that_is_not_json_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="must be JSON"):
        tiny_trainer().save_checkpoint(tmp_path / "c", {"at": object()})
    assert list(tmp_path.iterdir()) == []


def test_the_fingerprint_knows_a_base_whose_weights_moved() -> None:
    trainer = tiny_trainer()
    before = checkpoint.base_fingerprint(trainer.model)
    _steps(trainer, 0, 1)
    assert checkpoint.base_fingerprint(trainer.model) == before
    with torch.no_grad():
        trainer.model.get_input_embeddings().weight.mul_(1.001)
    assert checkpoint.base_fingerprint(trainer.model) != before


@pytest.mark.parametrize("what", ["adapter", "checkpoint"])
def test_a_disk_that_refuses_the_weights_is_an_infra_error(what: str, tmp_path: Path) -> None:
    trainer = tiny_trainer()
    saving = {
        "adapter": lambda: adapter.save(trainer.peft_model, tmp_path / "v1"),
        "checkpoint": lambda: trainer.save_checkpoint(tmp_path / "v1", {}),
    }
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(InfraError, match="File too large"):
            saving[what]()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
