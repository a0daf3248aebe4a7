"""Live progress of a long run: one line that says the stage, how far it is, what is seen, and the time left.

On a terminal the line is redrawn in place; elsewhere (a log file, CI) a new line is written every `LOG_SECONDS`.
The time left is the plan's seconds for the work not yet done, scaled by how fast this machine did what is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

LOG_SECONDS = 15.0
REDRAW_SECONDS = 0.25


@dataclass(slots=True)
class _Stage:
    name: str
    planned: float
    total: int = 1
    done: int = 0
    skipped: int = 0
    started: float = 0.0
    spent: float = 0.0


class Progress:
    """Progress over stages whose seconds were planned beforehand (`(name, seconds)` in order)."""

    def __init__(self, plan: Sequence[tuple[str, float]], out: TextIO | None = None) -> None:
        self._stages = {name: _Stage(name, max(seconds, 0.1)) for name, seconds in plan}
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._current: _Stage | None = None
        self._note = ""
        self._drawn = 0.0
        self._width = 0

    def begin(self, stage: str, total: int, skipped: int = 0, *, done: int = 0) -> None:
        """Enter a stage of `total` units, `skipped` of which an earlier process finished.

        The skipped ones are advanced over like the others, or counted as `done` at once; they say nothing about the
        pace.
        """
        self.end()
        self._current = self._stages[stage]
        self._current.total, self._current.done, self._current.skipped = max(total, 1), done, skipped
        self._current.started = time.monotonic()
        self._note = ""
        self._draw(force=True)

    def advance(self, note: str = "", units: int = 1) -> None:
        if self._current is not None:
            self._current.done = min(self._current.done + units, self._current.total)
        self._note = note or self._note
        self._draw()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        self._out.write(text + "\n")
        self._out.flush()

    def end(self) -> None:
        if self._current is not None:
            self._current.spent = time.monotonic() - self._current.started
            self._current.done = self._current.total
            self._current = None
        self._clear()

    def seconds_left(self) -> float:
        """Planned seconds of what is left, at the pace seen so far."""
        planned_done = spent = left = 0.0
        for stage in self._stages.values():
            share = stage.done / stage.total
            left += stage.planned * (1 - share)
            worked = stage.planned * max(stage.done - stage.skipped, 0) / stage.total
            elapsed = time.monotonic() - stage.started if stage is self._current else stage.spent
            if worked > 0:
                planned_done += worked
                spent += elapsed
        pace = spent / planned_done if planned_done > 5 and spent > 5 else 1.0
        return left * min(max(pace, 0.2), 10.0)

    def _draw(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._current is None or (not force and now - self._drawn < (REDRAW_SECONDS if self._live else LOG_SECONDS)):
            return
        self._drawn = now
        stage = self._current
        number = list(self._stages).index(stage.name) + 1
        line = f"[{number}/{len(self._stages)}] {stage.name} {stage.done}/{stage.total}"
        line += f" · {self._note}" if self._note else ""
        line += f" · about {_duration(self.seconds_left())} left"
        if self._live:
            self._out.write("\r" + line.ljust(self._width)[:200])
            self._width = len(line)
        else:
            self._out.write(line + "\n")
        self._out.flush()

    def _clear(self) -> None:
        if self._live and self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._width = 0


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
