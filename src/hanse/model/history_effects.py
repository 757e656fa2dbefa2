"""History effects: facts about jobs and tasks, which a broker states in order as soon as they are true.

They are for readers, such as the read model: no machine waits for them, and no shell performs them. A reader
that applies them one after the other knows the state of every task without knowing how brokers decide.

Numbers of states are those of ``core.broker.job_table``. In these facts a task *waits* if it is in the queue
or blocked; a new job's tasks wait, and are blocked where the job waits for other jobs or their group needs
other groups.
"""

from typing import Final

import msgspec

from hanse.model.ids import Instant, JobId, TaskId
from hanse.model.job import JobSpec
from hanse.model.messages import AttemptEnd, Replica, ReplicaUpdate, ShardId, TaskBatch


class JobAdded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="job_added"):
    """Job of this broker that its client may know: acknowledged, or cancelled before. A job that is known
    already begins anew."""

    job: JobId
    spec: JobSpec
    shard: ShardId
    accepted_at: Instant


class JobDropped(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="job_dropped"):
    """Job that does not exist any more, because the league has it under another number."""

    job: JobId


class JobCancelled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="job_cancelled"):
    """Cancellation of a job: none of its waiting tasks will ever run; the others end later."""

    job: JobId
    reason: str


class JobsTransferred(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="jobs_transferred"):
    """Takeover of these jobs of a shard, by this broker or from it."""

    shard: ShardId
    owner: str
    """New owner."""
    jobs: tuple[JobId, ...]


class GroupUnblocked(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="group_unblocked"):
    """End of all that kept the blocked tasks of a group from the queue."""

    job: JobId
    group: int


class TasksPlaced(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_placed"):
    """New attempts of tasks in a cluster."""

    cluster: str
    batch: TaskBatch


class NodesSubstituted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="nodes_substituted"):
    """Other nodes than those proposed, chosen by the warden of a cluster: task and node."""

    cluster: str
    nodes: tuple[tuple[TaskId, int], ...]


class TasksStarted(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_started"):
    """Starts of current attempts: task, attempt, node."""

    entries: tuple[tuple[TaskId, int, int], ...]


class AttemptsEnded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="attempts_ended"):
    """Ends of current attempts. The list grows until the next effect of the same event."""

    ends: list[tuple[TaskId, int, AttemptEnd | None]]
    """Task, its next state (waiting or terminal), and the end; None: the warden refused the attempt."""


class TasksCancelled(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_cancelled"):
    """Waiting tasks that will never run, because something that they need has failed."""

    job: JobId
    runs: tuple[tuple[int, int], ...]
    """First task, and number of neighbours."""


class TasksResumed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="tasks_resumed"):
    """Attempts that wardens have of a job that was taken over: task, attempt, cluster."""

    job: JobId
    attempts: tuple[tuple[TaskId, int, str], ...]


class CopiesAdded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="copies_added"):
    """Copies of a peer's jobs, with their ends so far. A copy replaces all that was known of the job."""

    shard: ShardId
    owner: str
    jobs: tuple[Replica, ...]


class CopiesUpdated(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="copies_updated"):
    """Ends and cancellations of a peer's jobs. Jobs to forget have ended."""

    owner: str
    update: ReplicaUpdate


class CopiesDropped(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="copies_dropped"):
    """Outdated copies of a peer's jobs: all that this broker has of the shard."""

    shard: ShardId
    owner: str


HistoryEffect = (
    JobAdded
    | JobDropped
    | JobCancelled
    | JobsTransferred
    | GroupUnblocked
    | TasksPlaced
    | NodesSubstituted
    | TasksStarted
    | AttemptsEnded
    | TasksCancelled
    | TasksResumed
    | CopiesAdded
    | CopiesUpdated
    | CopiesDropped
)
HISTORY_EFFECTS: Final[frozenset[type]] = frozenset(HistoryEffect.__args__)
"""Types of all history effects."""
