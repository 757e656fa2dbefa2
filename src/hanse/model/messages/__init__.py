"""What the machines say to each other.

Every message travels in an ``Envelope``. Bodies are *sequenced* (delivered once, in order, by
``core.messaging.link``) or *soft* (a later one repeats or replaces them). Tasks travel in lots: columns for a
group of equal tasks."""

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
"""A place in the queue: smaller is served first. Built by a queue order, compared without knowing it."""
ShardId = str
"""A broker's accepted jobs, as one thing that a peer can adopt: ``broker#generation``."""


class Shape(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """All that decides where a task fits. Tasks of one shape are interchangeable to a warden."""

    ask: Resources
    ask_max: Resources | None = None
    where: Constraint | None = None
    affinity: tuple[Affinity, ...] = ()
    labels: tuple[str, ...] = ()  # the job's own: others may want to be near them or away from them
    latency: bool = False
    gang: int = 0  # number of tasks that must start together; 0: each for itself
    priority: int = 0
    preemptible: bool = False
    clusters_allowed: tuple[str, ...] = ()
    clusters_forbidden: tuple[str, ...] = ()

    @property
    def max_per_node(self) -> int:
        """How many of these one node may hold: 1 if they keep apart from their own label, else 0: any."""
        return int(any(wish.apart and wish.label in self.labels for wish in self.affinity))

    @property
    def is_single_per_cluster(self) -> bool:
        """Whether a whole cluster may hold only one of these."""
        return any(
            w.apart and w.proximity is Proximity.CLUSTER and w.label in self.labels for w in self.affinity
        )

    def allows_cluster(self, cluster: str) -> bool:
        """Whether the job's own rules let it run in this cluster."""
        allowed = self.clusters_allowed
        return cluster not in self.clusters_forbidden and (not allowed or cluster in allowed)


class TaskTemplate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a warden must know of a group to run its tasks; one object shared by all lots of the group."""

    shape: Shape
    shard: ShardId
    payload: bytes = b""
    grace: int = 0
    unreachable: UnreachablePolicy = UnreachablePolicy.MOVE
    duration: int | None = None


class TaskBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Some tasks of one group for one warden: proposed nodes (fast path) or a bound lease (slow path)."""

    job: JobId
    group: int
    template: TaskTemplate
    tasks: tuple[int, ...]  # indices in the job
    attempts: tuple[int, ...]
    nodes: tuple[int, ...]
    """The node each task is proposed for; -1 leaves it to the warden."""
    size: Resources
    """What each task gets: the ask, or more for elastic work."""
    lease: int = 0  # the grant that this lot binds, or 0


class DemandLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A broker's waiting tasks of one shape: the best key among them, and how many (gangs count as one)."""

    line: int  # the broker's own number for this shape; offers repeat it
    shape: Shape
    key: QueueKey
    count: int
    hold: bool = False  # the warden may keep freed room back for this line until all of it fits


class RefusalReason(StrEnum):
    """Why something was not done. The first group may be cured by waiting; the second may not."""

    NO_ROOM = "no_room"
    STALE_ROUND = "stale_round"
    FENCED = "fenced"
    BUSY = "busy"
    HELD = "held"  # an earlier attempt of the task still holds room there
    CLOSED = "closed"
    NEVER_FITS = "never_fits"


class Outcome(StrEnum):
    """How one attempt of a task ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    LOST = "lost"
    """Its node vanished, or its watchdog ended it: not the task's fault."""
    UNSTARTED = "unstarted"
    """Its runner had no lease to start it under, or no room on its disk: it never ran."""


class RefusedTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A task that a warden did not take, and why."""

    task: TaskId
    attempt: int
    reason: RefusalReason


class ResourceUsage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an attempt used, as its backend measured it; 0: not measured."""

    cpu: int = 0
    """Microseconds of CPU time."""
    memory: int = 0
    """The most bytes it held at once."""
    run_time: int = 0  # microseconds from its start to its end


class AttemptEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An attempt that is over."""

    task: TaskId
    attempt: int
    outcome: Outcome
    exit_code: int = 0  # exit code, or minus the signal number
    usage: ResourceUsage | None = None
    note: str = ""
    """What the backend has to say about it, in a few words: out of memory, no such program."""


WithheldCapacity = tuple[int, Resources]
"""A node, and how much of it is not for the league: others use it, or it is closed from outside."""


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
    """A batch of placements and of bindings of granted leases, and leases given back."""

    number: int
    rounds: tuple[tuple[ShardId, int], ...]
    """The lease round of each shard in the lots; a warden refuses claims of an earlier one."""
    echo: Instant
    """The latest beat of this warden that the broker has taken: the claim renews as a reply would."""
    batches: tuple[TaskBatch, ...]
    releases: tuple[int, ...] = ()  # leases that the broker has no use for
    demand: tuple[DemandLine, ...] | None = None
    """The sender's demand as it is now, when it differs from what the warden was told."""
    acked_ends: tuple[tuple[TaskId, int], ...] = ()  # ends that are safe, as ``AckEnds`` tells them otherwise


class Demand(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="demand"):
    """All that a broker has waiting, replacing what it said before."""

    lines: tuple[DemandLine, ...]


class CancelAttempts(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="cancel"):
    """End these attempts if they are there; what ends is reported as usual."""

    tasks: tuple[TaskId, ...]
    attempts: tuple[int, ...]


class AckEnds(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="settle"):
    """These ends are safe with the broker and its standby; the warden may forget them."""

    tasks: tuple[TaskId, ...]
    attempts: tuple[int, ...]


class RegisterStandby(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="register"):
    """The owner of a shard names the peer that may adopt it."""

    shard: ShardId
    term: int
    standby: str
    is_accepted_elsewhere: bool = False
    """Another warden has already accepted this term, so no adoption of an older one can complete."""


class RequestTakeover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="adopt"):
    """The standby takes a shard over; it acts only when every warden has agreed."""

    shard: ShardId
    owner: str
    """From whom: a warden that takes somebody else for the owner refuses."""
    term: int
    takeover_id: int  # which try this is; the answer repeats it


class AbortTakeover(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="return"):
    """The standby gives a try at adoption up: the owner lives, or another warden refused."""

    shard: ShardId
    term: int
    takeover_id: int


# --- warden to broker, sequenced -------------------------------------------------------------------------


class ClaimReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="answer"):
    """What became of a claim. Tasks not listed were taken as proposed."""

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
    """How well the task fits here, in thousandths: ``Pr(task | cluster)``."""
    prior: int = 0
    """How likely this cluster is to serve it well, in thousandths: ``Pr(cluster)``."""
    rival_key: QueueKey = ()
    """The best key of another broker that could use it; empty: nobody else's could."""


class TaskUpdates(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="news"):
    """What happened to a broker's tasks, and the room that is granted to those that wait."""

    started: tuple[tuple[TaskId, int, int], ...]  # task, attempt, node
    ended: tuple[AttemptEnd, ...]
    offers: tuple[Offer, ...] = ()
    """Grants, in the order they were made."""


class OwnershipReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="estate"):
    """A warden's answer to register, adopt or return: who it now takes for the owner."""

    shard: ShardId
    term: int
    owner: str
    accepted: bool
    takeover_id: int = 0  # the try at adoption that is answered; 0: a registration or a return
    running: tuple[tuple[TaskId, int], ...] = ()
    """With an accepted adoption: the shard's attempts that live here."""
    ended: tuple[AttemptEnd, ...] = ()
    """With an accepted adoption: ends that were not settled yet."""
    refusal: RefusalReason | None = None  # why it is not even looked at: closed for ever, or too many


# --- broker to broker, sequenced -------------------------------------------------------------------------


class Replica(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job as its owner's standby keeps it."""

    job: JobId
    spec: JobSpec
    age: int  # microseconds since it was accepted: clocks differ, ages do not
    ends: tuple[tuple[int, int, int], ...]  # terminal tasks: index, state, and the attempt that made it so
    cancelled: bool = False
    ends_to_follow: int = 0  # more of them, which follow as progress: before that the copy is not complete


class ReplicateJobs(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="replicate"):
    """Jobs for the standby's safe keeping; acknowledged to the submitter when the standby has them."""

    shard: ShardId
    term: int
    jobs: tuple[Replica, ...]
    more_follow: bool = False  # other jobs from before this term follow: the copy is not whole yet


class ReplicaUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="progress"):
    """Tasks that reached a terminal state, jobs cancelled, and jobs that may be forgotten."""

    shard: ShardId
    ends: tuple[tuple[TaskId, int, int], ...]  # task, its terminal state, the attempt that made it so
    cancelled: tuple[JobId, ...] = ()
    forget: tuple[JobId, ...] = ()
    end_runs: tuple[tuple[TaskId, int, int, int], ...] = ()  # of neighbours that ended alike: how many
    columns: tuple[
        tuple[TaskId, bytes, bytes], ...
    ] = ()  # of others: see ``core.broker.failover.end_columns``


class OwnershipTransferred(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="taken"):
    """To the former owner: its shard, with these jobs, now belongs to the sender."""

    shard: ShardId
    jobs: tuple[JobId, ...]
    term: int = 0  # the sender's


class WatchJobs(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="watch"):
    """Tell me when these jobs end."""

    round: int
    jobs: tuple[JobId, ...]


class JobEnded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="watched"):
    """A job that was asked about has ended; -1: unknown here, in answer to that round of asking only."""

    round: int
    job: JobId
    state: int


# --- warden and runner, sequenced within one session -----------------------------------------------------


class StartTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Run an attempt on a node."""

    task: TaskId
    attempt: int
    node: int
    size: Resources
    shard: ShardId
    unreachable: UnreachablePolicy
    payload: bytes


class StopTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Signal an attempt to save its work, and end it after ``grace`` microseconds."""

    task: TaskId
    attempt: int
    grace: int


class RunnerOrders(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="orders"):
    """From warden to runner."""

    echo: Instant
    """The runner's latest beat that the warden has taken: they renew as ``RunnerLease`` does."""
    starts: tuple[StartTask, ...] = ()
    stops: tuple[StopTask, ...] = ()
    forget: tuple[tuple[TaskId, int], ...] = ()  # ends that the warden has on record


class RunnerReport(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="report"):
    """From runner to warden: also the nodes of which another amount is withheld than before."""

    started: tuple[tuple[TaskId, int], ...]
    ended: tuple[AttemptEnd, ...]
    withheld: tuple[WithheldCapacity, ...] = ()


# --- soft ------------------------------------------------------------------------------------------------


class OpenSession(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="hello"):
    """A runner opens a session: what runs, what ended and was not forgotten, what is withheld. Repeated."""

    session: int
    sent_at: Instant
    nodes: tuple[int, ...]
    running: tuple[tuple[TaskId, int], ...]
    ended: tuple[AttemptEnd, ...]
    withheld: tuple[WithheldCapacity, ...] = ()


class RunnerHeartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="runner_beat"):
    """A runner asks for its lease to be renewed; it counts from ``sent_at``, on the runner's clock."""

    session: int
    sent_at: Instant


class RunnerLease(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="runner_lease"):
    """The warden renews, except for the tasks of shards whose own lease has lapsed."""

    session: int
    echo: Instant
    lapsed: tuple[ShardId, ...]


class Rejoin(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="rejoin"):
    """The warden gave this runner up, or never knew it: open a new session."""

    session: int


class WardenHeartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="beat"):
    """A warden shows that it lives, and asks for its leases from this broker to be renewed."""

    cluster: ClusterId
    epoch: int
    sent_at: Instant
    version: int
    rounds: tuple[tuple[ShardId, int], ...]
    """The lease round of each shard that the warden takes this broker to own."""
    drains: tuple[Drain, ...] = ()


class HeartbeatReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="beat_reply"):
    """The broker renews; the lease counts from ``echo``, on the warden's clock."""

    echo: Instant
    shards: tuple[ShardId, ...]


class RequestSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sync"):
    """The broker's view has a gap: send the whole state."""

    cluster: ClusterId


class ClusterSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="snapshot"):
    """The whole of a cluster as its warden offers it."""

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
    """A delta on its own."""

    delta: Delta


class MemberStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What gossip says of one broker: its beat rises as long as it lives."""

    name: str
    epoch: int
    beat: int
    version: int = 0  # of the league file that it lives by


class Gossip(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="gossip"):
    """The members of the league as the sender knows them."""

    members: tuple[MemberStatus, ...]


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ack"):
    """Nothing to say but what the envelope says: how far the sender has received."""


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
    """One message on its way."""

    source: str
    target: str
    session: int
    seq: int
    """Number of a sequenced message; for a soft one minus that of the last sequenced one before it."""
    ack: int
    """The highest sequence number received in order from ``target`` in this session."""
    body: Message
