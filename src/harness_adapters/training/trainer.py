"""The trainer: one LoRA adapter on one transformers model, trained in place on token rows.

Invariants
- Base weights are shared with whoever holds them (the serving engine): never copied, cast or written.
- A non-finite loss or gradient raises TrainingError before the optimizer moves; the adapter is then as before.
- The loss is normalised by the trained tokens of the whole step, so how rows fall into micro-batches does not matter.
- The model stays in evaluation mode (no dropout): the log-probs trained on are those the engine would report.

Asymmetry: with `detach_prefix`, gradients are those of a model whose shared prompt is a constant (keys and values
recomputed at each step with the current adapter); log-probs and losses are exact all the same.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness_adapters.config import LoraConfig, TrainerConfig
from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow
from harness_adapters.training import adapter, checkpoint, forward
from harness_adapters.training.backend import Progress, StepMetrics
from harness_adapters.training.loss import policy_loss, supervised_loss
from harness_adapters.training.trie import Packing, Trie, pack

logger = logging.getLogger(__name__)


@dataclass
class _Sums:
    """Sums over the trained tokens of a step."""

    loss: float = 0.0
    entropy: float = 0.0
    ratio: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    drift: float = 0.0


@dataclass
class _Clock:
    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)


_NOT_FINITE = "lower the learning rate and resume from a checkpoint"

TermLoss = Callable[[Trie, Tensor, int, _Sums], Tensor]


class Trainer:
    """Owns the adapter and its optimizer. `model` is a transformers causal LM; it is changed in place."""

    def __init__(self, model: Any, *, lora: LoraConfig, config: TrainerConfig, temperature: float, seed: int) -> None:
        """`temperature` is the one rollouts were sampled at; `seed` draws the adapter's first weights.

        Raises TrainingError for an architecture that cannot be trained on tries: by name, or as its log-probs differ.
        """
        forward.refuse_unsupported(model)
        self.model = model.eval()
        self.config = config
        self.temperature = temperature
        self.peft_model = adapter.put_on(model, lora, seed=seed)
        forward.check_against_plain(model)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=config.learning_rate, weight_decay=0.0)
        self._fingerprint = checkpoint.base_fingerprint(model)
        self._step = 0

    @property
    def step(self) -> int:
        """Optimizer steps taken so far, supervised and policy steps together."""
        return self._step

    def supervised_step(
        self, rows: Sequence[TrainRow], learning_rate: float, *, progress: Progress | None = None
    ) -> StepMetrics:
        """One step on the mean negative log-prob of the trained tokens at temperature 1; advantages are ignored."""
        return self._take_step(rows, _supervised, learning_rate, 1.0, progress)

    def policy_step(
        self, rows: Sequence[TrainRow], learning_rate: float | None = None, *, progress: Progress | None = None
    ) -> StepMetrics:
        """One GRPO step at the sampling temperature; `TrainRow.logprobs` are the sampler's.

        `learning_rate` is the configured one by default, without warm-up and decay.
        """
        rate = self.config.learning_rate if learning_rate is None else learning_rate
        return self._take_step(rows, self._policy, rate, self.temperature, progress)

    def reset_optimizer(self) -> None:
        """Forget the moments: the next objective starts without the momentum and the scale of the last one."""
        self._optimizer.state.clear()

    def logprobs(self, rows: Sequence[TrainRow], *, temperature: float | None = None) -> list[list[float]]:
        """Per row, the log-prob (nats) of each trained token under the current adapter, in token order.

        `temperature` defaults to the sampling temperature. Raises TrainingError for a row over the token budget.
        """
        self._refuse_bad(rows)
        packing = pack(rows, self.config.max_unique_tokens)
        if packing.dropped:
            raise TrainingError(*_over_budget(rows, packing, self.config.max_unique_tokens))
        divisor = self.temperature if temperature is None else temperature
        result: list[list[float]] = [[] for _ in rows]
        with torch.no_grad():
            for trie in packing.tries:
                values = forward.term_values(self.model, trie, temperature=divisor).logprobs
                for row, value in zip(trie.term_rows.tolist(), values.tolist(), strict=True):
                    result[row].append(value)
        return result

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter in PEFT's layout; `folder` appears whole or not at all and is never overwritten."""
        adapter.save(self.peft_model, folder)

    def save_checkpoint(self, folder: Path, state: Mapping[str, Any] | None = None) -> None:
        """Write all that a resumed run needs, with the caller's JSON `state`; whole or not at all."""
        checkpoint.save(
            folder, self.peft_model, self._optimizer, fingerprint=self._fingerprint, step=self._step, state=state or {}
        )

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Continue from a checkpoint; return the `state` saved with it. A TrainingError changes nothing."""
        self._step, state = checkpoint.load(folder, self.peft_model, self._optimizer, fingerprint=self._fingerprint)
        return state

    def load_newest_checkpoint(self, folder: Path) -> checkpoint.Restored:
        """Continue from the newest checkpoint in `folder` that is whole and this trainer's, if there is one."""
        restored = checkpoint.load_newest(folder, self.peft_model, self._optimizer, fingerprint=self._fingerprint)
        if restored.folder is not None:
            self._step = restored.step
        return restored

    def holds_adapter(self, folder: Path) -> bool:
        """Whether a saved adapter has exactly the present weights."""
        return adapter.holds(folder, adapter.weights(self.peft_model))

    def _take_step(
        self,
        rows: Sequence[TrainRow],
        term_loss: TermLoss,
        learning_rate: float,
        temperature: float,
        progress: Progress | None,
    ) -> StepMetrics:
        clock = _Clock()
        packing = self._pack(rows)
        tokens = sum(len(trie.term_nodes) for trie in packing.tries)
        prefix = self._detached_prefix(packing)
        sums = _Sums()
        self._optimizer.zero_grad(set_to_none=True)
        for done, trie in enumerate(packing.tries, 1):
            self._accumulate(trie, term_loss, tokens, temperature, prefix, sums)
            if progress is not None:
                progress(done, len(packing.tries))
        grad_norm = self._move(learning_rate)
        detached = prefix.length if prefix is not None else 0
        return StepMetrics(
            step=self._step,
            loss=sums.loss,
            tokens=tokens,
            raw_tokens=packing.raw_tokens,
            unique_tokens=packing.unique_tokens,
            detached_tokens=detached,
            packing_ratio=packing.raw_tokens / packing.unique_tokens,
            micro_batches=len(packing.tries),
            rows=len(rows),
            rows_dropped=len(packing.dropped),
            learning_rate=learning_rate,
            grad_norm=grad_norm,
            entropy=sums.entropy / tokens,
            seconds=time.perf_counter() - clock.wall,
            cpu_seconds=time.process_time() - clock.cpu,
            ratio=sums.ratio / tokens,
            kl=sums.kl / tokens,
            clipped_share=sums.clipped / tokens,
            drift=sums.drift / tokens,
        )

    def _pack(self, rows: Sequence[TrainRow]) -> Packing:
        self._refuse_bad(rows)
        packing = pack(rows, self.config.max_unique_tokens)
        if packing.dropped:
            logger.warning("%s", ": ".join(_over_budget(rows, packing, self.config.max_unique_tokens)))
        if not packing.tries:
            lengths = [len(row.token_ids) for row in rows if row.token_ids]
            shortest = f"the shortest has {min(lengths)} tokens" if lengths else "all are empty"
            raise TrainingError(
                f"no row to train on: of {len(rows)}, {shortest}, and trainer.max_unique_tokens is "
                f"{self.config.max_unique_tokens}",
                "raise it, or shorten the sessions (session.context)",
            )
        return packing

    def _refuse_bad(self, rows: Sequence[TrainRow]) -> None:
        vocabulary = self.model.get_input_embeddings().weight.shape[0]
        for row in rows:
            if not all(map(math.isfinite, (row.advantage, *row.logprobs))):
                raise TrainingError(
                    f"rollout {row.rollout} has a non-finite advantage or log-prob", "drop it and report the engine"
                )
            if row.token_ids and not 0 <= min(row.token_ids) <= max(row.token_ids) < vocabulary:
                raise TrainingError(
                    f"rollout {row.rollout} has a token outside the model's vocabulary of {vocabulary}",
                    "its session was played with another model",
                )

    def _detached_prefix(self, packing: Packing) -> forward.DetachedPrefix | None:
        length = forward.shared_prefix_length(packing.tries) if self.config.detach_prefix else 0
        return forward.compute_prefix(self.model, packing.tries[0], length) if length else None

    def _accumulate(
        self,
        trie: Trie,
        term_loss: TermLoss,
        tokens: int,
        temperature: float,
        prefix: forward.DetachedPrefix | None,
        sums: _Sums,
    ) -> None:
        """Add one micro-batch's gradient and sums."""
        values = forward.term_values(self.model, trie, temperature=temperature, prefix=prefix)
        loss = term_loss(trie, values.logprobs, tokens, sums)
        if not bool(torch.isfinite(loss)):
            self._optimizer.zero_grad(set_to_none=True)
            raise TrainingError(f"the loss of step {self._step} is not finite", _NOT_FINITE)
        torch.autograd.backward(loss)
        sums.loss += float(loss.detach())
        sums.entropy += float(values.entropies.sum())

    def _policy(self, trie: Trie, logprobs: Tensor, tokens: int, sums: _Sums) -> Tensor:
        config = self.config
        result = policy_loss(
            logprobs,
            torch.from_numpy(trie.term_logprobs).to(logprobs.device),
            torch.from_numpy(trie.term_advantages).to(logprobs.device),
            tokens=tokens,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            dual_clip=config.dual_clip,
        )
        sums.ratio += result.ratio
        sums.kl += result.kl
        sums.clipped += result.clipped
        sums.drift += result.drift
        return result.loss

    def _move(self, learning_rate: float) -> float:
        """Clip the gradient, take the optimizer step and return the norm before clipping."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self.config.grad_norm))
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            raise TrainingError(
                f"the gradient of step {self._step} is not finite",
                _NOT_FINITE,
            )
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        return norm


def _supervised(trie: Trie, logprobs: Tensor, tokens: int, sums: _Sums) -> Tensor:
    sums.ratio += len(trie.term_nodes)
    return supervised_loss(logprobs, tokens)


def _over_budget(rows: Sequence[TrainRow], packing: Packing, budget: int) -> tuple[str, str]:
    names = ", ".join(sorted({rows[index].rollout for index in packing.dropped}))
    return f"{len(packing.dropped)} rows are longer than {budget} tokens, of {names}", "raise trainer.max_unique_tokens"
