"""Claims of a broker at a warden, and the reply."""

from enum import StrEnum

import msgspec

from hanse.model.ids import Instant, JobId, ShardId, TaskId
from hanse.model.messages.cluster_state import Delta
from hanse.model.messages.demand import DemandLine, NodePreference
from hanse.model.messages.task_shape import TaskTemplate
from hanse.model.resources import Resources


class TaskBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tasks of one group for one warden: proposed nodes (fast path) or a bound lease (slow path)."""

    job: JobId
    group: int
    template: TaskTemplate
    tasks: tuple[int, ...]  # indices in the job
    attempts: tuple[int, ...]
    nodes: tuple[int, ...]
    """Proposed node of each task; -1 leaves it to the warden."""
    size: Resources
    """Amount for each task: the ask, or more for elastic work."""
    lease: int = 0  # the grant that this batch binds, or 0
    preference: NodePreference | None = None
    """Estimates by which a warden chooses substitutes; None: all nodes are alike."""


class RefusalReason(StrEnum):
    """Reason of a refusal. Waiting may cure the first group, but not the second."""

    NO_ROOM = "no_room"
    STALE_ROUND = "stale_round"
    FENCED = "fenced"
    BUSY = "busy"
    HELD = "held"  # an earlier attempt of the task still holds room there
    CLOSED = "closed"
    NEVER_FITS = "never_fits"


class RefusedTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Task that a warden refused, and the reason."""

    task: TaskId
    attempt: int
    reason: RefusalReason


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="claim"):
    """Batch of placements and of bindings of granted leases, and leases given back."""

    number: int
    rounds: tuple[tuple[ShardId, int], ...]
    """Lease round of each shard in the batches; a warden refuses claims of an earlier one."""
    echo: Instant
    """Latest heartbeat of this warden that the broker has handled: the claim renews as a reply would."""
    batches: tuple[TaskBatch, ...]
    releases: tuple[int, ...] = ()  # leases that the broker has no use for
    demand: tuple[DemandLine, ...] | None = None
    """Current demand of the sender, if it differs from what the warden has."""
    acked_ends: tuple[tuple[TaskId, int], ...] = ()  # ends that are safe, as in ``AckEnds``


class ClaimReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="answer"):
    """Result of a claim. Tasks not listed were accepted as proposed."""

    number: int
    substituted: tuple[tuple[TaskId, int], ...]
    refused: tuple[RefusedTask, ...]
    delta: Delta | None = None
