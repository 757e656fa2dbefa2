"""History of a broker's jobs and tasks: facts for readers of its effects (``model.history_effects``).

The parts of the broker call this at the moment at which a fact becomes true, before anything that follows
from it, so that the facts are in order. Facts of one kind that follow each other share an effect.
"""

from typing import TYPE_CHECKING

from hanse.core.broker.job_table import JobRecord
from hanse.model.history_effects import (
    AttemptsEnded,
    CopiesAdded,
    CopiesDropped,
    CopiesUpdated,
    GroupUnblocked,
    JobAdded,
    JobCancelled,
    JobDropped,
    JobsTransferred,
    NodesSubstituted,
    TasksCancelled,
    TasksPlaced,
    TasksResumed,
    TasksStarted,
)
from hanse.model.ids import JobId, TaskId
from hanse.model.messages import AttemptEnd, Replica, ReplicaUpdate, ShardId, TaskBatch

if TYPE_CHECKING:
    from hanse.core.broker.context import BrokerContext


class JobHistory:
    """History of one broker, written into the effects of the present event."""

    def __init__(self, context: "BrokerContext") -> None:
        self._context = context
        self._latest_ends = AttemptsEnded([])

    # --- jobs ----------------------------------------------------------------------------------------------

    def add_job(self, record: JobRecord) -> None:
        """State that a client may know a job from now on, or that a known job begins anew."""
        fact = JobAdded(record.id, record.spec, record.shard, record.accepted_at)
        self._context.effects.append(fact)

    def drop_job(self, job: JobId) -> None:
        """State that a job does not exist any more."""
        self._context.effects.append(JobDropped(job))

    def cancel_job(self, record: JobRecord, reason: str) -> None:
        """State that a job is cancelled, with all its tasks that wait."""
        if not record.admitted:
            self.add_job(record)
        self._context.effects.append(JobCancelled(record.id, reason))

    def transfer_jobs(self, shard: ShardId, owner: str, jobs: tuple[JobId, ...]) -> None:
        """State that another broker, or this one, has taken jobs over."""
        self._context.effects.append(JobsTransferred(shard, owner, jobs))

    def unblock_group(self, record: JobRecord, group: int) -> None:
        """State that the blocked tasks of a group are queued. One that needs nothing never was blocked."""
        if record.spec.after or record.spec.groups[group].needs:
            self._context.effects.append(GroupUnblocked(record.id, group))

    # --- tasks ---------------------------------------------------------------------------------------------

    def place_tasks(self, cluster: str, batch: TaskBatch) -> None:
        """State that tasks have attempts in a cluster."""
        self._context.effects.append(TasksPlaced(cluster, batch))

    def substitute_nodes(self, cluster: str, nodes: tuple[tuple[TaskId, int], ...]) -> None:
        """State that a warden has chosen other nodes."""
        self._context.effects.append(NodesSubstituted(cluster, nodes))

    def start_tasks(
        self, entries: tuple[tuple[TaskId, int, int], ...], outdated: list[tuple[TaskId, int, int]]
    ) -> None:
        """State that attempts have started: all of ``entries`` that are not ``outdated``."""
        if outdated:
            entries = tuple([entry for entry in entries if entry not in outdated])
        if entries:
            self._context.effects.append(TasksStarted(entries))

    def end_attempt(self, task: TaskId, state: int, end: AttemptEnd | None) -> None:
        """State that the current attempt of a task has ended, and how the task goes on. None: refused."""
        effects = self._context.effects
        if effects and effects[-1] is self._latest_ends:
            self._latest_ends.ends.append((task, state, end))
        else:
            self._latest_ends = AttemptsEnded([(task, state, end)])
            effects.append(self._latest_ends)

    def cancel_tasks(self, record: JobRecord, runs: list[tuple[int, int]]) -> None:
        """State that waiting tasks will never run, as runs of neighbours."""
        if runs:
            self._context.effects.append(TasksCancelled(record.id, tuple(runs)))

    def resume_tasks(self, record: JobRecord, attempts: list[tuple[TaskId, int, str]]) -> None:
        """State which attempts wardens have of a job that was taken over."""
        if attempts:
            self._context.effects.append(TasksResumed(record.id, tuple(attempts)))

    # --- copies of peers' jobs -----------------------------------------------------------------------------

    def add_copies(self, shard: ShardId, owner: str, jobs: tuple[Replica, ...]) -> None:
        """State that a peer has sent copies of its jobs."""
        self._context.effects.append(CopiesAdded(shard, owner, jobs))

    def update_copies(self, owner: str, update: ReplicaUpdate) -> None:
        """State what a peer has reported of copied jobs."""
        self._context.effects.append(CopiesUpdated(owner, update))

    def drop_copies(self, shard: ShardId, owner: str) -> None:
        """State that the copies of a shard are outdated."""
        self._context.effects.append(CopiesDropped(shard, owner))
