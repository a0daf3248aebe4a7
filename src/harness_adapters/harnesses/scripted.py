"""The smallest harness there is, shipped for tests: a Python script with one shell tool and a plain loop.

It runs `scripted_agent.py` on the sandbox's own `python3`, talks chat completions like any harness, and starts in
milliseconds. It is no agent anyone uses, so nothing may be trained for it: whoever trains refuses its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from harness_adapters.harnesses.protocol import HOME, HarnessExit, Launch
from harness_adapters.records import Effect, ToolMap

_CONFIG = f"{HOME}/.scripted"
_SCRIPT = Path(__file__).with_name("scripted_agent.py")

REQUEST_FAILED = 3
"""Exit status of the script when a model request failed, as against dying of something else."""

TOOL_MAP = ToolMap("scripted", {"shell": (Effect("shell", {"command": "command"}),)})


class Scripted:
    """The scripted harness as a `Harness`; nothing to install, nothing to mount."""

    name = "scripted"
    version = "1"
    tool_map = TOOL_MAP
    port = 8792

    def install(self, cache: Path, say: Callable[[str], None]) -> None:
        say("the scripted harness needs no installation")

    def mounts(self) -> tuple[tuple[Path, str], ...]:
        return ()

    def files(self, *, base_url: str, alias: str, context: int, max_tokens: int) -> Mapping[str, bytes]:
        settings = {"base_url": base_url, "model": alias, "context": context, "max_tokens": max_tokens}
        return {f"{_CONFIG}/config.json": json.dumps(settings).encode(), f"{_CONFIG}/agent.py": _SCRIPT.read_bytes()}

    def launch(self, instruction: str, *, session_id: str, alias: str) -> Launch:
        argv = ("python3", "-I", f"{_CONFIG}/agent.py", f"{_CONFIG}/config.json")
        return Launch(argv, stdin=instruction.encode())

    def read_exit(self, result_stdout: bytes, result_stderr: bytes, returncode: int | None) -> HarnessExit:
        if returncode == 0:
            return HarnessExit(True)
        last = result_stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit status {returncode}"]
        return HarnessExit(False, last[0][:300], crashed=returncode != REQUEST_FAILED)
