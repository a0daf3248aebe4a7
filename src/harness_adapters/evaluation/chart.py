"""A small line chart as inline SVG, coloured by the page's CSS (`.line`, `.grid`, `.dot`); no script, no font files.

Invariant: every text and number in the markup is escaped or formatted here, so the result is safe to place in HTML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 320, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 44, 28, 24


@dataclass(frozen=True, slots=True)
class Series:
    """One measure by step. `top` fixes the upper end of the axis; without it the largest value sets it."""

    title: str
    steps: Sequence[int]
    values: Sequence[float]
    percent: bool = False
    top: float | None = None


def line_chart(series: Series) -> str:
    """An SVG element of 320 by 170 user units, the last value written at the line's end; empty without values.

    The axis starts at 0, or at the lowest value where that is negative. Raises ValueError for a value not finite.
    """
    if not series.values:
        return ""
    if not all(map(math.isfinite, series.values)):
        raise ValueError(f"a value of {series.title!r} is not finite")
    bottom = min(0.0, *series.values)
    top = series.top if series.top is not None else _nice_top(max(series.values))
    places = [
        (_x(step, series.steps), _y(value, bottom, top))
        for step, value in zip(series.steps, series.values, strict=True)
    ]
    dots = "".join(
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        f"<title>step {step}: {_show(value, series)}</title></circle>"
        for (x, y), step, value in zip(places, series.steps, series.values, strict=True)
    )
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    last_x, last_y = places[-1]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(series.title)} by training step">'
        f'<text class="chart-title" x="0" y="14">{escape(series.title)}</text>'
        f"{_grid(series, bottom, top)}{_step_labels(series.steps)}"
        f'<polyline class="line" points="{path}"/>{dots}'
        f'<text class="value" x="{last_x + 8:.1f}" y="{last_y + 4:.1f}">{_show(series.values[-1], series)}</text></svg>'
    )


def _grid(series: Series, bottom: float, top: float) -> str:
    lines = []
    for value in (bottom, (bottom + top) / 2, top):
        y = _y(value, bottom, top)
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_show(value, series)}</text>'
        )
    return "".join(lines)


def _step_labels(steps: Sequence[int]) -> str:
    shown = sorted({steps[0], steps[-1]})
    return "".join(
        f'<text class="tick" x="{_x(step, steps):.1f}" y="{_HEIGHT - 6}" text-anchor="middle">step {step}</text>'
        for step in shown
    )


def _x(step: int, steps: Sequence[int]) -> float:
    span = steps[-1] - steps[0]
    inner = _WIDTH - _LEFT - _RIGHT
    return _LEFT + inner * ((step - steps[0]) / span if span else 0.5)


def _y(value: float, bottom: float, top: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (value - bottom) / (top - bottom))


def _nice_top(value: float) -> float:
    """The smallest of 1, 2, 4, 5, 10 times a power of ten that is not below `value`; 1 for nothing positive."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 5, 10) if factor * power >= value * (1 - 1e-9))


def _show(value: float, series: Series) -> str:
    return f"{100 * value:.0f} %" if series.percent else f"{value:.2f}".rstrip("0").rstrip(".")
