"""Harnesses: one file each, behind the protocol in `protocol.py`. `get_harness` is the only place that lists them."""

from __future__ import annotations

from harness_adapters.errors import ConfigError
from harness_adapters.harnesses import claude_code, codex, hermes, opencode, pi, scripted
from harness_adapters.harnesses.pi import Pi
from harness_adapters.harnesses.protocol import Harness, HarnessExit, Launch
from harness_adapters.harnesses.scripted import Scripted
from harness_adapters.records import ToolMap

__all__ = ["HARNESSES", "TOOL_MAPS", "Harness", "HarnessExit", "Launch", "get_harness"]

HARNESSES = ("pi",)
"""The harnesses an adapter can be trained for; `scripted` exists besides them, for tests."""

TOOL_MAPS: dict[str, ToolMap] = {
    module.TOOL_MAP.harness: module.TOOL_MAP for module in (pi, opencode, hermes, claude_code, codex, scripted)
}
"""What the tools of each known harness do, by the harness's name."""


def get_harness(name: str) -> Harness:
    """The harness called `name`. Raises ConfigError naming the known ones."""
    if name == "pi":
        return Pi()
    if name == "scripted":
        return Scripted()
    raise ConfigError(f"no harness {name!r}", f"known harnesses: {', '.join(HARNESSES)}")
