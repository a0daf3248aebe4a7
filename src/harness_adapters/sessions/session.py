"""One recorded session, whatever harness wrote it, and the protocol of the readers that make it.

Invariants
- `messages` are in chat-completions form: `role` and `content`; an assistant's calls as `tool_calls` with the
  arguments as JSON text; results as role `tool` with `tool_call_id`. Order is that of the conversation.
- Text only: reasoning is left out, images stand as `[image]`.
- What a harness wrote in the user's name (summaries of compacted history, reminders, file contents it pasted) is
  left out: a user message is the user's own. The exception is codex, which marks none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from harness_adapters.sessions.source import Source


@dataclass(frozen=True, slots=True)
class Session:
    """A session as read.

    `declared` are the names of the tools the session says it had or, where it does not say, of those it used;
    `unreadable_lines` counts lines or entries that were damaged and left out. `cwd` is "" where it is not recorded.
    """

    id: str
    harness: str
    cwd: str
    messages: tuple[dict[str, Any], ...]
    declared: frozenset[str]
    unreadable_lines: int


class Reader(Protocol):
    """Reads one format."""

    harness: str

    def recognises(self, source: Source) -> bool:
        """Whether the content, not the file's name, is of this format."""
        ...

    def read(self, source: Source) -> Session:
        """The session. May leave `messages` empty; never raises for damaged entries but counts them."""
        ...
