"""Messages between the machines.

An ``Envelope`` carries one body: *sequenced* (delivered once, in order, by ``core.messaging.link``) or *soft*
(a later one repeats or replaces it). Tasks travel in batches: columns for a group of equal tasks. The records
are in modules by concept; this package exports all of them.
"""

import msgspec

from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.ids import ShardId
from hanse.model.messages.attempts import (
    AckEnds,
    AttemptEnd,
    CancelAttempts,
    Outcome,
    ResourceUsage,
    TaskUpdates,
)
from hanse.model.messages.claims import Claim, ClaimReply, RefusalReason, RefusedTask, TaskBatch
from hanse.model.messages.cluster_state import ClusterDelta, ClusterSnapshot, Delta, RequestSnapshot
from hanse.model.messages.demand import Demand, DemandLine, NodePreference, Offer, QueueKey
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.messages.failover import (
    AbortTakeover,
    OwnershipReply,
    OwnershipTransferred,
    RegisterStandby,
    Replica,
    ReplicateJobs,
    ReplicaUpdate,
    RequestTakeover,
)
from hanse.model.messages.gossip import Gossip, MemberStatus
from hanse.model.messages.group_layout import GroupLayout, TaskPlace
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.model.messages.job_watch import JobEnded, WatchJobs
from hanse.model.messages.runners import (
    OpenSession,
    Rejoin,
    RunnerHeartbeat,
    RunnerLease,
    RunnerOrders,
    RunnerReport,
    StartTask,
    StopTask,
    WithheldCapacity,
)
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased
from hanse.model.messages.task_shape import Shape, TaskTemplate
from hanse.model.messages.warden_heartbeat import HeartbeatReply, WardenHeartbeat

__all__ = [
    "AbortTakeover",
    "Ack",
    "AckEnds",
    "AttemptEnd",
    "CancelAttempts",
    "Claim",
    "ClaimReply",
    "CloseShard",
    "CloseShardReply",
    "ClusterDelta",
    "ClusterSnapshot",
    "Delta",
    "Demand",
    "DemandLine",
    "DropReplicas",
    "DuplicateQuery",
    "DuplicateReply",
    "DurationStatsUpdate",
    "Envelope",
    "Gossip",
    "GroupLayout",
    "HeartbeatReply",
    "HistoryQuery",
    "HistoryReply",
    "JobEnded",
    "MemberStatus",
    "Message",
    "NodePreference",
    "Offer",
    "OpenSession",
    "Outcome",
    "OwnershipReleased",
    "OwnershipReply",
    "OwnershipTransferred",
    "QueueKey",
    "RefusalReason",
    "RefusedTask",
    "RegisterStandby",
    "Rejoin",
    "Replica",
    "ReplicaUpdate",
    "ReplicateJobs",
    "RequestSnapshot",
    "RequestTakeover",
    "ResourceUsage",
    "RunnerHeartbeat",
    "RunnerLease",
    "RunnerOrders",
    "RunnerReport",
    "SequencedMessage",
    "Shape",
    "ShardId",
    "SoftMessage",
    "StartTask",
    "StopTask",
    "TaskBatch",
    "TaskPlace",
    "TaskTemplate",
    "TaskUpdates",
    "WardenHeartbeat",
    "WatchJobs",
    "WithheldCapacity",
]


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ack"):
    """Empty body: the envelope says how far the sender has received."""


SequencedMessage = (
    Claim
    | Demand
    | CancelAttempts
    | AckEnds
    | RegisterStandby
    | RequestTakeover
    | AbortTakeover
    | ClaimReply
    | TaskUpdates
    | OwnershipReply
    | ReplicateJobs
    | ReplicaUpdate
    | OwnershipTransferred
    | WatchJobs
    | JobEnded
    | RunnerOrders
    | RunnerReport
    | CloseShard
    | CloseShardReply
    | OwnershipReleased
    | DropReplicas
    | DuplicateQuery
    | DuplicateReply
)
SoftMessage = (
    OpenSession
    | RunnerHeartbeat
    | RunnerLease
    | Rejoin
    | WardenHeartbeat
    | HeartbeatReply
    | RequestSnapshot
    | ClusterSnapshot
    | ClusterDelta
    | Gossip
    | Ack
    | DurationStatsUpdate
    | HistoryQuery
    | HistoryReply
)
Message = SequencedMessage | SoftMessage


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Message with its addresses and numbers."""

    source: str
    target: str
    session: int
    seq: int
    """Number of a sequenced message; for a soft one minus that of the last sequenced one before it."""
    ack: int
    """Highest sequence number received in order from ``target`` in this session."""
    body: Message
