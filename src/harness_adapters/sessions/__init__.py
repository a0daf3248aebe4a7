"""Readers of recorded sessions, one file per format, and the one shape they all give."""

from harness_adapters.sessions.folders import FoundSession, find_sessions, known_folders
from harness_adapters.sessions.reading import READERS, read_session
from harness_adapters.sessions.session import Reader, Session
from harness_adapters.sessions.source import Source, read_source

__all__ = [
    "READERS",
    "FoundSession",
    "Reader",
    "Session",
    "Source",
    "find_sessions",
    "known_folders",
    "read_session",
    "read_source",
]
