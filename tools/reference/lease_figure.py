"""Figure of the leases over time, with the default times of a league."""

from typing import Final, NamedTuple

from hanse.core.warden.runner_sessions import lease_span
from hanse.league.config import LIVE_TIMINGS
from hanse.model.ids import SECOND

WIDTH: Final = 860
FONT: Final = 'font-family="Helvetica, Arial, sans-serif" font-size="13"'
TITLE: Final = "Leases over time after the network between a broker and a cluster is cut"
AXIS: Final = "seconds after the last heartbeat that was answered (default times)"
LEFT: Final = 250
"""Position of time 0, in pixels."""
SCALE: Final = 12.0
"""Pixels per second."""
ROW: Final = 44
TOP: Final = 64


class Bar(NamedTuple):
    """One row of the figure; times in seconds."""

    label: str
    begin: float
    end: float
    colour: str
    inside: str


class Moment(NamedTuple):
    """One vertical line of the figure; time in seconds."""

    at: float
    text: str


def figure() -> str:
    """The figure as SVG."""
    timings = LIVE_TIMINGS
    cluster, runner = timings.cluster_lease / SECOND, timings.runner_lease / SECOND
    cluster_span = lease_span(timings.cluster_lease, timings.lease_grace) / SECOND
    runner_span = lease_span(timings.runner_lease, timings.lease_grace) / SECOND
    wait = cluster_span + runner_span
    bars = (
        Bar("warden: lease of the shard", 0, cluster, "#dcfce7", f"cluster_lease {cluster:g} s"),
        Bar("runner: its last lease", cluster, cluster + runner, "#fef9c3", f"{runner:g} s"),
        Bar("broker: waits for the shard's lease", 0, cluster_span, "#dbeafe", f"{cluster_span:g} s"),
        Bar("broker: waits for the runner's lease", cluster_span, wait, "#dbeafe", f"{runner_span:g} s"),
    )
    moments = (
        Moment(0, "last heartbeat is answered"),
        Moment(cluster, "warden stops movable attempts"),
        Moment(cluster + runner, "watchdogs end the rest"),
        Moment(wait, "broker starts them elsewhere"),
    )
    return "\n".join(_lines(bars, moments))


def _lines(bars: tuple[Bar, ...], moments: tuple[Moment, ...]) -> list[str]:
    bottom = TOP + len(bars) * ROW
    height = bottom + 24 + 20 * len(moments)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f"  <title>{TITLE}</title>",
        f'  <rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 28, "start", "#111827", AXIS),
    ]
    for row, bar in enumerate(bars):
        y = TOP + row * ROW
        x, width = _position(bar.begin), (bar.end - bar.begin) * SCALE
        lines += [
            _text(LEFT - 12, y + 19, "end", "#111827", bar.label),
            f'  <rect x="{x:g}" y="{y}" width="{width:g}" height="28" fill="{bar.colour}" stroke="#1e3a5f"/>',
            _text(x + width / 2, y + 19, "middle", "#111827", bar.inside),
        ]
    for number, moment in enumerate(moments):
        x, y = _position(moment.at), bottom + 16 + 20 * number
        is_late = moment.at * SCALE > (WIDTH - LEFT) / 2
        anchor, shift = ("end", -6) if is_late else ("start", 6)
        lines += [
            f'  <path d="M{x:g} {TOP - 8} L{x:g} {y + 4}" stroke="#b91c1c" stroke-dasharray="4 3"/>',
            _text(x, TOP - 14, "middle", "#b91c1c", f"{moment.at:g}"),
            _text(x + shift, y, anchor, "#b91c1c", moment.text),
        ]
    return [*lines, "</svg>"]


def _position(seconds: float) -> float:
    return LEFT + seconds * SCALE


def _text(x: float, y: float, anchor: str, colour: str, text: str) -> str:
    return f'  <text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
