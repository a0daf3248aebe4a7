"""What is drawn follows the distribution whose log-probs are returned."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.engines.embedded.sampling import Draw, sample, token_logprobs

LOGITS = torch.tensor([[2.0, 0.0, 1.0, -1.0, float("-inf")]])


def draw(temperature: float = 1.0, top_p: float = 1.0, seed: int = 0) -> Draw:
    return Draw(temperature, top_p, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_distribution_at_its_temperature(temperature: float) -> None:
    """10,000 draws: each frequency within 4.5 standard errors of its probability."""
    one, count = draw(temperature), 10_000
    drawn = sample(LOGITS.expand(count, -1), [one] * count)
    expected = torch.softmax(LOGITS[0] / temperature, -1).tolist()
    for token, probability in enumerate(expected):
        share = sum(t == token for t, _ in drawn) / count
        assert abs(share - probability) <= 4.5 * math.sqrt(probability * (1 - probability) / count)
    assert all(math.isclose(lp, math.log(expected[token]), abs_tol=1e-5) for token, lp in drawn)


def test_a_nucleus_is_the_smallest_set_that_reaches_top_p_and_is_renormalised() -> None:
    probabilities = torch.softmax(LOGITS[0], -1).tolist()
    one = draw(top_p=probabilities[0] + 0.01)
    drawn = [sample(LOGITS, [one])[0] for _ in range(300)]
    assert {token for token, _ in drawn} == {0, 2}
    kept = probabilities[0] + probabilities[2]
    assert all(math.isclose(lp, math.log(probabilities[token] / kept), abs_tol=1e-5) for token, lp in drawn)


def test_temperature_zero_takes_the_most_probable_token_with_its_plain_logprob() -> None:
    token, logprob = sample(LOGITS, [draw(temperature=0.0, top_p=0.1)])[0]
    assert token == 0
    assert math.isclose(logprob, token_logprobs(LOGITS, [0])[0], abs_tol=1e-6)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=40),
    st.sampled_from((1e-6, 0.01, 0.8, 1.0, 30.0)),
    st.sampled_from((1e-6, 0.3, 0.99, 1.0)),
    st.integers(0, 2**40),
)
def test_a_draw_is_possible_finite_and_its_seeds_alone(
    values: list[float], temperature: float, top_p: float, seed: int
) -> None:
    logits = torch.tensor([values])
    other = torch.randn(1, len(values))
    (token, logprob), *_ = sample(torch.cat([logits, other]), [draw(temperature, top_p, seed), draw(seed=1)])
    assert 0 <= token < len(values)
    assert math.isfinite(logprob)
    assert logprob <= 1e-5
    assert sample(logits, [draw(temperature, top_p, seed)])[0] == (token, logprob)
