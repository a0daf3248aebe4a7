"""What a chat format must offer, and what a completion is taken apart into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness_adapters.records import Messages

Tools = Sequence[Mapping[str, Any]]
"""Tool declarations in chat-completions form, each `{"type": "function", "function": {...}}`."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call as the model wrote it; `arguments` is the raw text where it is not a JSON object."""

    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """One completion taken apart. `malformed` counts tool-call blocks that stayed text inside `content`."""

    content: str
    reasoning: str = ""
    tool_calls: tuple[ParsedCall, ...] = ()
    malformed: int = 0


class Renderer(Protocol):
    """One chat format over one tokenizer. Pure; safe to share between sessions."""

    @property
    def vocab_size(self) -> int:
        """Ids of this model are below it."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids at which the engine ends a completion; the one sampled is part of it."""

    def render(self, messages: Messages, tools: Tools = ()) -> list[int]:
        """The whole history as ids, up to and with the opening of the next assistant turn."""

    def extend(self, completion_ids: Sequence[int], messages: Messages) -> list[int]:
        """What follows a recorded completion: its closing where it was cut, `messages`, the next opening."""

    def parse(self, completion_ids: Sequence[int]) -> ParsedTurn:
        """A completion's text, reasoning and tool calls. Never raises for anything a model can sample."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of any ids, special tokens spelled out."""
