"""Records that cross module borders: what is written to JSON is read back equal, and rows refuse to be inconsistent."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.records import (
    Call,
    CallLabel,
    Decision,
    ModelCall,
    Outcome,
    PolicyVersion,
    RewardParts,
    Rollout,
    TrainRow,
    Verdict,
    rollout_from_json,
)

text = st.text(max_size=12)
number = st.floats(allow_nan=False, allow_infinity=False)
duration = st.floats(0, allow_nan=False, allow_infinity=False)
token_ids = st.lists(st.integers(0, 300_000), max_size=6).map(tuple)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(Call, id=text, name=text, arguments=text | st.dictionaries(text, json_values, max_size=3))
verdicts = st.builds(Verdict, call_id=text, decision=st.sampled_from(Decision), rule=text, reason=text, evidence=text)
model_calls = st.builds(
    ModelCall,
    index=st.integers(0, 30),
    policy=text,
    prompt_ids=token_ids,
    completion_ids=token_ids,
    logprobs=st.lists(number, max_size=6).map(tuple),
    finish_reason=text,
    label=st.sampled_from(CallLabel),
    cause=text,
    text=text,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    verdicts=st.lists(verdicts, max_size=2).map(tuple),
    started=number,
    seconds=duration,
)
rewards = st.builds(RewardParts, verifier=number, bonus=number, blocked=st.booleans(), total=number)
rollouts = st.builds(
    Rollout,
    id=text,
    task=text,
    family=text,
    group=text,
    harness=text,
    policy=text,
    outcome=st.sampled_from(Outcome),
    detail=text,
    reward=st.none() | rewards,
    calls=st.lists(model_calls, max_size=2).map(tuple),
    tool_calls=st.integers(0, 100),
    ended_by=text,
    started=number,
    phases=st.dictionaries(text, duration, max_size=2),
    limits=st.dictionaries(text, text, max_size=2),
    tags=st.dictionaries(text, text, max_size=2),
)


@settings(max_examples=120, deadline=None)
@given(rollout=rollouts)
def test_a_rollout_written_as_json_text_reads_back_equal(rollout: Rollout) -> None:
    assert rollout_from_json(json.loads(json.dumps(rollout.to_json()))) == rollout


@settings(max_examples=40, deadline=None)
@given(rollout=rollouts, dropped=st.sampled_from(["id", "outcome", "reward", "calls"]))
def test_a_rollout_that_lacks_a_field_is_refused(rollout: Rollout, dropped: str) -> None:
    data = rollout.to_json()
    del data[dropped]
    with pytest.raises((KeyError, TypeError)):
        rollout_from_json(data)


def test_an_unknown_field_or_outcome_is_refused() -> None:
    data = Rollout("r", "t", "f", "g", "pi", "base", Outcome.INFRA).to_json()
    with pytest.raises(TypeError):
        rollout_from_json({**data, "extra": 1})
    with pytest.raises(ValueError, match="splendid"):
        rollout_from_json({**data, "outcome": "splendid"})


ENDLESS = 10**400
"""An integer that JSON can hold and a float cannot."""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("id",), 3),
        (("outcome",), ["graded"]),
        (("tool_calls",), -1),
        (("tool_calls",), 2.0),
        (("tool_calls",), True),
        (("tool_calls",), ENDLESS),
        (("started",), math.nan),
        (("phases",), []),
        (("phases",), {"agent": "1"}),
        (("phases",), {"agent": -0.5}),
        (("tags",), {"step": 1}),
        (("limits",), None),
        (("calls",), {}),
        (("reward",), 1.0),
        (("reward", "total"), math.nan),
        (("reward", "verifier"), ENDLESS),
        (("reward", "bonus"), True),
        (("reward", "blocked"), 0),
        (("calls", 0, "index"), -1),
        (("calls", 0, "prompt_ids"), [1, 2.0]),
        (("calls", 0, "prompt_ids"), "12"),
        (("calls", 0, "completion_ids"), [3, -1]),
        (("calls", 0, "completion_ids"), [True]),
        (("calls", 0, "logprobs"), [-0.1, -math.inf]),
        (("calls", 0, "logprobs"), [-0.1, None]),
        (("calls", 0, "logprobs"), [ENDLESS]),
        (("calls", 0, "seconds"), -1.0),
        (("calls", 0, "text"), None),
        (("calls", 0, "tool_calls"), {}),
        (("calls", 0, "tool_calls", 0, "arguments"), []),
        (("calls", 0, "verdicts", 0, "reason"), 1),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_fields_name(path: tuple[str | int, ...], value: object) -> None:
    model_call = ModelCall(
        index=0,
        policy="base",
        prompt_ids=(1, 2),
        completion_ids=(3,),
        logprobs=(-0.1,),
        finish_reason="stop",
        label=CallLabel.AGENT,
        tool_calls=(Call("c", "bash", {"command": "ls"}),),
        verdicts=(Verdict("c", Decision.ALLOW),),
    )
    reward = RewardParts(1.0, 0.0, False, 1.0)
    rollout = Rollout("r", "t", "f", "g", "pi", "base", Outcome.GRADED, reward=reward, calls=(model_call,))
    data = json.loads(json.dumps(rollout.to_json()))
    assert rollout_from_json(data) == rollout
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=f"'{path[-1]}' of a "):
        rollout_from_json(data)


@pytest.mark.parametrize("value", [None, [], "rollout", 1])
def test_what_is_no_object_is_no_rollout(value: object) -> None:
    with pytest.raises(ValueError, match="a rollout is an object"):
        rollout_from_json(value)


@pytest.mark.parametrize(
    ("verifier", "blocked", "solved"),
    [(1.0, False, True), (1.0, True, False), (0.99, False, False), (0.0, False, False)],
)
def test_solved_means_the_whole_verifier_reward_and_nothing_blocked(
    verifier: float, blocked: bool, solved: bool
) -> None:
    parts = RewardParts(verifier, 0.0, blocked, verifier)
    assert Rollout("r", "t", "f", "g", "pi", "base", Outcome.GRADED, reward=parts).solved is solved


def test_a_rollout_without_a_reward_is_not_solved() -> None:
    assert not Rollout("r", "t", "f", "g", "pi", "base", Outcome.INFRA).solved


def test_a_policy_version_has_a_name_of_its_own() -> None:
    names = {PolicyVersion("run", "pi", version).name for version in range(3)}
    assert names == {"run-pi-v0", "run-pi-v1", "run-pi-v2"}


@pytest.mark.parametrize(
    ("token_ids", "trained", "logprobs"),
    [((1, 2), (False,), (0.0, 0.0)), ((1, 2), (False, True), (0.0,)), ((1,), (False, True), (0.0, 0.0))],
)
def test_a_training_row_of_uneven_lengths_is_refused(
    token_ids: tuple[int, ...], trained: tuple[bool, ...], logprobs: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="one length"):
        TrainRow("r", token_ids, trained, logprobs)


def test_a_training_row_cannot_train_its_first_token() -> None:
    with pytest.raises(ValueError, match="token 0"):
        TrainRow("r", (1, 2), (True, True), (-0.1, -0.2))
