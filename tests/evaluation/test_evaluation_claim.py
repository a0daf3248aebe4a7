"""The sentence never says more than its numbers."""

from __future__ import annotations

import re

import pytest
from evaluation_samples import MakeRollout
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness_adapters.evaluation.claim import number, sentence, split_sentence
from harness_adapters.evaluation.compare import compare
from harness_adapters.records import Outcome, Rollout

Results = dict[str, list[tuple[bool, int]]]


def rollouts_of(make: MakeRollout, results: Results, split: str = "heldout") -> list[Rollout]:
    """`results[label][i]` is whether task i was solved, and in how many calls."""
    return [
        make(label, f"task-{task}", solved, calls, split=split)
        for label, outcomes in results.items()
        for task, (solved, calls) in enumerate(outcomes)
    ]


def said(make: MakeRollout, **results: list[tuple[bool, int]]) -> str:
    return sentence(compare(rollouts_of(make, results)))


def solved(count: int, of: int, calls: int = 3) -> list[tuple[bool, int]]:
    return [(task < count, calls) for task in range(of)]


def test_a_clear_gain_is_claimed_with_its_interval(make_rollout: MakeRollout) -> None:
    text = said(make_rollout, base=solved(4, 40), final=solved(30, 40))
    assert text.startswith("The adapter solves more held-out tasks than the base model: +65 points (95 % interval ")
    assert "40 tasks)" in text


def test_a_clear_loss_is_claimed_as_one(make_rollout: MakeRollout) -> None:
    text = said(make_rollout, base=solved(30, 40), final=solved(4, 40))
    assert text.startswith("The adapter solves fewer held-out tasks than the base model: −65 points")


def test_an_interval_that_holds_zero_claims_nothing_and_says_what_could_have_been_seen(
    make_rollout: MakeRollout,
) -> None:
    text = said(make_rollout, base=solved(20, 40), final=solved(19, 40))
    assert text.startswith(
        "No difference in solved held-out tasks can be claimed between the adapter and the base model"
    )
    assert "smallest effect this sample could have shown: 19 points" in text or "could have shown: 20 points" in text
    assert "more held-out" not in text


def test_where_nothing_was_solved_it_says_so(make_rollout: MakeRollout) -> None:
    text = said(make_rollout, base=solved(0, 40), final=solved(0, 40))
    assert text.startswith("Neither the adapter nor the base model solved any of the 40 held-out tasks")
    assert "no task was solved by both, so tool calls cannot be compared" in text


@pytest.mark.parametrize("tasks", [1, 3, 5])
def test_a_tiny_sample_claims_nothing_even_when_all_tasks_agree(make_rollout: MakeRollout, tasks: int) -> None:
    text = said(make_rollout, base=solved(0, tasks), final=solved(tasks, tasks))
    assert "no difference in solved" in text.lower()
    assert "could not have shown any difference" in text


def test_fewer_calls_are_claimed_only_on_tasks_both_solved(make_rollout: MakeRollout) -> None:
    text = said(make_rollout, base=solved(30, 40, calls=5), warm=solved(30, 40, calls=4), final=solved(30, 40, calls=2))
    assert "the adapter makes 3.0 fewer tool calls on the 30 tasks both solved (−3.1 to −2.9)" in text
    assert "against the warm start, no difference in solved share can be claimed" in text
    assert "the adapter makes 2.0 fewer tool calls" in text


def test_more_calls_are_said_too(make_rollout: MakeRollout) -> None:
    text = said(make_rollout, base=solved(30, 40, calls=2), final=solved(30, 40, calls=4))
    assert "the adapter makes 2.0 more tool calls on the 30 tasks both solved" in text


def test_calls_on_too_few_common_tasks_claim_nothing(make_rollout: MakeRollout) -> None:
    text = said(make_rollout, base=solved(3, 40, calls=9), final=solved(30, 40, calls=2))
    assert "with only 3 tasks solved by both, no difference in tool calls can be claimed" in text


def test_an_absent_policy_is_named_or_passed_over(make_rollout: MakeRollout) -> None:
    assert "the base model was not evaluated" in said(make_rollout, warm=solved(9, 9), final=solved(9, 9))
    assert "warm" not in said(make_rollout, base=solved(9, 9), final=solved(9, 9))
    text = said(make_rollout, base=solved(1, 40), warm=solved(30, 40))
    assert text.startswith("The warm start solves more")
    assert "the adapter was not evaluated" in text
    assert said(make_rollout, final=solved(9, 9)) == (
        "The base model was not evaluated; nothing can be claimed on held-out tasks."
    )
    assert sentence(compare([])) == "No evaluation rollout was found, so nothing can be claimed."


def test_a_policy_with_infra_failures_only_leaves_nothing_to_say(make_rollout: MakeRollout) -> None:
    rollouts = [make_rollout("base", "a", True), make_rollout("final", "a", outcome=Outcome.INFRA)]
    assert sentence(compare(rollouts)) == (
        "Nothing can be said of the adapter against the base model: "
        "none of the held-out tasks has a valid rollout of both."
    )


def test_left_out_tasks_are_told(make_rollout: MakeRollout) -> None:
    rollouts = rollouts_of(make_rollout, {"base": solved(4, 40), "final": solved(30, 39)})
    assert "1 of 40 tasks is left out for lack of a valid rollout of both" in sentence(compare(rollouts))


def test_unseen_families_get_a_sentence_of_their_own(make_rollout: MakeRollout) -> None:
    rollouts = rollouts_of(make_rollout, {"base": solved(4, 40), "final": solved(30, 40)})
    rollouts += rollouts_of(make_rollout, {"base": solved(4, 12), "final": solved(5, 12)}, split="unseen")
    comparison = compare(rollouts)
    assert "unseen" not in sentence(comparison)
    assert split_sentence(comparison.splits[1], 0.95).startswith("No difference in solved tasks of unseen families")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(outcomes=st.lists(st.tuples(*[st.tuples(st.booleans(), st.integers(0, 9))] * 3), min_size=1, max_size=25))
def test_no_claim_without_its_interval_beyond_zero(
    make_rollout: MakeRollout, outcomes: list[tuple[tuple[bool, int], ...]]
) -> None:
    columns = [list(column) for column in zip(*outcomes, strict=True)]
    comparison = compare(rollouts_of(make_rollout, dict(zip(("base", "warm", "final"), columns, strict=True))))
    text = sentence(comparison)
    pairs = [pair for pair in comparison.splits[0].pairs if pair.new == "final"]
    claims = sum(pair.solved.significant for pair in pairs) + sum(pair.calls.effect.significant for pair in pairs)
    assert len(re.findall(r"\b(?:solves|makes \d[\d.]*) (?:more|fewer)\b", text)) == claims
    assert text.endswith(".")
    assert "\n" not in text
    assert "nan" not in text


@pytest.mark.parametrize(
    ("value", "digits", "sign", "text"),
    [
        (-0.04, 1, True, "0.0"),
        (0.0, 0, True, "0"),
        (2.5, 1, True, "+2.5"),
        (-2.5, 1, False, "−2.5"),
        (2.0, 0, False, "2"),
    ],
)
def test_numbers_have_a_true_minus_and_no_negative_zero(value: float, digits: int, sign: bool, text: str) -> None:
    assert number(value, digits, sign=sign) == text


def test_an_end_beside_zero_does_not_read_as_zero(make_rollout: MakeRollout) -> None:
    text = said(make_rollout, base=solved(30, 1000), final=solved(39, 1000))
    interval = re.search(r"95 % interval (\S+) to (\S+);", text)
    assert interval is not None
    assert float(interval[1]) > 0
