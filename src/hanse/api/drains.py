"""Drains as people are told of them: why, by whom, since and until when, in wall time."""

from datetime import UTC, datetime

import msgspec

from hanse.model.drains import Drain
from hanse.model.ids import SECOND, Instant


class DrainFacts(msgspec.Struct, frozen=True):
    """Nodes that an operator closed to new work. Times are unix microseconds."""

    nodes: tuple[int, ...] = ()
    """By number; none: the whole cluster."""
    by: str = ""
    """Who asked for it; empty: not recorded."""
    reason: str = ""
    """In the operator's words; empty: none was given."""
    since: int | None = None
    """None: not recorded."""
    until: int | None = None
    """When they open by themselves; None: when somebody opens them."""

    def text(self) -> str:
        """What is known of it, in brackets, with a space before; empty: nothing is."""
        parts = [
            self.reason,
            f"by {self.by}" if self.by else "",
            f"since {_moment(self.since)}" if self.since is not None else "",
            f"until {_moment(self.until)}" if self.until is not None else "",
        ]
        told = ", ".join(part for part in parts if part)
        return f" ({told})" if told else ""


def drain_facts(drains: "tuple[Drain, ...] | list[Drain]", now: Instant, wall: int) -> tuple[DrainFacts, ...]:
    """A warden's drains by the wall clock: ``wall`` is what it shows at the warden's instant ``now``."""
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
