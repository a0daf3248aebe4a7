"""What the engine is asked and what it answers, free of HTTP.

Temperature 0 means greedy: the most probable token, with log-probs of the distribution at temperature 1. Any other
temperature below `MIN_TEMPERATURE` is refused, since dividing by it overflows.
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_TEMPERATURE = 1e-6


@dataclass(frozen=True, slots=True)
class Generation:
    """One request. `seed` None draws one; `stop` holds token ids that end the answer and are part of it."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: frozenset[int] = frozenset()
    prompt_logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What was sampled. `logprobs[i]` belongs to `token_ids[i]`, under the distribution it was drawn from.

    `prompt_logprobs`, where asked for, has one entry a prompt token at temperature 1, None for the first.
    `cached_tokens` counts the prompt tokens that were not computed again.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    prompt_logprobs: tuple[float | None, ...] | None = None
    cached_tokens: int = 0
