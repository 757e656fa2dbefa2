"""Drains in the form for people: reason, operator, start and end, in wall time."""

from datetime import UTC, datetime

import msgspec

from hanse.model.drains import Drain
from hanse.model.ids import SECOND, Instant


class DrainFacts(msgspec.Struct, frozen=True):
    """Nodes that an operator closed to new work. Times are unix microseconds."""

    nodes: tuple[int, ...] = ()
    """Node numbers; none: the whole cluster."""
    by: str = ""
    """The operator; empty: not recorded."""
    reason: str = ""
    """The operator's words; empty: none were given."""
    since: int | None = None
    """None: not recorded."""
    until: int | None = None
    """End of the drain; None: it lasts until somebody ends it."""

    def text(self) -> str:
        """Return the known facts in brackets, after a space; empty: no fact is known."""
        parts = [
            self.reason,
            f"by {self.by}" if self.by else "",
            f"since {_moment(self.since)}" if self.since is not None else "",
            f"until {_moment(self.until)}" if self.until is not None else "",
        ]
        details = ", ".join(part for part in parts if part)
        return f" ({details})" if details else ""


def drain_facts(drains: "tuple[Drain, ...] | list[Drain]", now: Instant, wall: int) -> tuple[DrainFacts, ...]:
    """Return a warden's drains by the wall clock; ``wall`` is the wall time at its instant ``now``."""
    return tuple(
        DrainFacts(
            drain.nodes,
            drain.requested_by,
            drain.reason,
            wall - (now - drain.at) if drain.at else None,
            wall + (drain.until - now) if drain.until else None,
        )
        for drain in drains
    )


def _moment(wall: int) -> str:
    return f"{datetime.fromtimestamp(wall // SECOND, UTC):%Y-%m-%d %H:%M} UTC"
