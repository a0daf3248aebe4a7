"""The token record through real sockets: whatever a harness does to its history, sampled ids stand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gateway_support import BASH, Client, call_text, playing, renderer, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.engines.scripted import Fault, ScriptedTurn
from harness_adapters.gateway import SessionCapture
from harness_adapters.gateway.capture import TokenRecord, new_call
from harness_adapters.gateway.dialects.chat import ChatRequest
from harness_adapters.records import CallLabel, ModelCall

END = tokenizer().token_to_id("<|im_end|>")


def play(turns: list[str | ScriptedTurn], act: Callable[[Client], Awaitable[Any]], **changes: Any) -> SessionCapture:
    async def run() -> SessionCapture:
        async with playing(turns, **changes) as client:
            await act(client)
            return await client.session.close()

    return asyncio.run(run())


def labels(capture: SessionCapture) -> list[tuple[str, str]]:
    return [(call.label.value, call.cause) for call in capture.calls]


def extends(later: ModelCall, earlier: ModelCall) -> bool:
    whole = earlier.prompt_ids + earlier.completion_ids
    return later.prompt_ids[: len(whole)] == whole


async def three_turns(client: Client) -> None:
    for _ in range(3):
        await client.turn()


def test_a_session_is_one_growing_token_sequence() -> None:
    capture = play([call_text("ls"), call_text("pwd", "Now this."), "done"], three_turns)
    first, second, third = capture.calls
    assert labels(capture) == [("agent", "")] * 3
    assert extends(second, first)
    assert extends(third, second)
    assert (capture.tool_calls, capture.ended_by, capture.infra) == (2, "model", "")
    added = third.prompt_ids[len(second.prompt_ids) + len(second.completion_ids) :]
    assert renderer().decode(added) == (
        "\n<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert all(len(call.completion_ids) == len(call.logprobs) for call in capture.calls)


def test_a_non_canonical_tokenisation_is_kept_id_by_id() -> None:
    text = call_text("ls")
    canonical = renderer().encode_turn(text)[:-1]
    letters = [i for character in text for i in renderer().encode_turn(character)[:-1]]
    assert letters != canonical
    assert renderer().decode(letters) == text
    capture = play([ScriptedTurn(ids=(*letters, END)), "done"], lambda client: two_turns(client))
    first, second = capture.calls
    assert first.completion_ids == (*letters, END)
    assert extends(second, first)
    assert second.label is CallLabel.AGENT


async def two_turns(client: Client) -> None:
    await client.turn()
    await client.turn()


def compact_sorted(message: dict[str, Any]) -> None:
    for call in message["tool_calls"]:
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(arguments, sort_keys=True, separators=(",", ":"))


def emptied(message: dict[str, Any]) -> None:
    for call in message["tool_calls"]:
        call["function"]["arguments"] = "{}"


def renamed_invalid(message: dict[str, Any]) -> None:
    message["content"] = ""
    for call in message["tool_calls"]:
        call["function"] = {"name": "invalid", "arguments": '{"error": "no such tool"}'}


def stripped_of_reasoning(message: dict[str, Any]) -> None:
    message.pop("reasoning_content", None)
    message["content"] = f"  {message['content']}\n"


@pytest.mark.parametrize("rewrite", [compact_sorted, emptied, renamed_invalid, stripped_of_reasoning])
def test_rewritten_calls_of_ours_do_not_change_the_prompt(rewrite: Callable[[dict[str, Any]], None]) -> None:
    """What pi, hermes and opencode were seen to do to earlier turns."""

    async def act(client: Client) -> None:
        await client.turn()
        rewrite(client.messages[2])
        await client.turn()
        client.messages[2]["content"] = "rewritten once more"
        await client.turn()

    thought = f"<think>\nhm\n</think>\n\n{call_text('ls -la', 'Look.')}"
    capture = play([thought, call_text("pwd"), "done"], act)
    assert labels(capture) == [("agent", "")] * 3
    assert extends(capture.calls[1], capture.calls[0])
    assert extends(capture.calls[2], capture.calls[1])


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.lists(TEXT, min_size=1, max_size=2), TEXT, TEXT, st.booleans()), min_size=1, max_size=3))
def test_any_rewriting_of_arguments_and_white_space_keeps_the_prefix(
    turns: list[tuple[list[str], str, str, bool]],
) -> None:
    scripts: list[str | ScriptedTurn] = [
        "\n".join(call_text(command) for command in commands) for commands, _, _, _ in turns
    ]

    async def act(client: Client) -> None:
        for _, result, arguments, reverse in turns:
            await client.turn(result)
            answered = max(i for i, sent in enumerate(client.messages) if sent["role"] == "assistant")
            for call in client.messages[answered]["tool_calls"]:
                call["function"]["arguments"] = arguments
            client.messages[answered]["content"] = " \n"
            if reverse:
                client.messages[answered + 1 :] = client.messages[:answered:-1]
        await client.turn()

    capture = play([*scripts, "done"], act)
    assert labels(capture) == [("agent", "")] * len(capture.calls)
    for earlier, later in zip(capture.calls, capture.calls[1:], strict=False):
        assert extends(later, earlier)


def test_a_completion_cut_by_length_is_closed_as_context_and_continued() -> None:
    async def act(client: Client) -> None:
        choice = await client.turn(max_tokens=3)
        assert choice["finish_reason"] == "length"
        client.messages.append({"role": "user", "content": "continue"})
        await client.turn()

    capture = play(["a long answer that is cut", "done"], act)
    first, second = capture.calls
    assert labels(capture) == [("agent", "")] * 2
    assert extends(second, first)
    assert second.prompt_ids[len(first.prompt_ids) + 3] == END


def test_the_same_request_again_is_a_retry_and_either_answer_can_go_on() -> None:
    async def act(client: Client) -> None:
        await client.post()
        await client.turn()
        await client.turn()

    capture = play([call_text("ls"), "done"], act)
    assert labels(capture) == [("agent", ""), ("retry", "same request as call 0"), ("agent", "")]
    first, again, last = capture.calls
    assert first.prompt_ids == again.prompt_ids
    assert extends(last, again)
    assert capture.tool_calls == 2


def test_requests_without_tools_are_auxiliary_whenever_they_come() -> None:
    async def act(client: Client) -> None:
        title = [{"role": "user", "content": "Give a title."}]
        await client.post(messages=title, tools=None)
        await client.turn()
        await client.post(messages=title, tools=[])
        await client.turn()

    capture = play([call_text("ls"), "done"], act)
    assert [label for label, _ in labels(capture)] == ["auxiliary", "agent", "auxiliary", "agent"]
    assert "without tools" in capture.calls[0].cause
    assert capture.ended_by == "model"


def test_a_session_that_never_has_tools_is_the_agent_s() -> None:
    async def act(client: Client) -> None:
        client.tools = []
        await client.turn()
        client.messages.append({"role": "user", "content": "more"})
        await client.turn()

    assert labels(play(["one", "two"], act)) == [("agent", "")] * 2


def system_changed(client: Client) -> None:
    client.messages[0] = {"role": "system", "content": "Another day."}


def tools_changed(client: Client) -> None:
    client.tools = [BASH, {"type": "function", "function": {"name": "more"}}]


def user_changed(client: Client) -> None:
    client.messages[1] = {"role": "user", "content": "go elsewhere"}


def result_changed(client: Client) -> None:
    client.messages[3] = {**client.messages[3], "content": "other"}


def turn_replaced(client: Client) -> None:
    client.messages[4] = {"role": "assistant", "content": "not what was said"}


def trailing_turn(client: Client) -> None:
    client.messages.append({"role": "assistant", "content": "Stop now."})


def compacted(client: Client) -> None:
    client.messages[2:] = [{"role": "user", "content": "Summary of what was done."}]


def answer_left_out(client: Client) -> None:
    client.messages[4:] = [{"role": "user", "content": "forget that"}]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (system_changed, "system changed"),
        (tools_changed, "tools changed"),
        (user_changed, "earlier message changed: message 1"),
        (result_changed, "earlier message changed: message 3"),
        (turn_replaced, "unknown assistant turn at message 4"),
        (trailing_turn, "unknown assistant turn at message 6"),
        (compacted, "history cut"),
        (answer_left_out, "the answer of call 1 was left out"),
    ],
)
def test_what_does_not_continue_the_conversation_is_a_branch_with_its_cause(
    change: Callable[[Client], None], cause: str
) -> None:
    async def act(client: Client) -> None:
        await two_turns(client)
        kept = list(client.messages), list(client.tools)
        change(client)
        await client.turn()
        client.messages, client.tools = kept
        await client.turn()

    script = [call_text(name) for name in ("ls", "pwd", "id", "cat a")]
    capture = play(script, act)
    assert labels(capture)[:3] == [("agent", ""), ("agent", ""), ("branch", cause)]
    assert labels(capture)[3] == ("agent", "")
    assert extends(capture.calls[3], capture.calls[1])


def test_what_follows_a_branch_belongs_to_it() -> None:
    async def act(client: Client) -> None:
        await client.turn()
        system_changed(client)
        await client.turn()
        await client.turn()

    capture = play([call_text("ls"), call_text("pwd"), "done"], act)
    assert labels(capture)[1:] == [("branch", "system changed"), ("branch", "continues the branch of call 1")]
    assert extends(capture.calls[2], capture.calls[1])


def test_an_empty_answer_and_its_empty_echo_go_on() -> None:
    """hermes re-asks with an empty assistant message after a turn that was only reasoning."""

    async def act(client: Client) -> None:
        _, data = await client.post()
        assert data["choices"][0]["message"]["reasoning_content"] == "hm"
        client.messages.append({"role": "assistant", "content": ""})
        await client.turn()

    capture = play(["<think>\nhm\n</think>\n\n", "done"], act)
    assert labels(capture) == [("agent", "")] * 2
    assert extends(capture.calls[1], capture.calls[0])


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (Fault.NAN, "log-prob 0 is nan"),
        (Fault.MISALIGNED, "log-probs for"),
        (Fault.NO_LOGPROBS, "log-probs are missing"),
        (Fault.NONE, "log-prob 0 is 0.5"),
    ],
)
def test_bad_log_probs_cost_the_call_not_the_session(fault: Fault, cause: str) -> None:
    logprobs = (0.5,) * 200 if fault is Fault.NONE else None
    turn = ScriptedTurn(text=call_text("ls"), fault=fault, logprobs=logprobs)
    capture = play([turn, "done"], two_turns)
    spoiled, after = capture.calls
    assert (spoiled.label, after.label) == (CallLabel.UNUSABLE, CallLabel.AGENT)
    assert cause in spoiled.cause
    assert spoiled.logprobs == ()
    assert extends(after, spoiled)
    assert capture.infra == ""


def test_a_bounded_record_goes_on_with_a_conversation_longer_than_it_remembers() -> None:
    record = TokenRecord(renderer(), keep=2)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    completion = tuple(renderer().encode_turn("said"))
    for index in range(6):
        prompt = record.prompt(ChatRequest(tuple(messages), tuple(messages), ()))
        call = new_call(
            index,
            "p",
            prompt,
            completion,
            (-0.1,) * len(completion),
            "stop",
            text="",
            tool_calls=(),
            started=0,
            seconds=0,
        )
        assert record.add(prompt, call, content="said").call.label is CallLabel.AGENT
        assert (prompt.parent is None) == (index == 0)
        messages += [{"role": "assistant", "content": "said"}, {"role": "user", "content": f"more {index}"}]
    assert [call.index for call in record.calls()] == [4, 5]
