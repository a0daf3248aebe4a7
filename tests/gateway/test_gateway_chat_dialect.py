"""Reading chat requests as clients spell them, refusing what cannot be honoured, and writing answers two ways."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_support import BASH
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.gateway.dialects import chat
from harness_adapters.records import Call


def read(**fields: Any) -> chat.ChatRequest:
    return chat.parse_request(json.dumps({"messages": [{"role": "user", "content": "go"}], **fields}).encode())


def messages(*sent: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(message) for message in read(messages=list(sent)).messages]


def test_content_is_text_however_it_was_sent() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert messages({"role": "developer", "content": "s"}, {"role": "user", "content": parts}) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a\nb"},
    ]
    assert messages({"role": "assistant", "content": None}) == [{"role": "assistant", "content": ""}]


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ('{"b":1,"a":2}', {"b": 1, "a": 2}),
        ({"b": 1}, {"b": 1}),
        ("", {}),
        (None, {}),
        ('{"cut', '{"cut'),
        ('["ls"]', '["ls"]'),
    ],
)
def test_arguments_of_earlier_calls_are_objects_where_they_can_be(sent: Any, arguments: Any) -> None:
    call = {"id": "c1", "function": {"name": "bash", "arguments": sent}}
    message = messages({"role": "assistant", "content": "", "tool_calls": [call]})[0]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments


def test_parallel_results_are_matched_by_id_not_by_place() -> None:
    """Wire case w-064."""
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}},
                    {"id": "c2", "type": "function", "function": {"name": "bash", "arguments": '{"command":"pwd"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "/w"},
            {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
        ],
    }
    read_messages = chat.parse_request(json.dumps(body).encode()).messages
    assert [message["content"] for message in read_messages[2:]] == ["a.py", "/w"]


def test_half_a_surrogate_pair_does_not_end_a_session() -> None:
    body = b'{"messages": [{"role": "user", "content": "cut \\ud83d here"}]}'
    assert chat.parse_request(body).messages[0]["content"] == "cut \ufffd here"


def test_options_are_read() -> None:
    request = read(stream=True, stream_options={"include_usage": True}, max_completion_tokens=7, tools=[BASH])
    assert (request.stream, request.include_usage, request.max_tokens) == (True, True, 7)
    assert request.declared == ("bash",)
    plain = read(tools=None, stream_options=None, max_tokens=None, temperature=3, store=False, tool_choice="auto")
    assert (plain.stream, plain.tools, plain.max_tokens) == (False, (), None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"messages": []}, "non-empty"),
        ({"messages": "hi"}, "non-empty"),
        ({"messages": ["hi"]}, r"messages\[0\] must be an object"),
        ({"messages": [{"role": "function", "content": "x"}]}, r"messages\[0\].role"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, r"messages\[0\].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "text or a list"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text parts.*image_url"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "tool_calls must be a list"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "function with a name"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 1}}]}]},
            "object or",
        ),
        ({"n": 2}, "n must be 1"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"functions": [{}]}, "functions"),
        ({"tools": {}}, "tools must be a list"),
        ({"tools": [{"type": "web_search"}]}, r"tools\[0\]"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_reason(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(chat.BadRequest, match=reason):
        read(**fields)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"messages": [' + b"[" * 5000]
)
def test_bodies_that_are_no_json_object_are_refused(body: bytes) -> None:
    with pytest.raises(chat.BadRequest):
        chat.parse_request(body)


JSONISH = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["user", "assistant", "tool", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "function", "name", "arguments", "id", "type", "text"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["messages", "tools", "stream_options", "max_tokens", "n"]), JSONISH))
def test_any_json_is_read_or_refused(body: dict[str, Any]) -> None:
    try:
        request = chat.parse_request(json.dumps(body).encode())
    except chat.BadRequest:
        return
    assert request.messages


def reassemble(stream: bytes) -> dict[str, Any]:
    """A client's view of a stream: the message its deltas add up to."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": {}}
    events = [line[6:] for line in stream.decode().split("\n\n") if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    for event in map(json.loads, events):
        if not event["choices"]:
            message["usage"] = event["usage"]
            continue
        choice = event["choices"][0]
        delta = choice["delta"]
        message["content"] += delta.get("content", "")
        message["reasoning_content"] += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            message["tool_calls"][call["index"]] = (call["id"], call["function"]["name"], call["function"]["arguments"])
        message["finish_reason"] = choice["finish_reason"]
    return message


CALLS = st.lists(
    st.builds(
        Call, st.text("abc1_", min_size=1), st.text(min_size=1, max_size=5), st.dictionaries(st.text(), st.text())
    ),
    max_size=3,
)


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text(), CALLS, st.booleans())
def test_a_stream_adds_up_to_the_plain_answer(content: str, reasoning: str, calls: list[Call], usage: bool) -> None:
    finish = "tool_calls" if calls else "stop"
    answer = chat.ChatAnswer("id1", content, finish, reasoning, tuple(calls), 5, 3)
    streamed = reassemble(b"".join(chat.stream_answer(answer, include_usage=usage)))
    plain = json.loads(chat.plain_answer(answer))
    message = plain["choices"][0]["message"]
    assert streamed["content"] == (message["content"] or "")
    assert streamed["reasoning_content"] == message.get("reasoning_content", "")
    wire = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())]
    assert list(streamed["tool_calls"].values()) == wire
    assert streamed["finish_reason"] == plain["choices"][0]["finish_reason"] == finish
    assert streamed.get("usage") == (plain["usage"] if usage else None)
    assert plain["model"] == chat.ALIAS
