"""Drains: nodes that an operator has closed to new work, with reason, requester, start and end."""

from typing import Final

import msgspec

from hanse.model.ids import Instant

REASON_CHARACTERS_MAX: Final = 200
DRAINS_REPORTED_MAX: Final = 64
"""Drains in a heartbeat; only the cluster's own API shows the others."""
DRAINED_NODES_REPORTED_MAX: Final = 1_024
"""Nodes in a heartbeat, over all its drains."""


class Drain(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Nodes that take no new work. Times are of the warden's own clock."""

    nodes: tuple[int, ...]
    """Node numbers, rising; none: the whole cluster."""
    requested_by: str = ""
    """Requester of the drain; empty: not recorded."""
    reason: str = ""
    """Words of the operator; empty: none were given."""
    at: Instant = 0
    """Start of the drain; 0: not recorded."""
    until: Instant = 0
    """Time at which the nodes open automatically; 0: only when an operator opens them."""


def reason_problem(text: str) -> str | None:
    """Return what is wrong with a reason, as a clause; None: nothing."""
    if len(text) > REASON_CHARACTERS_MAX:
        return f"a reason has at most {REASON_CHARACTERS_MAX} characters"
    if not text.isprintable():
        return "a reason is one line of printable characters"
    return None
