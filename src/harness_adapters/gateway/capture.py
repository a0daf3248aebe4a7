"""The token record of one session: which ids each request stands for, and what each call was.

A harness sends its whole history with every request, and it re-serialises, trims or rewrites what the model said. The
record therefore never reads an assistant turn back: it finds the recorded call whose messages the request begins
with and whose answer comes next, and continues that call's ids verbatim. Only the messages after it become new tokens.

Invariants
- The prompt of a call that continues another is that call's prompt, its completion as sampled, then new tokens.
- A request that does not continue the agent's conversation is labelled `BRANCH` and says why; nothing is guessed.
- A message counts as unchanged when its text is; an answer of ours counts as unchanged when its tool-call ids are, or,
  without calls, when its text is apart from white space and reasoning.

Asymmetry: `prompt` only looks, `add` changes; a call that failed or was cancelled in between leaves no trace.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness_adapters.gateway.dialects.chat import ChatRequest
from harness_adapters.gateway.renderers.protocol import Renderer
from harness_adapters.records import Call, CallLabel, ModelCall, Verdict

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_Place = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as the engine will see it. `places[i]` identifies the tools and the first i messages."""

    ids: tuple[int, ...]
    roles: tuple[str, ...]
    has_tools: bool
    places: tuple[_Place, ...]
    parent: RecordedCall | None


@dataclass(slots=True, eq=False)
class RecordedCall:
    """A model call and where it stands. `in_line`: it belongs to the agent's own conversation."""

    call: ModelCall
    prompt: Prompt
    content: str
    in_line: bool

    @property
    def place(self) -> _Place:
        return self.prompt.places[-1]

    def answered(self, message: Mapping[str, Any]) -> bool:
        """Whether `message` is this call's answer, as a harness may have rewritten it."""
        ids = [call["id"] for call in message.get("tool_calls", ())]
        if ids or self.call.tool_calls:
            return sorted(ids) == sorted(call.id for call in self.call.tool_calls)
        return _plain(message["content"]) == _plain(self.content)

    def judged(self, verdicts: Sequence[Verdict]) -> None:
        self.call = replace(self.call, verdicts=tuple(verdicts))


class TokenRecord:
    """All calls of one session. `keep` bounds how many are remembered (0: all), for sessions that never end."""

    def __init__(self, renderer: Renderer, *, keep: int = 0) -> None:
        self._renderer = renderer
        self._keep = keep
        self._calls: list[RecordedCall] = []
        self._by_place: defaultdict[_Place, list[RecordedCall]] = defaultdict(list)
        # Random, so that ids of an earlier life of this session, still in a harness's history, are not taken for ours.
        self._id_prefix = f"call_{secrets.token_hex(4)}_"
        self._has_tools = False
        self._tip: RecordedCall | None = None

    def calls(self) -> tuple[ModelCall, ...]:
        return tuple(sorted((recorded.call for recorded in self._calls), key=lambda call: call.index))

    def call_id(self, index: int, position: int) -> str:
        """The id under which a harness sees the `position`-th tool call of model call `index`."""
        return f"{self._id_prefix}{index}_{position}"

    def prompt(self, request: ChatRequest) -> Prompt:
        """The ids of a request: those of the same request before, those of the call it continues, or a fresh render."""
        places = self._places(request)
        same = self._by_place.get(places[-1])
        if same:
            return same[0].prompt
        parent = self._parent(request, places)
        if parent is None:
            ids = self._renderer.render(request.messages, request.tools)
        else:
            new = request.messages[parent.place[0] + 1 :]
            completion = parent.call.completion_ids
            ids = [*parent.prompt.ids, *completion, *self._renderer.extend(completion, new)]
        roles = tuple(message["role"] for message in request.messages)
        return Prompt(tuple(ids), roles, bool(request.tools), places, parent)

    def add(self, prompt: Prompt, call: ModelCall, *, content: str, fault: str = "") -> RecordedCall:
        """Record an answered call under its label; `call` comes with a provisional one.

        `content` is the text the harness gets, `fault` what is wrong with the log-probs.
        """
        self._note_tools(prompt)
        label, cause = self._label(prompt)
        in_line = label in (CallLabel.AGENT, CallLabel.RETRY)
        findable = label is not CallLabel.AUXILIARY
        if fault:
            label, cause = CallLabel.UNUSABLE, fault
        recorded = RecordedCall(replace(call, label=label, cause=cause), prompt, content, in_line)
        self._calls.append(recorded)
        if findable:
            self._by_place[recorded.place].append(recorded)
        if in_line:
            self._tip = recorded
        if self._keep and len(self._calls) > self._keep:
            self._forget(self._calls.pop(0))
        return recorded

    def _note_tools(self, prompt: Prompt) -> None:
        """The first request with tools shows that earlier ones without were not the agent's (a title, say)."""
        if self._has_tools or not prompt.has_tools:
            return
        self._has_tools = True
        self._tip = None
        for recorded in self._calls:
            recorded.in_line = False
            if recorded.call.label is not CallLabel.UNUSABLE:
                recorded.call = replace(recorded.call, label=CallLabel.AUXILIARY, cause=_NO_TOOLS)

    def _label(self, prompt: Prompt) -> tuple[CallLabel, str]:
        if self._has_tools and not prompt.has_tools:
            return CallLabel.AUXILIARY, _NO_TOOLS
        tip, parent = self._tip, prompt.parent
        same = self._by_place.get(prompt.places[-1])
        if tip is not None and tip.place == prompt.places[-1]:
            return CallLabel.RETRY, f"same request as call {tip.call.index}"
        if same and not same[0].in_line:
            return CallLabel.BRANCH, f"same request as call {same[0].call.index}, a branch"
        if parent is not None and not parent.in_line:
            return CallLabel.BRANCH, f"continues the branch of call {parent.call.index}"
        if tip is None:
            return CallLabel.AGENT, ""
        if parent is None or parent.place != tip.place:
            return CallLabel.BRANCH, _cause(tip, prompt)
        if "assistant" in prompt.roles[parent.place[0] + 1 :]:
            unknown = prompt.roles.index("assistant", parent.place[0] + 1)
            return CallLabel.BRANCH, f"unknown assistant turn at message {unknown}"
        return CallLabel.AGENT, ""

    def _parent(self, request: ChatRequest, places: Sequence[_Place]) -> RecordedCall | None:
        """The recorded call that the longest part of the request continues; the latest of equals."""
        for index in range(len(request.messages) - 1, 0, -1):
            if request.messages[index]["role"] != "assistant":
                continue
            for recorded in reversed(self._by_place.get(places[index], ())):
                if recorded.answered(request.messages[index]):
                    return recorded
        return None

    def _places(self, request: ChatRequest) -> tuple[_Place, ...]:
        digest = _digest(b"", json.dumps(request.tools, sort_keys=True))
        places = [(0, digest)]
        for index, message in enumerate(request.messages, 1):
            digest = _digest(digest, self._unchanged(message))
            places.append((index, digest))
        return tuple(places)

    def _unchanged(self, message: Mapping[str, Any]) -> str:
        """What must be equal for a message to count as unchanged."""
        ids = [call["id"] for call in message.get("tool_calls", ())]
        if ids and all(call_id.startswith(self._id_prefix) for call_id in ids):
            return "assistant calls " + " ".join(sorted(ids))
        if message["role"] == "assistant" and not ids:
            return "assistant text " + _plain(message["content"])
        return json.dumps(message, sort_keys=True)

    def _forget(self, recorded: RecordedCall) -> None:
        siblings = self._by_place.get(recorded.place, [])
        if recorded in siblings:
            siblings.remove(recorded)
        if not siblings:
            self._by_place.pop(recorded.place, None)


_NO_TOOLS = "a request without tools in a session that has them"


def new_call(
    index: int,
    policy: str,
    prompt: Prompt,
    completion_ids: tuple[int, ...],
    logprobs: tuple[float, ...],
    finish_reason: str,
    *,
    text: str,
    tool_calls: tuple[Call, ...],
    started: float,
    seconds: float,
) -> ModelCall:
    """A call before the record has labelled it."""
    return ModelCall(
        index=index,
        policy=policy,
        prompt_ids=prompt.ids,
        completion_ids=completion_ids,
        logprobs=logprobs,
        finish_reason=finish_reason,
        label=CallLabel.AGENT,
        text=text,
        tool_calls=tool_calls,
        started=started,
        seconds=seconds,
    )


def _digest(before: bytes, text: str) -> bytes:
    return hashlib.blake2b(before + text.encode(), digest_size=16).digest()


def _cause(tip: RecordedCall, prompt: Prompt) -> str:
    """Why a request does not continue the agent's latest call."""
    old, new = tip.prompt.places, prompt.places
    if old[0] != new[0]:
        return "tools changed"
    # places[0] is the tools; message i differs where places[i + 1] is the first to differ.
    differing = next((i for i, (a, b) in enumerate(zip(old[1:], new[1:], strict=False)) if a != b), None)
    if differing == 0 and "system" in (tip.prompt.roles[0], prompt.roles[0]):
        return "system changed"
    if len(new) < len(old):
        return "history cut"
    if differing is None:
        differing = len(old) - 1
        if prompt.roles[differing] != "assistant":
            return f"the answer of call {tip.call.index} was left out"
    if prompt.roles[differing] == "assistant":
        return f"unknown assistant turn at message {differing}"
    return f"earlier message changed: message {differing}"


def _plain(text: str) -> str:
    return " ".join(_THOUGHT.sub(" ", text).split())
