"""OpenAI chat completions: requests in, plain or streamed answers out.

Reading is lenient about how a message is spelled (parts or string, arguments as text or object, `developer`) and strict
about what we cannot honour (several choices, images, a forced tool, a response schema): that is a clear 400. Sampling
fields are read past, but for the token limit: the gateway sets sampling.

Invariants
- Messages of a `ChatRequest` have one spelling, so equal conversations compare equal; strings hold no lone surrogates.
- The tool results that follow a turn stand in the order of its calls, whatever order the client sent.

Asymmetry: answers are written whole, after the verdict; a stream is the same answer cut into events.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from harness_adapters.records import Call

ALIAS = "policy"
"""The one model name that harnesses see, whatever version answers; so prompts do not change with the version."""

HEARTBEAT = b": keep-alive\n\n"
"""An SSE comment: every client reads past it."""

DONE = b"data: [DONE]\n\n"

_SURROGATE = re.compile("[\ud800-\udfff]")
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_TEXT_PARTS = ("text", "input_text", "output_text")
_THOUGHT_PARTS = ("reasoning", "thinking", "redacted_thinking")


class BadRequest(Exception):
    """A request that cannot be read or honoured; the text says why, the answer is a 400."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """`messages` in one spelling, for rendering and comparing; `sent` as they came, for the guard.

    In `messages`, `content` is a string and tool-call `arguments` an object, or the raw text where it is not one.
    """

    messages: tuple[Mapping[str, Any], ...]
    sent: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None

    @property
    def declared(self) -> tuple[str, ...]:
        return tuple(tool["function"]["name"] for tool in self.tools)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """One assistant turn that may leave the gateway. `finish_reason`: `stop`, `length` or `tool_calls`."""

    id: str
    content: str
    finish_reason: str = "stop"
    reasoning: str = ""
    tool_calls: tuple[Call, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0


def parse_request(body: bytes) -> ChatRequest:
    """Raises BadRequest, saying what is wrong and where."""
    data = _load(body)
    _refuse_unsupported(data)
    sent = data.get("messages")
    if not isinstance(sent, list) or not sent:
        raise BadRequest("messages must be a non-empty list")
    stream_options = data.get("stream_options") or {}
    return ChatRequest(
        messages=tuple(_order_results([_message(message, f"messages[{i}]") for i, message in enumerate(sent)])),
        sent=tuple(sent),
        tools=tuple(_tools(data.get("tools"))),
        stream=bool(data.get("stream")),
        include_usage=isinstance(stream_options, dict) and bool(stream_options.get("include_usage")),
        max_tokens=_max_tokens(data),
    )


def plain_answer(answer: ChatAnswer) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [_wire_call(call) for call in answer.tool_calls]
    elif not answer.content:
        message["content"] = ""
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    return orjson.dumps({**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)})


def stream_answer(answer: ChatAnswer, *, include_usage: bool) -> Iterator[bytes]:
    """The answer as SSE events: role, reasoning, content, tool calls, finish, usage where asked for, `[DONE]`."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if answer.reasoning:
        deltas.append({"reasoning_content": answer.reasoning})
    if answer.content:
        deltas.append({"content": answer.content})
    deltas += [{"tool_calls": [{"index": i, **_wire_call(call)}]} for i, call in enumerate(answer.tool_calls)]
    head = _head(answer, "chat.completion.chunk")
    for delta in deltas:
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish_reason}]})
    if include_usage:
        yield _event({**head, "choices": [], "usage": _usage(answer)})
    yield DONE


def error_body(message: str, kind: str) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": kind, "code": None, "param": None}})


def error_event(message: str, kind: str) -> bytes:
    """An error inside a stream whose headers are already out."""
    return b"data: " + error_body(message, kind) + b"\n\n"


def models_body() -> bytes:
    return orjson.dumps({"object": "list", "data": [{"id": ALIAS, "object": "model", "owned_by": "harness-adapters"}]})


def _load(body: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = _load_with_surrogates(body)
    if not isinstance(data, dict):
        raise BadRequest("the body must be a JSON object")
    return data


def _load_with_surrogates(body: bytes) -> Any:
    """JavaScript clients cut strings inside a surrogate pair and send the half as an escape, which orjson refuses."""
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
        return orjson.loads(_SURROGATE.sub("\ufffd", text))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def _refuse_unsupported(data: Mapping[str, Any]) -> None:
    if data.get("n") not in (None, 1):
        raise BadRequest("n must be 1: one answer a request")
    if data.get("tool_choice") not in (None, "auto"):
        raise BadRequest("tool_choice must be 'auto': the model decides")
    response_format = data.get("response_format")
    if response_format is not None and (not isinstance(response_format, dict) or response_format.get("type") != "text"):
        raise BadRequest("response_format is not supported: answers are text and tool calls")
    if data.get("functions"):
        raise BadRequest("functions is not supported: declare tools")


def _max_tokens(data: Mapping[str, Any]) -> int | None:
    for key in ("max_completion_tokens", "max_tokens"):
        value = data.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadRequest(f"{key} must be a whole number of at least 1")
        return value
    return None


def _tools(value: Any) -> Iterator[Mapping[str, Any]]:
    if value is not None and not isinstance(value, list):
        raise BadRequest("tools must be a list")
    for index, tool in enumerate(value or ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise BadRequest(f"tools[{index}] must be a function with a name")
        yield tool


def _message(message: Any, place: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise BadRequest(f"{place} must be an object")
    role = _ROLES.get(message["role"]) if isinstance(message.get("role"), str) else None
    if role is None:
        raise BadRequest(f"{place}.role must be one of {', '.join(_ROLES)}")
    result: dict[str, Any] = {"role": role, "content": _text(message.get("content"), f"{place}.content")}
    if role == "assistant":
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            result["reasoning_content"] = reasoning
        calls = _calls(message.get("tool_calls"), f"{place}.tool_calls")
        if calls:
            result["tool_calls"] = calls
    if role == "tool":
        result["tool_call_id"] = str(message.get("tool_call_id") or "")
    return result


def _text(content: Any, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise BadRequest(f"{place} must be text or a list of parts")
    return "\n".join(text for i, part in enumerate(content) for text in _part_texts(part, f"{place}[{i}]"))


def _part_texts(part: Any, place: str) -> list[str]:
    if isinstance(part, str):
        return [part]
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _THOUGHT_PARTS:
        return []
    if kind not in _TEXT_PARTS or not isinstance(part.get("text"), str):
        raise BadRequest(f"{place}: only text parts are supported, not {kind!r}")
    return [part["text"]]


def _calls(value: Any, place: str) -> list[dict[str, Any]]:
    if value is not None and not isinstance(value, list):
        raise BadRequest(f"{place} must be a list")
    calls = []
    for index, call in enumerate(value or ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest(f"{place}[{index}] must have a function with a name")
        arguments = _arguments(function.get("arguments"), f"{place}[{index}].function.arguments")
        calls.append(
            {
                "id": str(call.get("id") or ""),
                "type": "function",
                "function": {"name": function["name"], "arguments": arguments},
            }
        )
    return calls


def _arguments(value: Any, place: str) -> Mapping[str, Any] | str:
    if value is None or value == "":
        return {}
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise BadRequest(f"{place} must be an object or its JSON text")
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return parsed if isinstance(parsed, dict) else value


def _order_results(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Tool results carry no id in a rendered prompt, so their place must be that of their call."""
    order: dict[str, int] = {}
    results: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(message)
            continue
        yield from _sorted_results(results, order)
        results = []
        if message["role"] == "assistant":
            order = {call["id"]: i for i, call in enumerate(message.get("tool_calls", ()))}
        yield message
    yield from _sorted_results(results, order)


def _sorted_results(results: list[dict[str, Any]], order: Mapping[str, int]) -> list[dict[str, Any]]:
    return sorted(results, key=lambda result: order.get(result["tool_call_id"], len(order)))


def _wire_call(call: Call) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _head(answer: ChatAnswer, kind: str) -> dict[str, Any]:
    return {"id": answer.id, "object": kind, "created": int(time.time()), "model": ALIAS}


def _usage(answer: ChatAnswer) -> dict[str, int]:
    total = answer.prompt_tokens + answer.completion_tokens
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": total,
    }


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
