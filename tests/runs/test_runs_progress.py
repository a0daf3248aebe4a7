"""Progress lines: stage, count, note and a time left that follows the pace seen."""

from __future__ import annotations

import io

import pytest

from harness_adapters.runs import progress as progress_module
from harness_adapters.runs.progress import Progress


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress_module.time, "monotonic", lambda: self.now)


def test_the_time_left_follows_the_pace_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    progress = Progress([("a", 100), ("b", 100)], io.StringIO())
    assert progress.seconds_left() == pytest.approx(200)
    progress.begin("a", 10)
    clock.now = 100.0
    progress.advance(units=5)
    assert progress.seconds_left() == pytest.approx(2 * 150)


def test_work_an_earlier_process_did_does_not_count_as_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    progress = Progress([("a", 100)], io.StringIO())
    progress.begin("a", 10, skipped=8)
    progress.advance(units=8)
    clock.now = 10.0
    progress.advance()
    assert progress.seconds_left() == pytest.approx(10.0)


def test_a_log_gets_whole_lines_not_more_often_than_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    out = io.StringIO()
    progress = Progress([("a", 100)], out)
    progress.begin("a", 100)
    for second in range(60):
        clock.now = float(second)
        progress.advance(f"solved {second}")
    lines = out.getvalue().splitlines()
    assert 4 <= len(lines) <= 6
    assert lines[0].startswith("[1/1] a 0/100")
    assert "left" in lines[-1]
    assert "\r" not in out.getvalue()
