"""Messages of replication and takeover: a shard, its owner and its standby."""

import msgspec

from hanse.model.ids import JobId, ShardId, TaskId
from hanse.model.job import JobSpec
from hanse.model.messages.attempts import AttemptEnd
from hanse.model.messages.claims import RefusalReason


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


class OwnershipReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="estate"):
    """Vote of a warden on a registration, takeover or abort, with the owner that it has now."""

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
    is_abandoned: bool = False
    """True in a refusal to the former owner if the owner has retired and never acted for the shard here: the
    warden had only agreed to its takeover."""


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
