"""Demand of a broker at a warden, and offers of room kept for it."""

import msgspec

from hanse.model.messages.task_shape import Shape

QueueKey = tuple[int, ...]
"""Position in the queue: smaller is served first. Built by a queue order, compared without it."""


class NodePreference(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Estimates of one kind of work on the node classes of one cluster, and the worst that is acceptable now.

    Classes are numbered as in ``policy.node_classes``. A warden that counts other classes than the broker
    does not use the preference.
    """

    costs: tuple[int, ...]
    """Milliseconds from the start to the end of a task on each node class, with the transfer of its data."""
    limit: int
    """Classes that cost more are not acceptable; 0: all are."""


class DemandLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Waiting tasks of one broker and shape: the best key, and the count (a gang counts as one)."""

    line: int  # the broker's own number for this shape; offers repeat it
    shape: Shape
    key: QueueKey
    count: int
    hold: bool = False  # the warden may keep freed room back for this line until all of it fits
    preference: NodePreference | None = None
    """Estimates by node class; None: all nodes are alike."""


class Demand(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="demand"):
    """Whole demand of a broker; replaces its earlier demand."""

    lines: tuple[DemandLine, ...]


class Offer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Room kept for a broker under a lease: bind it or give it back."""

    lease: int
    line: int
    nodes: tuple[int, ...]
    score: int = 0
    """Fit of the task here, in thousandths: ``Pr(task | cluster)``."""
    prior: int = 0
    """Probability that this cluster serves it well, in thousandths: ``Pr(cluster)``."""
    rival_key: QueueKey = ()
    """Best key of another broker that could use it; empty: no other broker could."""
