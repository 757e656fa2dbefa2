"""Validators of the layouts that travel with a warden's orders."""

from typing import Final

from hanse.live.rpc.field_validators import JOB_MAX, JOB_MIN, are_within, is_name
from hanse.model.ids import TASKS_PER_JOB_MAX
from hanse.model.messages import GroupLayout
from hanse.policy.node_columns import NODES_MAX

HOST_CHARACTERS_MAX: Final = 255
"""Length of a host name."""
PORT_MAX: Final = 65_535


def is_host(text: str) -> bool:
    """True if this can be a host name or an address in a list of hosts."""
    return 0 < len(text) <= HOST_CHARACTERS_MAX and text.isascii() and text.isprintable() and not (
        set(text) & set(" ,[]=")
    )  # fmt: skip


def layouts_problem(entries: tuple[GroupLayout, ...], starts: int) -> str | None:
    """Check the layouts for a number of starts: no group twice, and ranks and places that belong together."""
    if len(entries) > starts or len({(entry.job, entry.first) for entry in entries}) != len(entries):
        return "more layouts than starts, or one twice"
    for entry in entries:
        if not (
            JOB_MIN <= entry.job <= JOB_MAX
            and entry.first >= 0 < entry.count <= TASKS_PER_JOB_MAX - entry.first
            and is_name(entry.group)
            and 0 <= entry.port <= PORT_MAX
        ):
            return "a layout out of range"
        problem = _ranks_problem(entry)
        if problem is not None:
            return problem
    return None


def _ranks_problem(entry: GroupLayout) -> str | None:
    """Check that a gang's ranks are tasks of its group, each once, and that every rank has a place."""
    ranks = entry.ranks
    if ranks and not (
        are_within(ranks, entry.first, entry.first + entry.count - 1) and len(set(ranks)) == len(ranks)
    ):
        return "a rank that the group does not have, or one twice"
    if not entry.runs:
        return "ranks without places" if ranks else None
    size = len(ranks) or entry.count
    if len(entry.runs) > size or sum([count for _, _, count in entry.runs]) != size:
        return "other places than ranks"
    for node, host, count in entry.runs:
        if not (0 <= node < NODES_MAX and count >= 1 and is_host(host)):
            return "an invalid node or host of a rank"
    return None
