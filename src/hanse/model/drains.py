"""Nodes that an operator closed to new work: which, why, by whom, since and until when."""

from typing import Final

import msgspec

from hanse.model.ids import Instant

REASON_CHARACTERS_MAX: Final = 200
DRAINS_REPORTED_MAX: Final = 64
"""Drains that a beat names; the others are known at the cluster's own door only."""
DRAINED_NODES_REPORTED_MAX: Final = 1_024
"""Nodes that a beat lists, over all its drains."""


class Drain(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Some nodes that take no new work. Times are of the warden's own clock."""

    nodes: tuple[int, ...]
    """By number, rising; none: the whole cluster."""
    requested_by: str = ""
    """Who asked for it; empty: not recorded."""
    reason: str = ""
    """In the operator's words; empty: none was given."""
    at: Instant = 0
    """Since when; 0: not recorded."""
    until: Instant = 0
    """When the nodes open by themselves; 0: only when somebody opens them."""


def reason_problem(text: str) -> str | None:
    """What is wrong with a reason, as a clause; None: nothing."""
    if len(text) > REASON_CHARACTERS_MAX:
        return f"a reason has at most {REASON_CHARACTERS_MAX} characters"
    if not text.isprintable():
        return "a reason is one line of printable characters"
    return None
