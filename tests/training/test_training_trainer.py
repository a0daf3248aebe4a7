"""A step moves the adapter and nothing else; what cannot be trained on is refused before anything moves."""

from __future__ import annotations

import dataclasses
import logging
import math

import pytest
import torch
from torch import Tensor
from training_cases import LORA, VOCABULARY, adapter_parameters, row, session_rows, tiny_model, tiny_trainer

from harness_adapters.config import TrainerConfig
from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow
from harness_adapters.training import trainer as trainer_module
from harness_adapters.training.backend import StepMetrics, TrainingBackend
from harness_adapters.training.trainer import Trainer


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in adapter_parameters(trainer).items()}


def _same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def _sampled(trainer: Trainer, rows: list[TrainRow]) -> list[TrainRow]:
    """The rows with old log-probs that are the trainer's own: sampled on policy."""
    found = []
    for one, values in zip(rows, trainer.logprobs(rows), strict=True):
        fresh = iter(values)
        logprobs = tuple(next(fresh) if mark else 0.0 for mark in one.trained)
        found.append(dataclasses.replace(one, logprobs=logprobs))
    return found


def test_the_trainer_is_the_backend_the_project_relies_on() -> None:
    backend: TrainingBackend = tiny_trainer()
    assert backend.step == 0


def test_base_weights_keep_their_memory_and_their_bits() -> None:
    model = tiny_model()
    held = [(parameter, parameter.data_ptr(), parameter.detach().clone()) for parameter in model.parameters()]
    trainer = Trainer(model, lora=LORA, config=TrainerConfig(learning_rate=0.1), temperature=1.0, seed=0)
    before = _weights(trainer)
    trainer.supervised_step(session_rows(0, 4), 0.1)
    trainer.policy_step(session_rows(1, 4))
    now = {parameter.data_ptr() for parameter in trainer.model.parameters()}
    for parameter, place, bits in held:
        assert parameter.data_ptr() == place
        assert place in now
        assert torch.equal(parameter, bits)
        assert not parameter.requires_grad
        assert parameter.grad is None
    assert not _same(before, _weights(trainer))


def test_only_linear_layers_but_the_head_get_an_adapter() -> None:
    trainer = tiny_trainer()
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in adapter_parameters(trainer)}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_the_seed_draws_the_first_weights_and_leaves_the_global_generator_alone() -> None:
    model = tiny_model()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one = Trainer(model, lora=LORA, config=TrainerConfig(), temperature=1.0, seed=3)
    assert torch.equal(torch.rand(3), expected)
    assert _same(_weights(one), _weights(tiny_trainer(seed=3)))
    assert not _same(_weights(one), _weights(tiny_trainer(seed=4)))


def test_supervised_steps_lower_the_loss_which_is_the_mean_negative_log_prob_at_temperature_one() -> None:
    trainer = tiny_trainer(temperature=0.5)
    rows = session_rows(0, 4)
    values = [value for row in trainer.logprobs(rows, temperature=1.0) for value in row]
    first = trainer.supervised_step(rows, 0.02)
    assert first.loss == pytest.approx(-sum(values) / len(values), rel=1e-5)
    assert first.tokens == len(values)
    for _ in range(15):
        last = trainer.supervised_step(rows, 0.02)
    assert last.loss < first.loss - 0.2
    assert last.step == trainer.step == 16


def test_a_policy_step_makes_rewarded_tokens_likelier_and_punished_ones_less_likely() -> None:
    trainer = tiny_trainer(trained=True, learning_rate=0.01)
    rows = [dataclasses.replace(one, advantage=(-1.0) ** place) for place, one in enumerate(session_rows(2, 6))]
    rows = _sampled(trainer, rows)
    metrics = trainer.policy_step(rows)
    assert metrics.ratio == pytest.approx(1.0, abs=1e-4)
    assert metrics.kl == pytest.approx(0.0, abs=1e-6)
    assert metrics.drift == pytest.approx(0.0, abs=1e-4)
    assert metrics.clipped_share == 0.0
    objective = sum(
        one.advantage * (sum(new) - sum(one.logprobs)) for one, new in zip(rows, trainer.logprobs(rows), strict=True)
    )
    assert objective > 0


def test_a_second_step_on_the_same_rows_reports_how_far_the_policy_has_moved() -> None:
    trainer = tiny_trainer(trained=True, learning_rate=0.03)
    rows = _sampled(trainer, session_rows(2, 6))
    trainer.policy_step(rows)
    metrics = trainer.policy_step(rows)
    assert metrics.kl > 1e-3
    assert metrics.drift > 1e-2
    assert metrics.clipped_share > 0


@pytest.mark.parametrize("detach", [False, True])
def test_cutting_a_step_into_micro_batches_changes_nothing(detach: bool) -> None:
    rows = session_rows(4, 8)
    results = []
    for budget in (65_536, 100):
        trainer = tiny_trainer(trained=True, learning_rate=1e-2, max_unique_tokens=budget, detach_prefix=detach)
        results.append(trainer.policy_step(rows))
    whole, cut = results
    assert whole.micro_batches == 1
    assert cut.micro_batches > 2
    assert cut.loss == pytest.approx(whole.loss, rel=1e-5)
    assert cut.grad_norm == pytest.approx(whole.grad_norm, rel=1e-4)
    assert cut.entropy == pytest.approx(whole.entropy, rel=1e-4)


def test_detaching_the_prefix_keeps_loss_and_counts_the_prefix() -> None:
    rows = session_rows(4, 8, prefix=40)
    exact = tiny_trainer(trained=True).policy_step(rows)
    detached = tiny_trainer(trained=True, detach_prefix=True).policy_step(rows)
    assert detached.loss == pytest.approx(exact.loss, rel=1e-5)
    assert exact.detached_tokens == 0
    assert 38 <= detached.detached_tokens <= 40
    assert detached.grad_norm != pytest.approx(exact.grad_norm, rel=1e-3)


def test_metrics_say_what_packing_saved_and_progress_hears_of_each_micro_batch() -> None:
    heard: list[tuple[int, int]] = []
    rows = session_rows(0, 6)
    trainer = tiny_trainer(max_unique_tokens=90)
    metrics = trainer.supervised_step(rows, 1e-3, progress=lambda done, total: heard.append((done, total)))
    assert heard == [(place + 1, metrics.micro_batches) for place in range(metrics.micro_batches)]
    assert metrics.raw_tokens == sum(len(one.token_ids) - 1 for one in rows)
    assert metrics.packing_ratio == pytest.approx(metrics.raw_tokens / metrics.unique_tokens)
    assert metrics.packing_ratio > 1.2
    assert metrics.rows == 6
    assert metrics.seconds > 0
    assert StepMetrics(**metrics.to_json()) == metrics


def test_gradients_are_clipped_to_the_configured_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = tiny_trainer(grad_norm=1e-3)
    norms: list[float] = []

    def spy() -> None:
        norms.append(math.sqrt(sum(float(p.grad.pow(2).sum()) for p in trainer._parameters if p.grad is not None)))

    monkeypatch.setattr(trainer._optimizer, "step", spy)
    metrics = trainer.supervised_step(session_rows(0, 3), 1e-3)
    assert metrics.grad_norm > 1e-2
    assert norms == [pytest.approx(1e-3, rel=1e-3)]


def test_a_row_over_the_budget_is_dropped_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    long = row([1] * 120, [False] * 119 + [True], name="rollout-long")
    trainer = tiny_trainer(max_unique_tokens=100)
    with caplog.at_level(logging.WARNING):
        metrics = trainer.supervised_step([*session_rows(0, 2), long], 1e-3)
    assert (metrics.rows, metrics.rows_dropped) == (3, 1)
    assert "rollout-long" in caplog.text
    with pytest.raises(TrainingError, match="rollout-long"):
        trainer.logprobs([long])


def test_a_step_without_any_row_to_train_on_is_refused() -> None:
    trainer = tiny_trainer()
    with pytest.raises(TrainingError, match="no row to train on"):
        trainer.policy_step([])
    with pytest.raises(TrainingError, match="no row to train on"):
        trainer.policy_step([row([1, 2], [False, False])])
    assert trainer.step == 0


@pytest.mark.parametrize(("field", "value"), [("advantage", math.nan), ("advantage", math.inf), ("old", math.nan)])
def test_a_row_with_a_non_finite_number_is_refused_by_name(field: str, value: float) -> None:
    trainer = tiny_trainer()
    before = _weights(trainer)
    bad = row([1, 2, 3], [False, True, True], name="rollout-bad", **{field: value})
    with pytest.raises(TrainingError, match="rollout-bad"):
        trainer.policy_step([*session_rows(0, 2), bad])
    assert _same(before, _weights(trainer))


def test_a_non_finite_loss_stops_before_the_optimizer_moves() -> None:
    trainer = tiny_trainer(trained=True)
    poisoned = next(iter(adapter_parameters(trainer).values()))
    with torch.no_grad():
        poisoned[0, 0] = math.nan
    before = {name: weights.nan_to_num() for name, weights in _weights(trainer).items()}
    with pytest.raises(TrainingError, match=r"loss .* not finite"):
        trainer.supervised_step(session_rows(0, 3), 1e-3)
    assert _same(before, {name: weights.nan_to_num() for name, weights in _weights(trainer).items()})
    assert trainer.step == 0


def test_a_non_finite_gradient_stops_before_the_optimizer_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = tiny_trainer(trained=True)
    before = _weights(trainer)

    def steep(logprobs: Tensor, tokens: int) -> Tensor:
        """Finite itself, with an infinite slope: sqrt at 0."""
        return (logprobs - logprobs.detach()).abs().sum().sqrt()

    monkeypatch.setattr(trainer_module, "supervised_loss", steep)
    with pytest.raises(TrainingError, match=r"gradient .* not finite"):
        trainer.supervised_step(session_rows(0, 3), 1e-3)
    assert _same(before, _weights(trainer))
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    monkeypatch.undo()
    assert trainer.supervised_step(session_rows(0, 3), 1e-3).step == 1


def test_log_probs_come_back_in_the_order_of_the_rows_whatever_the_packing() -> None:
    rows = session_rows(0, 7)
    whole = tiny_trainer(trained=True).logprobs(rows)
    cut = tiny_trainer(trained=True, max_unique_tokens=80).logprobs(rows[::-1])[::-1]
    assert [len(values) for values in whole] == [sum(one.trained) for one in rows]
    for left, right in zip(whole, cut, strict=True):
        assert left == pytest.approx(right, abs=1e-5)


def test_log_probs_default_to_the_sampling_temperature() -> None:
    rows = session_rows(0, 2)
    trainer = tiny_trainer(temperature=0.5, trained=True)
    assert trainer.logprobs(rows) == trainer.logprobs(rows, temperature=0.5)
    assert trainer.logprobs(rows) != trainer.logprobs(rows, temperature=1.0)


def test_steps_do_not_depend_on_the_number_of_threads() -> None:
    rows = session_rows(0, 4)
    before = torch.get_num_threads()
    losses = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            trainer = tiny_trainer(trained=True)
            losses.append([trainer.supervised_step(rows, 1e-2).loss for _ in range(3)])
    finally:
        torch.set_num_threads(before)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("tokens", [[1, VOCABULARY, 2], [1, 2, VOCABULARY], [-1, 2, 3]])
def test_tokens_outside_the_vocabulary_are_refused_by_name(tokens: list[int]) -> None:
    trainer = tiny_trainer()
    rows = [row(tokens, [False, False, True], name="rollout-bad")]
    with pytest.raises(TrainingError, match="rollout-bad"):
        trainer.supervised_step(rows, 1e-3)
    with pytest.raises(TrainingError, match="rollout-bad"):
        trainer.logprobs(rows)


def test_after_a_reset_the_next_step_is_the_first_of_a_new_optimizer() -> None:
    rows = session_rows(3, 4)
    carried, reset = tiny_trainer(), tiny_trainer()
    for trainer in (carried, reset):
        for _ in range(3):
            trainer.supervised_step(rows, 1e-2)
    reset.reset_optimizer()
    before = _weights(reset)
    reset.supervised_step(rows, 1e-4)
    carried.supervised_step(rows, 1e-4)
    for name, parameter in adapter_parameters(reset).items():
        moved = (parameter - before[name]).abs()
        # Adam's first step moves every weight by the learning rate in the direction against its gradient.
        assert float(moved[moved > 0].max()) <= 1e-4 * 1.001
        assert not torch.equal(parameter, adapter_parameters(carried)[name])
