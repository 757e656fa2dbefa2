"""Validator of the drains in a heartbeat."""

from hanse.live.rpc.field_validators import NUMBER_MAX, are_within, is_name
from hanse.model.drains import DRAINED_NODES_REPORTED_MAX, DRAINS_REPORTED_MAX, Drain, reason_problem


def drains_problem(drains: tuple[Drain, ...]) -> str | None:
    """Return the problem of drains, in a few words; None: none."""
    if not drains:
        return None
    if (
        len(drains) > DRAINS_REPORTED_MAX
        or sum(len(drain.nodes) for drain in drains) > DRAINED_NODES_REPORTED_MAX
    ):
        return "too many drains"
    for drain in drains:
        if not are_within((*drain.nodes, drain.at, drain.until), 0, NUMBER_MAX):
            return "a drain out of range"
        if (drain.requested_by and not is_name(drain.requested_by)) or reason_problem(
            drain.reason
        ) is not None:
            return "a drain with an invalid text"
    return None
