"""A study's sentences never say more than its numbers, and say of GRPO what it added, be it nothing."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from study_samples import Results, sessions_of, solved, study_of

from harness_adapters.evaluation.study import StudyComparison, compare_study
from harness_adapters.evaluation.study_claim import NOTHING_YET, sentences
from harness_adapters.records import Outcome

CLAIM = re.compile(r"\b(?:(?:more|fewer) are solved|\d[\d.]* (?:more|fewer) tool calls)\b")


def study(*runs: Results) -> StudyComparison:
    return compare_study(study_of({seed: sessions_of(results) for seed, results in enumerate(runs, 1)}))


def said(*runs: Results) -> dict[str, str]:
    """Sentences of the first split by what they are about."""
    compared = study(*runs)
    split = compared.splits[0]
    return {f"{pair.new}-{pair.old}": text for pair, text in zip(split.pairs, sentences(compared, split), strict=True)}


def three(warm: tuple[int, int, int], final: tuple[int, int, int], base: int = 0, of: int = 40) -> list[Results]:
    return [
        {"base": solved(base, of), "warm": solved(one, of), "final": solved(other, of)}
        for one, other in zip(warm, final, strict=True)
    ]


def test_a_gain_that_every_run_shows_is_claimed_with_all_its_numbers() -> None:
    text = said(*three((10, 12, 11), (24, 20, 25)))
    assert text["final-base"].startswith(
        "The adapters against the base model on held-out tasks: more are solved, +57 points (95 % interval "
    )
    assert "40 tasks; by run +60, +50, +62; over further runs, on these tasks, 41 to 74)" in text["final-base"]
    assert text["final-warm"].startswith(
        "What GRPO added to the warm start on held-out tasks: more are solved, +30 points (95 % interval 1"
    )
    assert text["warm-base"].startswith("The warm starts against the base model on held-out tasks: more are solved, ")


def test_a_loss_is_claimed_as_one() -> None:
    text = said(*three((30, 31, 32), (10, 11, 12)))["final-warm"]
    assert "warm start on held-out tasks: fewer are solved, −50 points" in text


def test_that_grpo_added_nothing_is_said_with_what_could_have_been_seen() -> None:
    text = said(*three((17, 22, 16), (22, 16, 21)))["final-warm"]
    assert text.startswith(
        "What GRPO added to the warm start on held-out tasks: no difference in solved share can be claimed, +3 points"
    )
    assert re.search(r"by run \+12, −15, \+12; over further runs, on these tasks, −36 to 43; smallest effect", text)
    assert re.search(r"smallest effect this study could have shown: \d+ points\)", text)


def test_a_mean_that_one_run_does_not_show_is_not_claimed() -> None:
    text = said(*three((10, 10, 10), (30, 30, 9)))["final-warm"]
    assert "no difference in solved share can be claimed, since not every run shows it, +32 points" in text
    assert not CLAIM.search(text)


def test_calls_are_claimed_only_where_every_run_shows_them() -> None:
    fewer = [{"warm": solved(20, 40, 5), "final": solved(20, 40, calls)} for calls in (3, 4, 2)]
    assert "2.0 fewer tool calls on the 20 tasks both solved (" in said(*fewer)["final-warm"]
    mixed = [{"warm": solved(20, 40, 5), "final": solved(20, 40, calls)} for calls in (1, 1, 6)]
    assert (
        "no difference in tool calls can be claimed, since not every run shows it, on the 20 tasks"
        in said(*mixed)["final-warm"]
    )
    few = [{"warm": solved(3, 40, 5), "final": solved(3, 40, 1)} for _ in range(3)]
    assert "with only 3 tasks solved by both, no difference in tool calls" in said(*few)["final-warm"]


def test_where_nothing_is_solved_or_everything_nothing_is_claimed() -> None:
    nothing = said(*three((0, 0, 0), (0, 0, 0)))
    for text in nothing.values():
        assert "can be claimed, since no run solved any task, 0 points (95 % interval −" in text
        assert "no task was solved by both in one run" in text
    everything = said(*three((40, 40, 40), (40, 40, 40), base=40))
    assert not any(CLAIM.search(text) for text in [*nothing.values(), *everything.values()])


def test_one_run_is_spoken_of_as_one() -> None:
    text = said(three((10, 10, 10), (30, 30, 30))[0])
    assert text["final-base"].startswith("The adapter against the base model on held-out tasks: more are solved, +75 p")
    assert "one run says nothing of further ones" in text["final-base"]
    assert "by run" not in text["final-base"]


def test_a_study_that_is_not_whole_claims_nothing() -> None:
    runs = {seed: sessions_of(results) for seed, results in enumerate(three((5, 5, 5), (30, 30, 30)), 1)}
    whole = study_of(runs)
    first = replace(whole.runs[1], planned=None)
    for broken in (
        study_of(runs, seeds=(1, 2, 3, 4)),
        replace(whole, runs={**whole.runs, 1: first}),
        replace(whole, runs={**whole.runs, 1: replace(first, planned=121)}),
        study_of({**runs, 3: sessions_of({"base": solved(1, 39), "final": solved(30, 39)})}),
    ):
        compared = compare_study(broken)
        (text,) = sentences(compared, compared.splits[0])
        assert text.startswith(NOTHING_YET)
        assert not CLAIM.search(text)
        assert text.count(".") == 1


def test_tasks_left_out_are_told() -> None:
    runs = {seed: list(sessions_of(results)) for seed, results in enumerate(three((5, 5, 5), (30, 30, 30)), 1)}
    runs[2][0] = replace(runs[2][0], outcome=Outcome.INFRA)
    compared = compare_study(study_of(runs))
    texts = sentences(compared, compared.splits[0])
    assert "1 of 40 tasks is left out for lack of a session" in texts[0]
    assert "left out" not in texts[1]


def test_policies_that_share_no_task_and_a_lone_policy_leave_nothing_to_say() -> None:
    apart = sessions_of({"base": solved(1, 1)}) + sessions_of({"final": [(True, 1)]}, split="heldout")
    lost = [replace(session, outcome=Outcome.INFRA) if session.label == "final" else session for session in apart]
    compared = compare_study(study_of({1: lost}))
    (text,) = sentences(compared, compared.splits[0])
    assert text.endswith("nothing can be said, since no task has a valid session of both in every run.")
    lone = compare_study(study_of({1: sessions_of({"base": solved(1, 9)})}))
    assert sentences(lone, lone.splits[0]) == (
        "Nothing can be claimed on held-out tasks: there are no two policies to compare.",
    )


outcomes = st.lists(st.tuples(*[st.tuples(st.booleans(), st.integers(0, 9))] * 3), min_size=1, max_size=20)


@settings(max_examples=150, deadline=None)
@given(runs=st.lists(outcomes, min_size=1, max_size=4), confidence=st.sampled_from([0.8, 0.95]))
def test_no_claim_without_its_interval_beyond_zero_and_all_runs_on_its_side(
    runs: list[list[tuple[tuple[bool, int], ...]]], confidence: float
) -> None:
    size = min(map(len, runs))
    columns = [
        dict(zip(("base", "warm", "final"), (list(column) for column in zip(*run[:size], strict=True)), strict=True))
        for run in runs
    ]
    found = {seed: sessions_of(results) for seed, results in enumerate(columns)}
    compared = compare_study(study_of(found, confidence=confidence))
    split = compared.splits[0]
    for pair, text in zip(split.pairs, sentences(compared, split), strict=True):
        assert len(CLAIM.findall(text)) == pair.solved.claimed + pair.calls.effect.claimed
        assert text.endswith(".")
        assert "\n" not in text
        assert "nan" not in text
        if pair.solved.claimed:
            assert pair.solved.adapters.interval is not None
            assert pair.solved.adapters.interval.excludes(0.0)
