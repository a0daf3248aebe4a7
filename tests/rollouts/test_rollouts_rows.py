"""Rows to train on, against an oracle that knows nothing of merging: every agent token once, in its own context."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.records import CallLabel, ModelCall, Outcome, Rollout, TrainRow
from harness_adapters.rollouts.rows import train_rows


def _call(
    prompt: list[int], completion: list[int], label: CallLabel = CallLabel.AGENT, start: float = -1.0
) -> ModelCall:
    logprobs = tuple(start - 0.01 * i for i in range(len(completion)))
    return ModelCall(0, "p", tuple(prompt), tuple(completion), logprobs, "stop", label)


def _rollout(*calls: ModelCall) -> Rollout:
    return Rollout("r", "t", "f", "g", "h", "p", Outcome.GRADED, calls=calls)


def test_calls_that_extend_each_other_become_one_row() -> None:
    rows = train_rows(_rollout(_call([1, 2], [3, 4]), _call([1, 2, 3, 4, 5], [6])), 0.5)
    assert rows == [
        TrainRow("r", (1, 2, 3, 4, 5, 6), (False, False, True, True, False, True), (0, 0, -1.0, -1.01, 0, -1.0), 0.5)
    ]


def test_call_with_another_prefix_starts_a_row_of_its_own() -> None:
    rows = train_rows(_rollout(_call([1, 2], [3]), _call([1, 9, 3], [4])), 1.0)
    assert [row.token_ids for row in rows] == [(1, 2, 3), (1, 9, 3, 4)]
    assert [row.trained for row in rows] == [(False, False, True), (False, False, False, True)]


def test_calls_that_are_not_the_agents_are_never_in_a_row() -> None:
    others = [label for label in CallLabel if label is not CallLabel.AGENT]
    calls = [_call([1, 2], [3]), *(_call([7, 8], [9], label) for label in others), _call([1, 2, 3, 4], [5])]
    assert [row.token_ids for row in train_rows(_rollout(*calls), 1.0)] == [(1, 2, 3, 4, 5)]


def test_rollout_without_a_sampled_token_has_no_row() -> None:
    assert train_rows(_rollout(), 1.0) == []
    assert train_rows(_rollout(_call([1, 2], [])), 1.0) == []


TOKENS = st.lists(st.integers(0, 2), max_size=4)
STEP = st.tuples(st.booleans(), TOKENS, TOKENS, st.sampled_from([CallLabel.AGENT, CallLabel.AGENT, *CallLabel]))


@st.composite
def _sessions(draw: st.DrawFn) -> list[ModelCall]:
    calls: list[ModelCall] = []
    history: list[int] = [0]
    for number, (goes_on, new, completion, label) in enumerate(draw(st.lists(STEP, max_size=7))):
        prompt = [*history, *new] if goes_on else [0, *new]
        calls.append(_call(prompt, completion, label, start=-1.0 - number))
        history = [*prompt, *completion]
    return calls


@given(_sessions())
def test_every_agent_token_is_trained_once_with_its_context_and_log_prob(calls: list[ModelCall]) -> None:
    expected = sorted(
        ((*call.prompt_ids, *call.completion_ids[: i + 1]), call.logprobs[i])
        for call in calls
        if call.label is CallLabel.AGENT
        for i in range(len(call.completion_ids))
    )
    found = sorted(
        (row.token_ids[: i + 1], row.logprobs[i])
        for row in train_rows(_rollout(*calls), 1.0)
        for i in range(len(row.token_ids))
        if row.trained[i]
    )
    assert found == expected


@given(_sessions())
def test_a_session_without_branches_is_one_row(calls: list[ModelCall]) -> None:
    linear: list[ModelCall] = []
    end: tuple[int, ...] = ()
    for call in calls:
        if call.label is CallLabel.AGENT and call.prompt_ids[: len(end)] == end:
            linear.append(call)
            end = (*call.prompt_ids, *call.completion_ids)
    assert len(train_rows(_rollout(*linear), 1.0)) <= 1
