"""What the gateway's tests share: a trained tokenizer, an engine with scripts, a client that acts as a harness."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness_adapters.config import SamplingConfig
from harness_adapters.engines.scripted import ScriptedEngine, ScriptedTurn
from harness_adapters.gateway import Gateway, GatewaySession, SessionSpec
from harness_adapters.gateway.renderers.chatml import ChatMLRenderer
from harness_adapters.records import Effect, ToolMap

POLICY = "run-pi-v1"
BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
TOOLS = ToolMap("pi", {"bash": (Effect("shell", {"command": "command"}),)})
_SENTENCES = [
    "The assistant calls the tool and the user reads the answer in the file.",
    'Write a name and the arguments: {"name": "bash", "arguments": {"command": "ls -la /workspace"}}.',
    "hello hello the theme of this other thing is that there is nothing else",
]


@functools.cache
def tokenizer() -> Tokenizer:
    """Byte-level BPE over a few sentences, with ChatML's special tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(_SENTENCES * 4, trainer)
    return made


@functools.cache
def renderer() -> ChatMLRenderer:
    return ChatMLRenderer(tokenizer())


def call_text(command: str, content: str = "", name: str = "bash") -> str:
    """An assistant turn with one tool call, as a model writes it."""
    block = "<tool_call>\n" + json.dumps({"name": name, "arguments": {"command": command}}) + "\n</tool_call>"
    return f"{content}\n{block}" if content else block


def spec(**changes: Any) -> SessionSpec:
    values: dict[str, Any] = {
        "id": "s1",
        "policy": POLICY,
        "tool_map": TOOLS,
        "sampling": SamplingConfig(max_tokens=1000),
        "max_model_calls": 30,
        "deadline": time.monotonic() + 60,
        "guard": None,
    }
    return SessionSpec(**{**values, **changes})


@dataclass
class Client:
    """A harness on one session: keeps a history, sends it whole, and appends what comes back."""

    http: aiohttp.ClientSession
    url: str
    session: GatewaySession
    engine: ScriptedEngine
    gateway: Gateway
    messages: list[dict[str, Any]] = field(
        default_factory=lambda: [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]
    )
    tools: list[Mapping[str, Any]] = field(default_factory=lambda: [BASH])

    async def post(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        body = {"model": "any", "messages": self.messages, "tools": self.tools, **fields}
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body) as response:
            return response.status, await response.json()

    async def raw_stream(self, **fields: Any) -> bytes:
        body = {"model": "any", "messages": self.messages, "tools": self.tools, "stream": True, **fields}
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body) as response:
            return await response.read()

    async def turn(self, result: str = "ok", **fields: Any) -> dict[str, Any]:
        """One answered request; its message and a result for each of its calls join the history."""
        status, data = await self.post(**fields)
        assert status == 200, data
        message = data["choices"][0]["message"]
        self.messages.append(message)
        for call in message.get("tool_calls", ()):
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return dict(data["choices"][0])


@contextlib.asynccontextmanager
async def playing(
    turns: Sequence[str | ScriptedTurn], *, heartbeat: float = 5.0, verdict_log: Any = None, **changes: Any
) -> AsyncIterator[Client]:
    """A client on a fresh session in front of an engine that plays `turns`; `changes` go to the session's spec."""
    engine = ScriptedEngine(tokenizer())
    engine.add(POLICY, turns)
    async with (
        engine.serve() as engine_url,
        Gateway(engine_url, renderer(), verdict_log=verdict_log, heartbeat=heartbeat) as gateway,
        aiohttp.ClientSession() as http,
    ):
        session = gateway.open(spec(**changes))
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await session.attach(listener)
        yield Client(http, f"http://127.0.0.1:{port}", session, engine, gateway)
        await session.close()
