"""What crosses module borders: frozen records, no behaviour beyond reading and writing themselves.

Invariants
- Token ids and log-probs in a `ModelCall` are those the engine returned; nothing re-encodes text into them.
- `len(completion_ids) == len(logprobs)` for every call that is labelled `AGENT`.
- A `Rollout` whose outcome is `INFRA` or `CANCELLED` has no reward; `GRADED` always has one.

Asymmetry: `ModelCall.prompt_ids` is the whole prompt of that call, not what was new in it. Consecutive calls of one
session normally extend each other; a call that does not is labelled `BRANCH` and says why.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

BASE_POLICY = "base"
"""The name under which an engine serves the base model without any adapter."""


class Outcome(StrEnum):
    """How a rollout ended. What is unknown is `INFRA`."""

    GRADED = "graded"
    AGENT_FAULT = "agent_fault"
    INFRA = "infra"
    CANCELLED = "cancelled"


class Decision(StrEnum):
    """What the guard decided on one tool call, mildest first; `error`: a rule failed, so the call is withheld and the
    session says nothing about the agent."""

    ALLOW = "allow"
    WARN = "warn"
    ZERO = "zero"
    BLOCK = "block"
    ERROR = "error"


class CallLabel(StrEnum):
    """What a model call was; only `AGENT` calls are trained on."""

    AGENT = "agent"
    AUXILIARY = "auxiliary"
    RETRY = "retry"
    BRANCH = "branch"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One immutable adapter version; its name is never reused."""

    run: str
    harness: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.run}-{self.harness}-v{self.number}"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a tool does with some of its arguments.

    `kind` is one of `shell`, `read`, `list`, `write`, `delete`, `fetch`, `delegate`; `roles` maps a role that the guard
    knows (`command`, `code`, `path`, `content`, `patch`, `url`, `query`, `prompt`, `cwd`) to the name of the tool's
    argument that plays it.
    """

    kind: str
    roles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ToolMap:
    """The tools of one harness and what each does; a tool may have several effects.

    `lasting` names the tools behind which one shell lives through the session, and what of it does: `folder` (it stays
    where the last command left it) or `all` (its variables, too). Every other tool starts a new shell each time.
    """

    harness: str
    tools: Mapping[str, tuple[Effect, ...]]
    lasting: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call the model made. `arguments` is the raw text where it is not a JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guard's decision on one call; `rule` is empty for ALLOW."""

    call_id: str
    decision: Decision
    rule: str = ""
    reason: str = ""
    evidence: str = ""

    @property
    def blocked(self) -> bool:
        return self.decision is Decision.BLOCK


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to the engine, as the engine saw and answered it.

    `logprobs` are natural-log probabilities under the distribution that was sampled from (temperature applied).
    `started` is Unix time in seconds; `seconds` the wall time of the engine's answer.
    """

    index: int
    policy: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    label: CallLabel
    cause: str = ""
    text: str = ""
    tool_calls: tuple[Call, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    started: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RewardParts:
    """A reward and what it is made of; `total` is what training uses."""

    verifier: float
    bonus: float
    blocked: bool
    total: float


@dataclass(frozen=True, slots=True)
class Rollout:
    """One session of one task: everything training, evaluation and a viewer need.

    `tool_calls` counts every call the model made, blocked and parallel ones included. `phases` holds seconds per
    phase of the session; `limits` says which limits were really enforced.
    """

    id: str
    task: str
    family: str
    group: str
    harness: str
    policy: str
    outcome: Outcome
    detail: str = ""
    reward: RewardParts | None = None
    calls: tuple[ModelCall, ...] = ()
    tool_calls: int = 0
    ended_by: str = ""
    started: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def solved(self) -> bool:
        return self.reward is not None and self.reward.verifier >= 1.0 and not self.reward.blocked

    @property
    def blocked(self) -> bool:
        return any(v.blocked for call in self.calls for v in call.verdicts)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `rollout_from_json` reads back equal."""
        return asdict(self)


_Fits = Callable[[Any], bool]
"""Whether a value read from JSON may stand in one field of a record."""


def _is(*kinds: type) -> _Fits:
    return lambda value: isinstance(value, kinds)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_number(value: Any) -> bool:
    """Finite as a float. JSON's integers have no end, so `math.isfinite` would overflow instead of answering."""
    return type(value) in (int, float) and -sys.float_info.max <= value <= sys.float_info.max


def _is_duration(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list | tuple) and set(map(type, value)) <= {int} and min(value, default=0) >= 0


def _is_logprobs(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_number, value))


def _is_mapping(fits: _Fits) -> _Fits:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


_CALL: Mapping[str, _Fits] = {"id": _is(str), "name": _is(str), "arguments": _is(dict, str)}
_VERDICT: Mapping[str, _Fits] = dict.fromkeys(("call_id", "decision", "rule", "reason", "evidence"), _is(str))
_REWARD: Mapping[str, _Fits] = {**dict.fromkeys(("verifier", "bonus", "total"), _is_number), "blocked": _is(bool)}
_MODEL_CALL: Mapping[str, _Fits] = {
    **dict.fromkeys(("policy", "finish_reason", "label", "cause", "text"), _is(str)),
    "index": _is_count,
    "prompt_ids": _is_token_ids,
    "completion_ids": _is_token_ids,
    "logprobs": _is_logprobs,
    "tool_calls": _is(list, tuple),
    "verdicts": _is(list, tuple),
    "started": _is_number,
    "seconds": _is_duration,
}
_ROLLOUT: Mapping[str, _Fits] = {
    **dict.fromkeys(("id", "task", "family", "group", "harness", "policy", "outcome", "detail", "ended_by"), _is(str)),
    "reward": _is(dict, type(None)),
    "calls": _is(list, tuple),
    "tool_calls": _is_count,
    "started": _is_number,
    "phases": _is_mapping(_is_duration),
    "limits": _is_mapping(_is(str)),
    "tags": _is_mapping(_is(str)),
}


def _checked(data: Any, fields: Mapping[str, _Fits], what: str) -> Mapping[str, Any]:
    """`data` itself, every known field of which fits. Raises ValueError with the name of the first that does not."""
    if not isinstance(data, dict):
        raise ValueError(f"a {what} is an object, not {type(data).__name__}")
    for name, fits in fields.items():
        if name in data and not fits(data[name]):
            raise ValueError(f"{name!r} of a {what} cannot be {reprlib.repr(data[name])}")
    return data


def _call_from_json(data: Any) -> ModelCall:
    _checked(data, _MODEL_CALL, "model call")
    verdicts = (_checked(verdict, _VERDICT, "verdict") for verdict in data["verdicts"])
    return ModelCall(
        **{
            **data,
            "prompt_ids": tuple(data["prompt_ids"]),
            "completion_ids": tuple(data["completion_ids"]),
            "logprobs": tuple(data["logprobs"]),
            "label": CallLabel(data["label"]),
            "tool_calls": tuple(Call(**_checked(call, _CALL, "tool call")) for call in data["tool_calls"]),
            "verdicts": tuple(
                Verdict(**{**verdict, "decision": Decision(verdict["decision"])}) for verdict in verdicts
            ),
        }
    )


def rollout_from_json(data: Any) -> Rollout:
    """The rollout that `Rollout.to_json` wrote.

    Raises KeyError or TypeError for a field that is missing or unknown, ValueError, naming the field, for a value that
    does not fit: another type, a number that is not finite, a negative count or duration.
    """
    _checked(data, _ROLLOUT, "rollout")
    reward = data["reward"]
    return Rollout(
        **{
            **data,
            "outcome": Outcome(data["outcome"]),
            "reward": RewardParts(**_checked(reward, _REWARD, "reward")) if reward is not None else None,
            "calls": tuple(_call_from_json(call) for call in data["calls"]),
        }
    )


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One linear token sequence to train on.

    `trained[i]` says whether token i was sampled by the policy; `logprobs[i]` is its log-prob when it was sampled
    (0.0 where not trained). All three have the same length; token 0 is never trained.
    """

    rollout: str
    token_ids: tuple[int, ...]
    trained: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantage: float = 1.0

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.trained) == len(self.logprobs):
            raise ValueError("token_ids, trained and logprobs must have one length")
        if self.trained and self.trained[0]:
            raise ValueError("token 0 has no context and cannot be trained")


Message = Mapping[str, Any]
"""A chat message in chat-completions form, as a harness sent it."""

Messages = Sequence[Message]
