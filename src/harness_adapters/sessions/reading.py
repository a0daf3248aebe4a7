"""From a file to a session: the format is found by content, the readers are asked in turn.

Asymmetry: the plain reader comes last, since other formats hold role and content as well. Formats that are known and
not read are refused by name rather than misread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness_adapters.errors import SessionError
from harness_adapters.sessions.claude_code import ClaudeCodeReader
from harness_adapters.sessions.codex import CodexReader
from harness_adapters.sessions.opencode import OpencodeReader
from harness_adapters.sessions.pi import PiReader
from harness_adapters.sessions.plain import HermesReader, PlainReader
from harness_adapters.sessions.session import Reader, Session
from harness_adapters.sessions.source import Source, read_source

READERS: tuple[Reader, ...] = (
    PiReader(),
    ClaudeCodeReader(),
    CodexReader(),
    OpencodeReader(),
    HermesReader(),
    PlainReader(),
)

_READ = "the formats read are pi, claude-code, codex, opencode exports, hermes, and plain chat messages"


def read_session(path: Path) -> Session:
    """Read one session of any known format.

    Raises SessionError, naming file and line, when the file cannot be read, holds no session or more than one, or is
    of a format that is not read.
    """
    return _read(read_source(path))


def _read(source: Source) -> Session:
    refused = _refused(source)
    if refused:
        raise SessionError(f"{source.path}: a session of {refused}, which is not read", _READ)
    reader = next((reader for reader in READERS if reader.recognises(source)), None)
    if reader is None:
        line = f"line {source.records[0][0]}: " if source.records and source.whole is None else ""
        raise SessionError(f"{source.path}: {line}no session of a known format", _READ)
    session = reader.read(source)
    if not session.messages:
        raise SessionError(f"{source.path}: a session of {session.harness} without a single message", _READ)
    return session


def _refused(source: Source) -> str:
    """The name of a format that is known but not read, or ""."""
    whole: Any = source.whole
    if isinstance(whole, dict):
        if "trajectory" in whole or (isinstance(whole.get("history"), list) and "messages" not in whole):
            return "SWE-agent or OpenHands"
        if "projectHash" in whole and "sessionId" in whole:
            return "Gemini CLI"
    for record in source.objects[:5]:
        kind = str(record.get("type", ""))
        if kind.startswith(("session.", "user.message", "assistant.")) and isinstance(record.get("data"), dict):
            return "Copilot CLI"
        if isinstance(record.get("history"), list) and ("instruction" in record or "instance_id" in record):
            return "OpenHands"
    return ""
