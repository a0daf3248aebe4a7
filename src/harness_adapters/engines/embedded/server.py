"""The HTTP face of the embedded engine: vLLM's routes and shapes, as far as this project uses them.

`POST /v1/completions` (token-id prompts), `GET /v1/models`, `GET /health`, `POST /v1/load_lora_adapter`,
`POST /v1/unload_lora_adapter`. Errors are `{"error": {"message", "type", "code"}}`: 400 for a body or adapter that
cannot be used, 404 for an unknown model, 500 for the engine's own failure.

Asymmetry: a field this server does not know is refused, not ignored: a sampling option that silently did nothing would
make the returned log-probs wrong. A client that goes away cancels its request.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_adapters.engines.embedded.requests import MIN_TEMPERATURE, Answer, Generation
from harness_adapters.errors import EngineError

log = logging.getLogger(__name__)

MAX_BODY = 16 << 20

TokenId = Annotated[int, Field(ge=0, strict=True)]


class TokenServer(Protocol):
    """What this file serves over HTTP: the embedded engine, seen from its routes."""

    model_dir: Path

    @property
    def vocabulary(self) -> int: ...

    @property
    def positions(self) -> int: ...

    @property
    def healthy(self) -> bool: ...

    def models(self) -> list[str]: ...

    def submit(self, name: str, request: Generation) -> Future[Answer]: ...

    def load_adapter(self, name: str, folder: Path) -> None: ...

    def unload_adapter(self, name: str) -> None: ...


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CompletionBody(_Body):
    """The body of `POST /v1/completions`; bounds of `seed` are those of torch's generators."""

    model: str
    prompt: list[TokenId] = Field(min_length=1)
    max_tokens: int = Field(16, ge=1, strict=True)
    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=-(1 << 63), lt=1 << 63, strict=True)
    stop_token_ids: list[TokenId] = []
    logprobs: Literal[0] | None = None
    prompt_logprobs: Literal[0] | None = None
    return_token_ids: bool = False


class LoadBody(_Body):
    lora_name: str = Field(min_length=1)
    lora_path: str = Field(min_length=1)


class UnloadBody(_Body):
    lora_name: str = Field(min_length=1)


class _Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@asynccontextmanager
async def listen(engine: TokenServer, host: str, port: int) -> AsyncIterator[str]:
    """Serve `engine` while the context is open; yields the URL. Raises EngineError when the port cannot be had."""
    runner = web.AppRunner(_application(engine), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise EngineError(
                f"cannot listen on {host}:{port}: {error.strerror}", "choose another port, or 0 for any free one"
            ) from None
        bound = runner.addresses[0][1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"
    finally:
        await runner.cleanup()


def _application(engine: TokenServer) -> web.Application:
    routes = _Routes(engine)
    app = web.Application(middlewares=[_errors], client_max_size=MAX_BODY)
    app.router.add_get("/health", routes.health)
    app.router.add_get("/v1/models", routes.models)
    app.router.add_post("/v1/completions", routes.completions)
    app.router.add_post("/v1/load_lora_adapter", routes.load)
    app.router.add_post("/v1/unload_lora_adapter", routes.unload)
    return app


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except _Refusal as refusal:
        return _error(refusal.status, str(refusal))
    except web.HTTPException as error:
        return _error(error.status, error.reason)
    return response


class _Routes:
    def __init__(self, engine: TokenServer) -> None:
        self._engine = engine
        self._tokenizer = _open_tokenizer(engine.model_dir)

    async def health(self, _: web.Request) -> web.Response:
        if not self._engine.healthy:
            raise _Refusal(500, "the engine's thread is not running")
        return web.Response()

    async def models(self, _: web.Request) -> web.Response:
        cards = [
            {"id": name, "object": "model", "owned_by": "harness-adapters", "max_model_len": self._engine.positions}
            for name in self._engine.models()
        ]
        return _json({"object": "list", "data": cards})

    async def completions(self, request: web.Request) -> web.Response:
        body = await _read(request, CompletionBody)
        generation = self._generation(body)
        try:
            future = self._engine.submit(body.model, generation)
        except KeyError:
            raise _Refusal(404, f"the model {body.model!r} does not exist") from None
        except EngineError as error:
            raise _Refusal(400 if self._engine.healthy else 500, str(error)) from None
        try:
            answer = await asyncio.wrap_future(future)
        except EngineError as error:
            raise _Refusal(500, str(error)) from None
        return _json(self._completion(body, answer))

    async def load(self, request: web.Request) -> web.Response:
        body = await _read(request, LoadBody)
        try:
            await asyncio.to_thread(self._engine.load_adapter, body.lora_name, Path(body.lora_path))
        except EngineError as error:
            raise _Refusal(400, str(error)) from None
        return web.Response(text=f"Success: LoRA adapter {body.lora_name!r} added.")

    async def unload(self, request: web.Request) -> web.Response:
        body = await _read(request, UnloadBody)
        try:
            self._engine.unload_adapter(body.lora_name)
        except KeyError:
            raise _Refusal(404, f"the adapter {body.lora_name!r} is not loaded") from None
        except EngineError as error:
            raise _Refusal(400, str(error)) from None
        return web.Response(text=f"Success: LoRA adapter {body.lora_name!r} removed.")

    def _generation(self, body: CompletionBody) -> Generation:
        if 0 < body.temperature < MIN_TEMPERATURE:
            raise _Refusal(400, f"temperature must be 0 (greedy) or at least {MIN_TEMPERATURE}")
        beyond = max(*body.prompt, *body.stop_token_ids, 0)
        if beyond >= self._engine.vocabulary:
            raise _Refusal(400, f"token id {beyond} is outside the vocabulary of {self._engine.vocabulary}")
        return Generation(
            prompt=tuple(body.prompt),
            max_tokens=body.max_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            seed=body.seed,
            stop=frozenset(body.stop_token_ids),
            prompt_logprobs=body.prompt_logprobs is not None,
        )

    def _completion(self, body: CompletionBody, answer: Answer) -> dict[str, Any]:
        text = self._tokenizer.decode(list(answer.token_ids)) if self._tokenizer is not None else ""
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": answer.finish_reason}
        if body.return_token_ids:
            choice["token_ids"] = answer.token_ids
        if body.logprobs is not None:
            names = [f"token_id:{token}" for token in answer.token_ids]
            choice["logprobs"] = {"token_logprobs": answer.logprobs, "tokens": names}
        if answer.prompt_logprobs is not None:
            choice["prompt_logprobs"] = _prompt_logprobs(body.prompt, answer.prompt_logprobs)
        sent, got = len(body.prompt), len(answer.token_ids)
        usage = {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got}
        return {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": body.model,
            "choices": [choice],
            "usage": usage | {"prompt_tokens_details": {"cached_tokens": answer.cached_tokens}},
        }


def _prompt_logprobs(prompt: list[int], values: tuple[float | None, ...]) -> list[dict[str, Any] | None]:
    pairs = zip(prompt, values, strict=True)
    return [None if value is None else {str(token): {"logprob": value}} for token, value in pairs]


async def _read(request: web.Request, kind: type[Any]) -> Any:
    try:
        data = orjson.loads(await request.read())
        return kind.model_validate(data)
    except orjson.JSONDecodeError as error:
        raise _Refusal(400, f"the body is not JSON: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise _Refusal(400, f"{place}: {first['msg']}") from None


def _open_tokenizer(model_dir: Path) -> Any:
    """The folder's tokenizer for the `text` of answers, or None: a model of bare tokens is served with empty text."""
    path = model_dir / "tokenizer.json"
    if not path.is_file():
        return None
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def _json(data: Mapping[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(data), content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    kind = {400: "BadRequestError", 404: "NotFoundError"}.get(status, "InternalServerError")
    body = {"error": {"message": message, "type": kind, "code": status}}
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")
