"""Run a transformers causal language model over packed tries and give the log-prob of every loss term.

The inner model gives hidden states; the output head is applied to predicting nodes only, some at a time, so logits of
[nodes, vocabulary] never exist. The result is proven against the model's own forward when a trainer is made
(`check_against_plain`), so an architecture that does something else after its last hidden state is refused, not
mistrained.

Asymmetry: a detached prefix changes gradients (none flows through the keys and values of the prefix), never values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from harness_adapters.errors import TrainingError
from harness_adapters.records import TrainRow
from harness_adapters.training.attention import PrefixStates, TriePlan, attending_along_tries, plan_blocks
from harness_adapters.training.trie import Indices, Trie, build

HEAD_CHUNK = 256
PREFIX_CHUNK = 256
PROBE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class DetachedPrefix:
    """The first `length` nodes of every trie of a step, computed once without gradient."""

    length: int
    states: PrefixStates


@dataclass(frozen=True)
class TermValues:
    """Per loss term, float32 [K], in nats: the log-prob, with gradient, and the distribution's entropy, without."""

    logprobs: Tensor
    entropies: Tensor


def refuse_layers(model_config: Any) -> None:
    """Raise TrainingError, naming them, for a transformers configuration with layers that trie attention cannot run."""
    config = model_config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    if kinds:
        raise TrainingError(
            f"{config.model_type} has {', '.join(sorted(kinds))} layers",
            "only full-attention models can be trained so far",
        )


def refuse_unsupported(model: Any) -> None:
    """Raise TrainingError, naming the layer types or the feature, for a model that trie attention cannot run."""
    refuse_layers(model.config)
    head = model.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear):
        raise TrainingError(f"{model.config.model_type} has no linear output head", "it cannot be trained here")


def shared_prefix_length(tries: Sequence[Trie]) -> int:
    """Nodes at the root that all tries share and that predict no trained token."""
    length = min(trie.detachable for trie in tries)
    first = tries[0].token_ids[:length]
    for trie in tries[1:]:
        differs = np.flatnonzero(trie.token_ids[: len(first)] != first)
        first = first[: differs[0]] if len(differs) else first
    return len(first)


def compute_prefix(model: Any, trie: Trie, length: int) -> DetachedPrefix:
    """Keys and values of the first `length` nodes of `trie`, which must be a chain, with the current adapter.

    Computed in chunks, so that activations stay in the caches and take no memory to speak of at any length.
    """
    states = PrefixStates()
    with torch.no_grad():
        for start in range(0, length, PREFIX_CHUNK):
            stop = min(start + PREFIX_CHUNK, length)
            blocks = plan_blocks(trie, start, stop, prefix_length=start, like=_flow(model))
            record = PrefixStates()
            plan = TriePlan(blocks, prefix=states if start else None, record=record)
            _hidden_states(model, trie, start, stop, plan)
            states = states.followed_by(record)
    return DetachedPrefix(length, states)


def term_values(model: Any, trie: Trie, *, temperature: float, prefix: DetachedPrefix | None = None) -> TermValues:
    """Log-prob and entropy of every loss term of `trie`, in its order, under softmax(logits / temperature)."""
    length = prefix.length if prefix is not None else 0
    head = model.get_output_embeddings()
    blocks = plan_blocks(trie, length, len(trie), prefix_length=length, like=_flow(model))
    plan = TriePlan(blocks, prefix=prefix.states if prefix is not None else None)
    hidden = _hidden_states(model, trie, length, len(trie), plan)
    nodes, term_places = np.unique(trie.term_nodes, return_inverse=True)
    wanted = hidden[torch.from_numpy(nodes - length).to(hidden.device)]
    divisor = temperature * float(getattr(model.config, "logits_scaling", 1.0))
    return _head_logprobs(wanted, head, divisor, term_places, trie.term_tokens)


def _flow(model: Any) -> Tensor:
    """A token's embedding: of the dtype that flows between the layers, which need not be that of their weights."""
    embeddings = model.get_input_embeddings()
    with torch.no_grad():
        flow: Tensor = embeddings(torch.zeros(1, dtype=torch.long, device=embeddings.weight.device))
    return flow


def _hidden_states(model: Any, trie: Trie, start: int, stop: int, plan: TriePlan) -> Tensor:
    """Final hidden states [stop - start, hidden size]."""
    device = model.get_input_embeddings().weight.device
    tokens, positions = (torch.from_numpy(a[start:stop]).unsqueeze(0).to(device) for a in (trie.token_ids, trie.depths))
    with attending_along_tries(model):
        output = model.get_decoder()(input_ids=tokens, position_ids=positions, use_cache=False, trie_plan=plan)
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


def _head_logprobs(
    hidden: Tensor, head: torch.nn.Linear, divisor: float, places: Indices, tokens: Indices
) -> TermValues:
    apply: Any = _HeadLogProbs.apply
    return TermValues(*apply(hidden, head.weight, head.bias, divisor, places, tokens))


class _HeadLogProbs(torch.autograd.Function):
    """log softmax(h W^T / tau)[token] for many (hidden state, token) pairs, with a frozen W.

    With p = softmax(h W^T / tau): d log p[t] / dh = (W[t] - p W) / tau. The forward pass keeps p W (one vector per
    hidden state), so neither the logits nor p outlive their chunk and the backward pass needs no second head pass.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, divisor: float, places: Indices, tokens: Indices
    ) -> tuple[Tensor, Tensor]:
        order = np.argsort(places, kind="stable")
        wide = weight.to(hidden.dtype)
        device = hidden.device
        logprobs, entropies = (torch.empty(len(places), device=device) for _ in range(2))
        expected = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        for start in range(0, len(hidden), HEAD_CHUNK):
            stop = min(start + HEAD_CHUNK, len(hidden))
            first, after = np.searchsorted(places[order], [start, stop])
            terms = torch.from_numpy(order[first:after])
            rows, columns = torch.from_numpy(places)[terms] - start, torch.from_numpy(tokens)[terms]
            logits = F.linear(hidden[start:stop], wide, bias).float() / divisor
            logs = torch.log_softmax(logits, dim=-1)
            logprobs[terms] = logs[rows.to(device), columns.to(device)]
            probs = logs.exp()
            entropies[terms] = -torch.linalg.vecdot(probs, logs.clamp_min_(-1e4))[rows.to(device)]
            if expected is not None:
                expected[start:stop] = probs.to(wide.dtype) @ wide
        ctx.save_for_backward(weight, *([expected] if expected is not None else []))
        ctx.divisor, ctx.places, ctx.tokens = (
            divisor,
            torch.from_numpy(places).to(device),
            torch.from_numpy(tokens).to(device),
        )
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weight, expected = ctx.saved_tensors
        upstream = (grads[0] / ctx.divisor).to(expected.dtype)
        total = torch.zeros(len(expected), dtype=expected.dtype, device=weight.device).index_add_(
            0, ctx.places, upstream
        )
        grad = expected * -total[:, None]
        grad.index_add_(0, ctx.places, weight[ctx.tokens].to(expected.dtype) * upstream[:, None])
        return grad, None, None, None, None, None


def check_against_plain(model: Any) -> None:
    """Compare a small branching trie with the model's own forward, row by row; raise TrainingError when they differ.

    The tolerance (nats) leaves room for the rounding of float32; low-precision models get a hundred times that.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    stem = [(7 * n + 3) % vocabulary for n in range(6)]
    tails = ([5, 11, 17, 23], [5, 12, 19, 26, 33], [9, 8])
    rows = [_probe_row([*stem, *(token % vocabulary for token in tail)], len(stem)) for tail in tails]
    with torch.no_grad():
        trie = build(rows)
        packed = term_values(model, trie, temperature=1.0).logprobs
        plain = torch.cat([_plain_logprobs(model, rows[index]) for index in dict.fromkeys(trie.term_rows.tolist())])
    tolerance = PROBE_TOLERANCE * (1 if _flow(model).dtype == torch.float32 else 100)
    difference = float((packed - plain).abs().max())
    if not difference <= tolerance:
        raise TrainingError(
            f"{model.config.model_type} cannot be trained on token tries: log-probs differ by {difference:.3g} nats",
            "its forward pass does something that trie attention does not know",
        )


def _probe_row(token_ids: Sequence[int], context: int) -> TrainRow:
    trained = tuple(position >= context for position in range(len(token_ids)))
    return TrainRow("probe", tuple(token_ids), trained, (0.0,) * len(token_ids))


def _plain_logprobs(model: Any, row: TrainRow) -> Tensor:
    tokens = torch.tensor([row.token_ids], device=model.get_input_embeddings().weight.device)
    logs = model(input_ids=tokens, use_cache=False).logits[0, :-1].float().log_softmax(-1)
    own: Tensor = logs.gather(1, tokens[0, 1:, None])[:, 0]
    return own[torch.tensor(row.trained[1:], device=own.device)]
