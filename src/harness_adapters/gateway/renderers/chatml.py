"""ChatML with Hermes tools: `<|im_start|>role … <|im_end|>`, `<tool_call>` and `<tool_response>` blocks.

Invariants
- Special ids come only from this file, never from text: a message that spells `<|im_end|>` is tokenised as letters.
- `render` writes what `CHATML_TEMPLATE` writes, character by character.
- `parse` and `write_turn` are inverse on turns that `write_turn` can write.

Tolerance of `parse` is bounded on purpose, because servers without our gateway parse strictly and an adapter must not
learn forms that only we accept. Forgiven are: no closing tag after the last call, white space around the object, raw
control characters inside strings, `arguments` missing, empty, or encoded twice. Single quotes, trailing commas, missing
braces and anything cut off are not: such a block stays text and is counted as malformed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

from harness_adapters.errors import ConfigError
from harness_adapters.gateway.renderers.protocol import ParsedCall, ParsedTurn, Tools
from harness_adapters.gateway.renderers.template import TOOLS_INSTRUCTION, TOOLS_INTRODUCTION
from harness_adapters.records import Message, Messages

START, END = "<|im_start|>", "<|im_end|>"
_OTHER_STOPS = ("<|endoftext|>",)
_MAX_NESTING = 32
"""Deeper arguments are malformed: no tool needs them, and JSON writers have their own, lower or higher, limits."""
_LONG_TEXT = 100_000
"""Characters from which tokenising takes long enough to matter to others."""

_CALL_OPEN = re.compile(r"<tool_call>\s*")
_CALL_CLOSE = re.compile(r"\s*(?:</tool_call>|\Z)")
_THINK_BLOCK = re.compile(r"\s*<think>(.*?)(?:</think>|\Z)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class ChatMLRenderer:
    """`Renderer` for tokenizers with `<|im_start|>` and `<|im_end|>`.

    `vocab_size` may name a model's padded size; the larger of it and the tokenizer's own counts. Raises ConfigError
    where the two special tokens are missing.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int = 0) -> None:
        self._ids = _special_ids(tokenizer)
        self._tokenizer = _text_only_copy(tokenizer)
        self._vocab_size = max(vocab_size, tokenizer.get_vocab_size(with_added_tokens=True))
        others = (tokenizer.token_to_id(token) for token in _OTHER_STOPS)
        self._stop_ids = (self._ids[END], *(other for other in others if other is not None))

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return self._stop_ids

    def render(self, messages: Messages, tools: Tools = ()) -> list[int]:
        return self._encode(_history(messages, tools))

    def render_text(self, messages: Messages, tools: Tools = ()) -> str:
        """The text of `render`, special tokens spelled; equal to the template's output with a generation prompt."""
        return "".join(text for _, text in _history(messages, tools))

    def extend(self, completion_ids: Sequence[int], messages: Messages) -> list[int]:
        closed = bool(completion_ids) and completion_ids[-1] == self._ids[END]
        closing = [(False, "\n")] if closed else [(True, END), (False, "\n")]
        return self._encode([*closing, *_turns(messages), *_opening()])

    def parse(self, completion_ids: Sequence[int]) -> ParsedTurn:
        ids = list(completion_ids)
        while ids and ids[-1] in self._stop_ids:
            ids.pop()
        return parse_turn(self.decode(ids))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def encode_turn(self, text: str) -> list[int]:
        """`text` of an assistant turn as canonical ids with the closing token: what a perfect model would sample."""
        return self._encode([(False, text), (True, END)])

    def _encode(self, pieces: Iterable[tuple[bool, str]]) -> list[int]:
        ids: list[int] = []
        text: list[str] = []
        for special, piece in pieces:
            if not special:
                text.append(piece)
                continue
            ids += self._encode_text("".join(text))
            ids.append(self._ids[piece])
            text.clear()
        return ids + self._encode_text("".join(text))

    def _encode_text(self, text: str) -> list[int]:
        if len(text) < _LONG_TEXT:
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else []
        # Of the two, only the batch form lets other Python threads run while it works.
        return list(self._tokenizer.encode_batch([text], add_special_tokens=False)[0].ids)


def write_turn(content: str, calls: Sequence[ParsedCall] = (), reasoning: str = "") -> str:
    """The text of an assistant turn, without its closing token."""
    thought = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
    blocks = [
        f'<tool_call>\n{{"name": {_json(c.name)}, "arguments": {_arguments(c.arguments)}}}\n</tool_call>' for c in calls
    ]
    return thought + "\n".join([content, *blocks] if content or not blocks else blocks)


def parse_turn(text: str) -> ParsedTurn:
    """The inverse of `write_turn`, tolerant as the module says."""
    thought = _THINK_BLOCK.match(text)
    reasoning, body = (thought.group(1).strip("\n"), text[thought.end() :].lstrip("\n")) if thought else ("", text)
    calls: list[ParsedCall] = []
    kept: list[str] = []
    malformed = position = 0
    for opening in _CALL_OPEN.finditer(body):
        if opening.start() < position:
            continue
        call, end = _read_call(body, opening.end())
        if call is None:
            malformed += 1
            continue
        calls.append(call)
        kept.append(body[position : opening.start()])
        position = end
    kept.append(body[position:])
    content = "\n".join(part for part in (part.strip() for part in kept) if part) if calls else body
    return ParsedTurn(content, reasoning, tuple(calls), malformed)


def _special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    found = {token: tokenizer.token_to_id(token) for token in (START, END)}
    ids = {token: number for token, number in found.items() if number is not None}
    missing = [token for token in found if token not in ids]
    if missing:
        raise ConfigError(
            f"the tokenizer has no {' and no '.join(missing)}",
            "supported chat formats: chatml (tokenizers with <|im_start|> and <|im_end|>)",
        )
    return ids


def _text_only_copy(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that reads special tokens in text as letters and neither cuts nor pads.

    `encode_special_tokens` only affects tokens that are marked special, which some tokenizers forget for ChatML's two.
    """
    data = json.loads(tokenizer.to_str())
    for token in data.get("added_tokens", []):
        if token["content"] in (START, END):
            token["special"] = True
    copy = Tokenizer.from_str(json.dumps(data))
    copy.encode_special_tokens = True
    copy.no_truncation()
    copy.no_padding()
    return copy


def _history(messages: Messages, tools: Tools) -> list[tuple[bool, str]]:
    pieces: list[tuple[bool, str]] = []
    rest = messages
    if tools:
        system = ""
        if messages and messages[0]["role"] == "system":
            system, rest = _content(messages[0]) + "\n\n", messages[1:]
        declared = "".join("\n" + _json(tool) for tool in tools)
        pieces += _turn("system", system + TOOLS_INTRODUCTION + declared + TOOLS_INSTRUCTION)
    return [*pieces, *_turns(rest), *_opening()]


def _turns(messages: Messages) -> list[tuple[bool, str]]:
    pieces: list[tuple[bool, str]] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            if index == 0 or messages[index - 1]["role"] != "tool":
                pieces += [(True, START), (False, "user")]
            pieces.append((False, f"\n<tool_response>\n{_content(message)}\n</tool_response>"))
            if index + 1 == len(messages) or messages[index + 1]["role"] != "tool":
                pieces += [(True, END), (False, "\n")]
        elif message["role"] == "assistant":
            pieces += _turn("assistant", _assistant_text(message))
        else:
            pieces += _turn(message["role"], _content(message))
    return pieces


def _turn(role: str, text: str) -> list[tuple[bool, str]]:
    return [(True, START), (False, f"{role}\n{text}"), (True, END), (False, "\n")]


def _opening() -> list[tuple[bool, str]]:
    return [(True, START), (False, "assistant\n")]


def _content(message: Message) -> str:
    return message.get("content") or ""


def _assistant_text(message: Message) -> str:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [ParsedCall(function["name"], function["arguments"]) for function in functions]
    return write_turn(_content(message), calls, message.get("reasoning_content") or "")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _arguments(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else _json(arguments)


def _read_call(text: str, start: int) -> tuple[ParsedCall | None, int]:
    """The call whose object begins at `start`, and where its block ends; None for what is no call.

    The object decides where the block ends, so a closing tag inside a string of it is text.
    """
    data, end = _read_json(text, start)
    closing = _CALL_CLOSE.match(text, end)
    if closing is None or not isinstance(data, dict) or not isinstance(data.get("name"), str) or not data["name"]:
        return None, start
    return ParsedCall(data["name"], _read_arguments(data.get("arguments", {}))), closing.end()


def _read_arguments(value: Any) -> Mapping[str, Any] | str:
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        return _json(value)
    if not value.strip():
        return {}
    inner, end = _read_json(value, len(value) - len(value.lstrip()))
    return inner if isinstance(inner, dict) and not value[end:].strip() else value


def _read_json(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at `start` and its end; None where there is none, or none that can be written as JSON again."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    if _nesting_exceeds(value, _MAX_NESTING):
        return None, start
    written = _json(value)
    return (json.loads(_SURROGATE.sub("\ufffd", written)) if _SURROGATE.search(written) else value), end


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is not a finite number")
    return number


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse_constant, parse_float=_finite_float)


def _nesting_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
