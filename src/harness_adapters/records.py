"""What crosses module borders: frozen records, no behaviour beyond reading and writing themselves.

Invariants
- Token ids and log-probs in a `ModelCall` are those the engine returned; nothing re-encodes text into them.
- `len(completion_ids) == len(logprobs)` for every call that is labelled `AGENT`.
- A `Rollout` whose outcome is `INFRA` or `CANCELLED` has no reward; `GRADED` always has one.

Asymmetry: `ModelCall.prompt_ids` is the whole prompt of that call, not what was new in it. Consecutive calls of one
session normally extend each other; a call that does not is labelled `BRANCH` and says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """What the guard decided on one tool call, mildest first."""

    ALLOW = "allow"
    WARN = "warn"
    ZERO = "zero"
    BLOCK = "block"


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

    `kind` is one of `shell`, `read`, `write`, `delete`, `fetch`, `delegate`; `roles` maps a role the guard knows
    (`command`, `path`, `content`, `url`, `code`, `cwd`) to the name of the tool's argument that plays it.
    """

    kind: str
    roles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ToolMap:
    """The tools of one harness and what each does; a tool may have several effects."""

    harness: str
    tools: Mapping[str, tuple[Effect, ...]]


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


def _call_from_json(data: Mapping[str, Any]) -> ModelCall:
    return ModelCall(
        **{
            **data,
            "prompt_ids": tuple(data["prompt_ids"]),
            "completion_ids": tuple(data["completion_ids"]),
            "logprobs": tuple(data["logprobs"]),
            "label": CallLabel(data["label"]),
            "tool_calls": tuple(Call(**call) for call in data["tool_calls"]),
            "verdicts": tuple(Verdict(**{**v, "decision": Decision(v["decision"])}) for v in data["verdicts"]),
        }
    )


def rollout_from_json(data: Mapping[str, Any]) -> Rollout:
    """The rollout that `Rollout.to_json` wrote. Raises KeyError, TypeError or ValueError on anything else."""
    reward = data["reward"]
    return Rollout(
        **{
            **data,
            "outcome": Outcome(data["outcome"]),
            "reward": RewardParts(**reward) if reward is not None else None,
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
