"""Where each harness keeps its sessions in a home folder, unless a person moved it by an environment variable.

opencode and hermes keep them in databases (`opencode.db`, `state.db`) and export them on demand; the folder is named
all the same, since older versions wrote files there and exports are often kept beside them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_DEFAULTS = {
    "pi": (".pi/agent/sessions",),
    "claude-code": (".claude/projects",),
    "codex": (".codex/sessions", ".codex/archived_sessions"),
    "opencode": (".local/share/opencode",),
    "hermes": (".hermes/sessions", ".hermes"),
}
_MOVED = {
    "pi": (("PI_CODING_AGENT_SESSION_DIR", "."), ("PI_CODING_AGENT_DIR", "sessions")),
    "claude-code": (("CLAUDE_CONFIG_DIR", "projects"),),
    "codex": (("CODEX_HOME", "sessions"),),
    "opencode": (("XDG_DATA_HOME", "opencode"),),
    "hermes": (("HERMES_HOME", "sessions"),),
}

_NO_SESSION = frozenset({"auth.json", "models.json", "settings.json", "config.json", "sessions-index.json"})


def known_folders(home: Path, environ: Mapping[str, str] | None = None) -> dict[str, list[Path]]:
    """Harness -> folders that may hold its sessions, existing or not; those named by the environment come first."""
    environ = os.environ if environ is None else environ
    folders = {}
    for harness, defaults in _DEFAULTS.items():
        moved = [Path(environ[name]) / inside for name, inside in _MOVED[harness] if environ.get(name)]
        folders[harness] = list(dict.fromkeys([*moved, *(home / relative for relative in defaults)]))
    return folders


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A file in a harness's folder: size in bytes, Unix time of its last change, whether to be exported first."""

    path: Path
    harness: str
    size: int
    modified: float
    database: bool


def find_sessions(home: Path, environ: Mapping[str, str] | None = None) -> list[FoundSession]:
    """Session files and session databases of a person, the newest first. Nothing is opened."""
    found: dict[Path, FoundSession] = {}
    for harness, folders in known_folders(home, environ).items():
        for folder in folders:
            for path in _files(harness, folder):
                stat = path.stat()
                entry = FoundSession(path, harness, stat.st_size, stat.st_mtime, path.suffix == ".db")
                found.setdefault(path.resolve(), entry)
    return sorted(found.values(), key=lambda entry: -entry.modified)


def _files(harness: str, folder: Path) -> list[Path]:
    """Databases at the top; sessions below, but in the two folders that hold much else only at the top."""
    patterns = ["*.db", "*.jsonl"] if folder.name in ("opencode", ".hermes") else ["**/*.jsonl", "**/*.json"]
    if harness == "opencode":
        patterns.append("*.json")
    return sorted(p for pattern in patterns for p in folder.glob(pattern) if p.is_file() and p.name not in _NO_SESSION)
