"""Chat formats: messages to token ids, token ids back to text, reasoning and tool calls.

A renderer is the only place that knows how a model writes a conversation down. It has two uses: a *fresh* render of a
whole history, and `extend`, the ids that follow a recorded completion when new messages arrive.

Invariant: for a fresh render, the ids are those of the model's own chat template on the same messages, except that
text which spells a special token stays text.

Asymmetry: `extend` never sees the completion's text, only its ids, and never writes them again; it only adds.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness_adapters.errors import ConfigError
from harness_adapters.gateway.renderers.protocol import ParsedCall, ParsedTurn, Renderer, Tools

__all__ = ["CHAT_FORMATS", "ParsedCall", "ParsedTurn", "Renderer", "Tools", "check_chat_format", "open_renderer"]


CHAT_FORMATS = ("auto", "chatml")


def check_chat_format(chat_format: str) -> None:
    """Raise ConfigError for a format that no renderer writes."""
    if chat_format not in CHAT_FORMATS:
        raise ConfigError(f"chat format {chat_format!r} is not supported", f"supported: {', '.join(CHAT_FORMATS)}")


def open_renderer(model_dir: Path, chat_format: str = "auto") -> Renderer:
    """The renderer for a model folder (`tokenizer.json`, `config.json`).

    `chat_format` is `auto` (decided by the tokenizer's special tokens) or `chatml`. Raises ConfigError for a folder
    without a readable tokenizer and for a format that is not supported.
    """
    from tokenizers import Tokenizer

    from harness_adapters.gateway.renderers.chatml import ChatMLRenderer

    check_chat_format(chat_format)
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
