"""Records of a warden's ledger: attempts and leases, which hold room, and compiled shapes."""

from typing import Final

import msgspec

from hanse.core.search_cache import NO_CHECKPOINT
from hanse.model.ids import TaskId
from hanse.model.messages import Shape, TaskTemplate
from hanse.model.resources import Resources, Vector
from hanse.policy.node_columns import MaskWords, is_empty

ORDERED: Final = 0
"""State after the order to the runner, before its report of the start."""
RUNNING: Final = 1
STOPPING: Final = 2


class AttemptRecord(msgspec.Struct, gc=False, rename={"template": "brief"}):
    """Attempt that holds room."""

    task: TaskId
    attempt: int
    node: int
    size: Resources
    amount: Vector
    """Size in the cluster's column order."""
    template: TaskTemplate
    state: int
    since: int
    """Time of the order, then of the start."""
    stop: str = ""
    """Reason of the stop: ``cancel``, ``preempt`` or ``lapse``; empty: none."""
    port: int = 0
    """Port of the gang of which this is rank 0; 0: it is not."""


class Lease(msgspec.Struct, gc=False):
    """Room granted and not yet bound: one slot of ``shape`` per listed node."""

    number: int
    broker: str
    line: int
    nodes: list[int]
    shape: Shape
    until: int


class CompiledShape:
    """Shape compiled for this cluster."""

    __slots__ = (
        "ask",
        "can_ever_fit",
        "dynamic",
        "failed_at",
        "latency",
        "mask",
        "max_per_node",
        "open_mask",
        "open_nodes",
        "serial",
        "static_mask",
    )

    def __init__(self, shape: Shape, ask: Vector | None, static: MaskWords) -> None:
        self.ask = ask
        """Ask in column order; None if it cannot run here."""
        self.static_mask = static
        """Nodes that could hold one task when empty: attributes and capacity."""
        self.dynamic = ask is not None and bool(shape.affinity or shape.labels)
        """True if the places of other jobs matter (affinity)."""
        self.max_per_node = shape.max_per_node
        self.latency = shape.latency
        self.can_ever_fit = ask is not None and not is_empty(static)
        self.mask = static
        self.open_mask = static
        self.open_nodes: MaskWords | None = None
        """Open nodes from which ``open_mask`` was computed."""
        self.serial = -1
        self.failed_at = NO_CHECKPOINT
        """Checkpoint of the ledger's gains at which the last search in ``mask`` found too little room."""
