"""What a caller asks of one gateway session, and what it gets back when the session closes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_adapters.config import SamplingConfig
from harness_adapters.errors import ConfigError
from harness_adapters.records import BASE_POLICY, ModelCall, ToolMap

if TYPE_CHECKING:
    from harness_adapters.guard import GuardPolicy


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """One session: who answers, within which limits, judged by which rules.

    `deadline` is in `time.monotonic()` seconds (infinity: none); `context` is prompt and completion together, in
    tokens. `seed` makes sampling repeatable: every call's seed is derived from it. Without `guard` nothing is held
    back. `on_block` is `stop`: a blocked call ends the session with a notice.
    """

    id: str
    policy: str
    tool_map: ToolMap
    sampling: SamplingConfig
    max_model_calls: int
    deadline: float
    guard: GuardPolicy | None
    allow_base: bool = False
    seed: int | None = None
    context: int = 8192
    on_block: str = "stop"

    def check(self) -> None:
        """Raises ConfigError for what must not, or cannot yet, be served."""
        if not self.policy:
            raise ConfigError(f"session {self.id}: no policy is named", "name an adapter version")
        if self.policy == BASE_POLICY and not self.allow_base:
            raise ConfigError(
                f"session {self.id} would be answered by the base model",
                "name an adapter version, or set allow_base where the base is meant",
            )
        if self.on_block == "retry":
            raise ConfigError(f"session {self.id}: on_block 'retry' is not there yet", "use on_block = 'stop'")
        if self.on_block != "stop":
            raise ConfigError(f"session {self.id}: unknown on_block {self.on_block!r}", "use on_block = 'stop'")
        if self.max_model_calls < 1 or self.context < 2:
            raise ConfigError(f"session {self.id}: no model call fits its limits", "raise max_model_calls or context")


@dataclass(frozen=True, slots=True)
class SessionCapture:
    """What a session left. `tool_calls` counts all the model made, blocked and parallel ones included.

    `ended_by` is `model` (a turn without tool calls), `calls`, `deadline`, `context`, `blocked`, or empty where the
    harness just stopped asking. A non-empty `infra` says which failure of ours or the engine's makes it worthless.
    """

    calls: tuple[ModelCall, ...]
    tool_calls: int
    ended_by: str
    infra: str
