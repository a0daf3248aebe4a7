"""Serve a base model and one adapter to a person's own harness, with the guard in front."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness_adapters.config import RunConfig, SamplingConfig, load_config
from harness_adapters.errors import ConfigError
from harness_adapters.guard import GuardPolicy
from harness_adapters.records import BASE_POLICY
from harness_adapters.runs.directory import CONFIG
from harness_adapters.runs.invocation import command
from harness_adapters.storage import cache_root, explained

ADAPTER_NAME = "adapter"
VERDICT_LOG = "guard.jsonl"
"""In the cache folder; `safeagents replay` reads it."""
NO_DEADLINE_S = 10 * 365 * 86_400.0


def find_adapter(path: Path, *, needed: bool = True) -> tuple[Path, RunConfig]:
    """The adapter folder and the configuration behind a run directory or a bare PEFT folder.

    Raises ConfigError when there is none, or where it is `needed` and not finished.
    """
    if (path / "adapter_config.json").is_file():
        return path, RunConfig()
    if (path / CONFIG).is_file():
        if needed and not (path / "adapter" / "adapter_config.json").is_file():
            raise ConfigError(
                f"{path} has no finished adapter", f"resume it first: {command('demo', '--resume', path)}"
            )
        return path / "adapter", load_config(path / CONFIG)
    raise ConfigError(f"{path} is neither a run directory nor a PEFT adapter folder", "look under runs/")


def serve(path: Path, *, model: str, host: str, port: int, base_only: bool, policy: Mapping[str, Any]) -> int:
    """Serve until Ctrl-C, under the guard's `policy` (pack `user` unless it names one).

    Raises ConfigError for a policy that cannot be used, EngineError when the port is taken or the adapter does not fit
    the model.
    """
    guard = GuardPolicy.from_mapping({"pack": "user", **policy})
    adapter, config = find_adapter(path, needed=not base_only)
    if model:
        config = config.model_copy(update={"model": config.model.model_copy(update={"path": model})})
    try:
        asyncio.run(_serve(adapter.absolute(), config, host, port, base_only, guard))
    except KeyboardInterrupt:
        print("stopped")
    return 0


async def _serve(adapter: Path, config: RunConfig, host: str, port: int, base_only: bool, guard: GuardPolicy) -> None:
    from harness_adapters.gateway import ALIAS, SessionSpec
    from harness_adapters.gateway.gateway import bind
    from harness_adapters.harnesses import get_harness
    from harness_adapters.runs.stack import open_stack, prepare_model

    bind(host, port).close()  # a port in use is found out before a model is loaded for nothing
    print(f"loading {'the base model' if base_only else adapter} …", flush=True)
    harness = get_harness(config.harness)
    model_dir = prepare_model(config, print)
    policy = BASE_POLICY if base_only else ADAPTER_NAME

    def session(session_id: str) -> SessionSpec:
        return SessionSpec(
            id=session_id,
            policy=policy,
            tool_map=harness.tool_map,
            sampling=SamplingConfig(
                temperature=config.sampling.temperature, top_p=config.sampling.top_p, max_tokens=1024
            ),
            max_model_calls=1_000_000,
            deadline=time.monotonic() + NO_DEADLINE_S,
            guard=guard,
            allow_base=base_only,
        )

    log = cache_root() / VERDICT_LOG
    with explained(f"cannot write {log}"):
        log.parent.mkdir(parents=True, exist_ok=True)
        verdicts = log.open("a", encoding="utf-8")

    def log_verdict(entry: Mapping[str, Any]) -> None:
        if entry.get("kind") == "verdict":
            told = f"guard: {entry['decision']} {entry['tool']} by {entry['rule']}: {entry['reason']}"
            print(told.encode("utf-8", "backslashreplace").decode(), flush=True)
            with explained(f"cannot write {log}"):
                verdicts.write(json.dumps(entry, default=str) + "\n")
                verdicts.flush()

    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.callback(verdicts.close)
        stack = await cleanup.enter_async_context(open_stack(config, model_dir, harness, log_verdict))
        if not base_only:
            await stack.client.load_adapter(ADAPTER_NAME, adapter)
        url = await cleanup.enter_async_context(stack.gateway.serve(host, port, session))
        print(f"serving {'the base model' if base_only else adapter} at {url}/v1 (Ctrl-C stops it)")
        print(f"calls that the guard does not simply allow are written to {log}")
        print(_pi_settings(url, ALIAS))
        await asyncio.Event().wait()


def _pi_settings(url: str, alias: str) -> str:
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "compat": {"supportsDeveloperRole": False, "supportsStore": False, "maxTokensField": "max_tokens"},
        "models": [{"id": alias, "contextWindow": 8192, "maxTokens": 1024, "reasoning": False, "input": ["text"]}],
    }
    text = json.dumps({"providers": {"harness-adapters": provider}}, indent=1)
    return f"put this into ~/.pi/agent/models.json, then: pi --model harness-adapters/{alias}\n{text}"
