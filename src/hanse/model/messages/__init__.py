"""Messages between the machines.

An ``Envelope`` carries one body: *sequenced* (delivered once, in order, by ``core.messaging.link``) or *soft*
(a later one repeats or replaces it). Tasks travel in batches: columns for a group of equal tasks.
"""

from enum import StrEnum

import msgspec

from hanse.model.constraints import Constraint, Value
from hanse.model.drains import Drain
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.ids import ClusterId, Instant, JobId, TaskId
from hanse.model.job import Affinity, JobSpec, Proximity, UnreachablePolicy
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased
from hanse.model.resources import Dimensions, Resources, Vector

QueueKey = tuple[int, ...]
"""Position in the queue: smaller is served first. Built by a queue order, compared without it."""
ShardId = str
"""Id of the jobs that a broker has accepted, as one unit of takeover: ``broker#generation``."""


class Shape(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """Properties that decide where a task fits. Tasks of one shape are interchangeable to a warden."""

    ask: Resources
    ask_max: Resources | None = None
    where: Constraint | None = None
    affinity: tuple[Affinity, ...] = ()
    labels: tuple[str, ...] = ()  # the job's own labels, which affinities of others name
    latency: bool = False
    gang: int = 0  # number of tasks that must start together; 0: each alone
    priority: int = 0
    preemptible: bool = False
    clusters_allowed: tuple[str, ...] = ()
    clusters_forbidden: tuple[str, ...] = ()

    @property
    def max_per_node(self) -> int:
        """Number of these that one node may hold: 1 if they keep apart from their own label, else 0: any."""
        return int(any(wish.apart and wish.label in self.labels for wish in self.affinity))

    @property
    def is_single_per_cluster(self) -> bool:
        """True if a whole cluster may hold only one of these."""
        return any(
            w.apart and w.proximity is Proximity.CLUSTER and w.label in self.labels for w in self.affinity
        )

    def allows_cluster(self, cluster: str) -> bool:
        """True if the job's own rules let it run in this cluster."""
        allowed = self.clusters_allowed
        return cluster not in self.clusters_forbidden and (not allowed or cluster in allowed)


class TaskTemplate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Facts that a warden needs to run a group's tasks; all batches of the group share one object."""

    shape: Shape
    shard: ShardId
    payload: bytes = b""
    grace: int = 0
    unreachable: UnreachablePolicy = UnreachablePolicy.MOVE
    duration: int | None = None


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


class DemandLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Waiting tasks of one broker and shape: the best key, and the count (a gang counts as one)."""

    line: int  # the broker's own number for this shape; offers repeat it
    shape: Shape
    key: QueueKey
    count: int
    hold: bool = False  # the warden may keep freed room back for this line until all of it fits


class RefusalReason(StrEnum):
    """Reason of a refusal. Waiting may cure the first group, but not the second."""

    NO_ROOM = "no_room"
    STALE_ROUND = "stale_round"
    FENCED = "fenced"
    BUSY = "busy"
    HELD = "held"  # an earlier attempt of the task still holds room there
    CLOSED = "closed"
    NEVER_FITS = "never_fits"


class Outcome(StrEnum):
    """Result of one attempt of a task."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    LOST = "lost"
    """Its node vanished, or its watchdog ended it: not the task's fault."""
    UNSTARTED = "unstarted"
    """Its runner had no lease to start it under, or no room on its disk: it never ran."""


class RefusedTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Task that a warden refused, and the reason."""

    task: TaskId
    attempt: int
    reason: RefusalReason


class ResourceUsage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of an attempt, as its backend measured it; 0: not measured."""

    cpu: int = 0
    """Microseconds of CPU time."""
    memory: int = 0
    """Peak memory in bytes."""
    run_time: int = 0  # microseconds from its start to its end


class AttemptEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """End of an attempt."""

    task: TaskId
    attempt: int
    outcome: Outcome
    exit_code: int = 0  # exit code, or minus the signal number
    usage: ResourceUsage | None = None
    note: str = ""
    """Remark of the backend in a few words: out of memory, no such program."""


WithheldCapacity = tuple[int, Resources]
"""Node, and the amount of it that is not for the league: others use it, or it is closed from outside."""


class Delta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Final states of the nodes that changed between two versions of a cluster: idempotent, gaps show."""

    cluster: ClusterId
    epoch: int
    since: int
    version: int
    nodes: tuple[int, ...]
    free: tuple[Vector, ...]
    """Room on offer on each of those nodes; nothing while it is down, draining or held."""


# --- broker to warden, sequenced -------------------------------------------------------------------------


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


class Demand(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="demand"):
    """Whole demand of a broker; replaces its earlier demand."""

    lines: tuple[DemandLine, ...]


class CancelAttempts(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancel"):
    """Order to end these attempts if they exist; their ends are reported as usual."""

    tasks: tuple[TaskId, ...]
    attempts: tuple[int, ...]


class AckEnds(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="settle"):
    """Acknowledgement of ends that are safe with the broker and its standby; the warden may forget them."""

    tasks: tuple[TaskId, ...]
    attempts: tuple[int, ...]


class RegisterStandby(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="register"):
    """Registration of a shard by its owner, with the peer that may take it over."""

    shard: ShardId
    term: int
    standby: str
    is_accepted_elsewhere: bool = False
    """Another warden has accepted this term, so no takeover of an older one can complete."""


class RequestTakeover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="adopt"):
    """Request of the standby to take a shard over; it acts only when every warden has agreed."""

    shard: ShardId
    owner: str
    """Owner to be replaced: a warden with another owner refuses."""
    term: int
    takeover_id: int  # number of the attempt; the reply repeats it


class AbortTakeover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="return"):
    """Abort of a takeover by the standby: the owner lives, or another warden refused."""

    shard: ShardId
    term: int
    takeover_id: int


# --- warden to broker, sequenced -------------------------------------------------------------------------


class ClaimReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="answer"):
    """Result of a claim. Tasks not listed were accepted as proposed."""

    number: int
    substituted: tuple[tuple[TaskId, int], ...]
    refused: tuple[RefusedTask, ...]
    delta: Delta | None = None


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


class TaskUpdates(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="news"):
    """Starts and ends of a broker's tasks, and room granted to those that wait."""

    started: tuple[tuple[TaskId, int, int], ...]  # task, attempt, node
    ended: tuple[AttemptEnd, ...]
    offers: tuple[Offer, ...] = ()
    """Grants, in the order they were made."""


class OwnershipReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="estate"):
    """Reply of a warden to a registration, takeover or abort, with the owner that it has now."""

    shard: ShardId
    term: int
    owner: str
    accepted: bool
    takeover_id: int = 0  # of the request; 0: a registration or an abort
    running: tuple[tuple[TaskId, int], ...] = ()
    """Attempts of the shard that run here, with an accepted takeover."""
    ended: tuple[AttemptEnd, ...] = ()
    """Ends that were not acknowledged yet, with an accepted takeover."""
    refusal: RefusalReason | None = None  # refused without a look: closed, or too many shards


# --- broker to broker, sequenced -------------------------------------------------------------------------


class Replica(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Job as its owner's standby keeps it."""

    job: JobId
    spec: JobSpec
    age: int  # microseconds since it was accepted: clocks differ, ages do not
    ends: tuple[tuple[int, int, int], ...]  # terminal tasks: index, state, and the attempt that made it so
    cancelled: bool = False
    ends_to_follow: int = 0  # ends that follow as updates and complete the copy


class ReplicateJobs(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="replicate"):
    """Copies of jobs for the standby; the submitter is answered when the standby has them."""

    shard: ShardId
    term: int
    jobs: tuple[Replica, ...]
    more_follow: bool = False  # other jobs of this term follow: the copy is partial


class ReplicaUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="progress"):
    """Tasks that reached a terminal state, cancelled jobs, and jobs that may be forgotten."""

    shard: ShardId
    ends: tuple[tuple[TaskId, int, int], ...]  # task, its terminal state, the attempt that made it so
    cancelled: tuple[JobId, ...] = ()
    forget: tuple[JobId, ...] = ()
    end_runs: tuple[tuple[TaskId, int, int, int], ...] = ()  # with the count of neighbours that ended alike
    columns: tuple[
        tuple[TaskId, bytes, bytes], ...
    ] = ()  # other ends: see ``core.broker.failover.end_columns``


class OwnershipTransferred(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="taken"):
    """Message to the former owner: its shard, with these jobs, now belongs to the sender."""

    shard: ShardId
    jobs: tuple[JobId, ...]
    term: int = 0  # of the sender


class WatchJobs(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="watch"):
    """Request to be told when these jobs end."""

    round: int
    jobs: tuple[JobId, ...]


class JobEnded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="watched"):
    """End of a job that was asked about; -1: unknown here, in reply to that round of asking only."""

    round: int
    job: JobId
    state: int


# --- warden and runner, sequenced within one session -----------------------------------------------------


class StartTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Order to run an attempt on a node."""

    task: TaskId
    attempt: int
    node: int
    size: Resources
    shard: ShardId
    unreachable: UnreachablePolicy
    payload: bytes


class StopTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Order to signal an attempt to save its work, and to end it after ``grace`` microseconds."""

    task: TaskId
    attempt: int
    grace: int


class RunnerOrders(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="orders"):
    """Orders of a warden to a runner."""

    echo: Instant
    """Runner's latest heartbeat that the warden has handled; renews the lease as ``RunnerLease`` does."""
    starts: tuple[StartTask, ...] = ()
    stops: tuple[StopTask, ...] = ()
    forget: tuple[tuple[TaskId, int], ...] = ()  # ends that the warden has on record


class RunnerReport(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="report"):
    """Report of a runner to its warden, also with the nodes that have a new withheld amount."""

    started: tuple[tuple[TaskId, int], ...]
    ended: tuple[AttemptEnd, ...]
    withheld: tuple[WithheldCapacity, ...] = ()


# --- soft ------------------------------------------------------------------------------------------------


class OpenSession(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="hello"):
    """Opening of a runner's session: running attempts, ends not forgotten, withheld amounts. Repeated."""

    session: int
    sent_at: Instant
    nodes: tuple[int, ...]
    running: tuple[tuple[TaskId, int], ...]
    ended: tuple[AttemptEnd, ...]
    withheld: tuple[WithheldCapacity, ...] = ()


class RunnerHeartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="runner_beat"):
    """Request of a runner to renew its lease, which counts from ``sent_at``, on the runner's clock."""

    session: int
    sent_at: Instant


class RunnerLease(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="runner_lease"):
    """Renewal by the warden, except for the tasks of lapsed shards."""

    session: int
    echo: Instant
    lapsed: tuple[ShardId, ...]


class Rejoin(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="rejoin"):
    """Demand to open a new session: the warden gave this runner up, or never knew it."""

    session: int


class WardenHeartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="beat"):
    """Sign of life of a warden, and its request to renew its leases from this broker."""

    cluster: ClusterId
    epoch: int
    sent_at: Instant
    version: int
    rounds: tuple[tuple[ShardId, int], ...]
    """Lease round of each shard that this broker owns according to the warden."""
    drains: tuple[Drain, ...] = ()


class HeartbeatReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="beat_reply"):
    """Renewal by the broker; the lease counts from ``echo``, on the warden's clock."""

    echo: Instant
    shards: tuple[ShardId, ...]


class RequestSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sync"):
    """Request for the whole state: the broker's view has a gap."""

    cluster: ClusterId


class ClusterSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="snapshot"):
    """Whole state of a cluster as its warden offers it."""

    cluster: ClusterId
    epoch: int
    version: int
    dimensions: Dimensions
    capacity: tuple[Vector, ...]
    attributes: tuple[tuple[tuple[str, Value], ...], ...]
    reserve: tuple[int, ...]
    """Nodes kept for latency work."""
    partitions: tuple[str, ...]
    """Brokers, each preferring an equal contiguous share of the nodes, in this order."""
    free: tuple[Vector, ...]


class ClusterDelta(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="change"):
    """Delta as a message of its own."""

    delta: Delta


class MemberStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Status of one broker in gossip: its heartbeat rises as long as it lives."""

    name: str
    epoch: int
    beat: int
    version: int = 0  # of the league file that it uses


class Gossip(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="gossip"):
    """Members of the league as the sender knows them."""

    members: tuple[MemberStatus, ...]


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
