"""Line plots as inline SVG: no library, no script, readable without colour (dashes differ)."""

import math
from html import escape
from typing import Final

import msgspec
import numpy as np

from hanse.sim.replay.metrics import Floats

WIDTH: Final = 760
HEIGHT: Final = 340
LEFT: Final = 64
RIGHT: Final = 130
TOP: Final = 30
BOTTOM: Final = 44
COLOURS: Final = (
    "#1b6ca8", "#c8553d", "#2e8b57", "#8e5ea2", "#b8860b", "#20808d",
    "#a23b72", "#5c677d", "#6a994e", "#343a40",
)  # fmt: skip
DASHES: Final = ("", "6 3", "2 2", "8 3 2 3")
CDF_POINTS: Final = 240


class Line(msgspec.Struct, frozen=True, eq=False):
    """One line of a plot."""

    name: str
    x: Floats
    y: Floats


class Axis(msgspec.Struct, frozen=True):
    """Scale from values to positions."""

    title: str
    low: float
    high: float
    logarithmic: bool = False

    def relative_position(self, values: Floats) -> Floats:
        """Return the relative positions of values between the two ends, 0 to 1."""
        if self.logarithmic:
            low, high = math.log10(self.low), math.log10(self.high)
            placed: Floats = (np.log10(np.maximum(values, self.low)) - low) / (high - low)
        else:
            placed = (values - self.low) / (self.high - self.low)
        return np.clip(placed, 0, 1)

    def ticks(self) -> list[float]:
        """Return round values for tick marks."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = max(1, (last - first) // 8)
            return [10.0**power for power in range(first, last + 1, step)]
        rough = (self.high - self.low) / 5
        scale = 10.0 ** math.floor(math.log10(rough))
        step_size = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= rough)
        first = math.ceil(self.low / step_size)
        return [step_size * index for index in range(first, int(self.high / step_size + 1e-9) + 1)]


def distribution(name: str, values: Floats, floor: float) -> Line:
    """Return the share of sorted values at or below each of several points; values under ``floor`` are drawn
    there."""
    if not len(values):
        return Line(name, np.zeros(0), np.zeros(0))
    top = max(float(values[-1]), floor * 1.001)
    points = np.geomspace(floor, top, CDF_POINTS)
    return Line(name, points, np.searchsorted(values, points * (1 + 1e-12), side="right") / len(values))


def plot(title: str, lines: list[Line], horizontal: Axis, vertical: Axis) -> str:
    """Return the plot as an SVG element."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{LEFT}" y="18" class="title">{escape(title)}</text>',
    ]
    parts += _frame(horizontal, vertical)
    for index, line in enumerate(lines):
        parts += _line(line, index, horizontal, vertical)
    parts.append("</svg>")
    return "\n".join(parts)


def _position_x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _position_y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _frame(horizontal: Axis, vertical: Axis) -> list[str]:
    bottom, right = _position_y(0), _position_x(1)
    parts = [f'<path class="axis" d="M{LEFT} {TOP} V{bottom:.1f} H{right:.1f}"/>']
    for value, share in _marks(horizontal):
        x = _position_x(share)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP} V{bottom:.1f}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{value:g}</text>')
    for value, share in _marks(vertical):
        y = _position_y(share)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f} H{right:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = (LEFT + right) / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(horizontal.title)}</text>'
    )
    height = (TOP + bottom) / 2
    parts.append(
        f'<text x="14" y="{height:.1f}" transform="rotate(-90 14 {height:.1f})" text-anchor="middle">'
        f"{escape(vertical.title)}</text>"
    )
    return parts


def _marks(axis: Axis) -> list[tuple[float, float]]:
    ticks = axis.ticks()
    return list(zip(ticks, axis.relative_position(np.asarray(ticks, np.float64)).tolist(), strict=True))


def _line(line: Line, index: int, horizontal: Axis, vertical: Axis) -> list[str]:
    if not len(line.x):
        return []
    colour = COLOURS[index % len(COLOURS)]
    dash = DASHES[index % len(DASHES)]
    xs, ys = horizontal.relative_position(line.x), vertical.relative_position(line.y)
    points = " ".join(
        f"{_position_x(x):.1f},{_position_y(y):.1f}" for x, y in zip(xs.tolist(), ys.tolist(), strict=True)
    )
    legend = TOP + 12 + 16 * index
    x = WIDTH - RIGHT + 10
    return [
        f'<polyline stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dash}" points="{points}"/>',
        f'<path stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}" d="M{x} {legend - 4} h16"/>',
        f'<text x="{x + 20}" y="{legend}">{escape(line.name)}</text>',
    ]
