"""Chat formats: messages to token ids, token ids back to text, reasoning and tool calls.

A renderer is the only place that knows how a model writes a conversation down. It has two uses: a *fresh* render of a
whole history, and `extend`, the ids that follow a recorded completion when new messages arrive.

Invariant: for a fresh render, the ids are those of the model's own chat template on the same messages, except that
text which spells a special token stays text.

Asymmetry: `extend` never sees the completion's text, only its ids, and never writes them again; it only adds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness_adapters.errors import ConfigError
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


def open_renderer(model_dir: Path, chat_format: str = "auto") -> Renderer:
    """The renderer for a model folder (`tokenizer.json`, `config.json`).

    `chat_format` is `auto` (decided by the tokenizer's special tokens) or `chatml`. Raises ConfigError for a folder
    without a readable tokenizer and for a format that is not supported.
    """
    from tokenizers import Tokenizer

    from harness_adapters.gateway.renderers.chatml import ChatMLRenderer

    if chat_format not in ("auto", "chatml"):
        raise ConfigError(f"chat format {chat_format!r} is not supported", "supported: auto, chatml")
    path = model_dir / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"no tokenizer.json in {model_dir}", "give a folder in transformers layout")
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # noqa: BLE001 - the Rust reader raises plain Exception, nothing narrower
        raise ConfigError(f"{path} is not a tokenizer: {error}", "convert or download the model again") from None
    return ChatMLRenderer(tokenizer, vocab_size=_config_vocab_size(model_dir))


def _config_vocab_size(model_dir: Path) -> int:
    """`vocab_size` of the model's config (embeddings may be padded past the tokenizer); 0 where it has none."""
    path = model_dir / "config.json"
    if not path.is_file():
        return 0
    try:
        size = json.loads(path.read_text(encoding="utf-8")).get("vocab_size", 0)
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is not a model configuration: {error}", "convert the model again") from None
    return size if isinstance(size, int) else 0
