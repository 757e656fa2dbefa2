"""Part of the projector that shows copies of peers' jobs at their standby.

A peer replicates a job's specification and the ends of its tasks, and says when the copy may be dropped. It
does not replicate where tasks run, so a copy shows tasks as blocked or queued until they end.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hanse.api.row_records import SUCCEEDED
from hanse.core.broker.failover.end_columns import ends_in
from hanse.live.readmodel import unended_job
from hanse.live.readmodel.unended_job import STATE_OF_CODE, UnendedJob, new_unended_job
from hanse.model.history_effects import CopiesAdded, CopiesDropped, CopiesUpdated
from hanse.model.ids import JobId, index_of, job_of
from hanse.model.messages import Replica, ShardId

if TYPE_CHECKING:
    from hanse.live.readmodel.projector import Projector

_CANCELLED_BY_OWNER: Final = "cancelled at its broker"


class ReplicaProjection:
    """Projection of the copies that one broker keeps for its peers."""

    def __init__(self, projector: "Projector") -> None:
        self._projector = projector

    def appliers(self) -> dict[type, Callable[[Any], None]]:
        """Return the methods that apply facts, by type."""
        return {
            CopiesAdded: self._on_copies_added,
            CopiesUpdated: self._on_copies_updated,
            CopiesDropped: self._on_copies_dropped,
        }

    def _on_copies_added(self, fact: CopiesAdded) -> None:
        for replica in fact.jobs:
            self.add_copy(fact.owner, fact.shard, replica, self._projector.now - replica.age)

    def add_copy(self, owner: str, shard: ShardId, replica: Replica, submitted: int) -> None:
        """Add the copy of a peer's job, or replace what was known of the job."""
        job = new_unended_job(replica.job, replica.spec, owner, shard, submitted)
        self._projector.add_job(job)
        for index, state, attempt in replica.ends:
            self._end_task(job, index, state, attempt)
        if replica.cancelled:
            self._cancel(job)

    def _on_copies_updated(self, fact: CopiesUpdated) -> None:
        """Apply what a peer reports. Cancellations come first: many ends then repeat what is known."""
        update = fact.update
        for number in update.cancelled:
            job = self._find_copy(number, fact)
            if job is not None:
                self._cancel(job)
        for task, state, attempt in update.ends:
            job = self._find_copy(job_of(task), fact)
            if job is not None:
                self._end_task(job, index_of(task), state, attempt)
        for task, state, attempt, count in update.end_runs:
            job = self._find_copy(job_of(task), fact)
            if job is not None:
                self._end_task_run(job, index_of(task), state, attempt, count)
        for task, states, attempts in update.columns:
            job = self._find_copy(job_of(task), fact)
            if job is not None:
                for index, state, attempt in ends_in((index_of(task), states, attempts)):
                    self._end_task(job, index, state, attempt)
        for number in update.forget:
            job = self._find_copy(number, fact)
            if job is not None:
                self._projector.end_job(job, job.final_state())

    def _find_copy(self, number: JobId, fact: CopiesUpdated) -> UnendedJob | None:
        """Find a job as long as this copy of it is the latest that is known."""
        job = self._projector.live_jobs.get(number)
        return job if job is not None and (job.shard, job.owner) == (fact.update.shard, fact.owner) else None

    def _on_copies_dropped(self, fact: CopiesDropped) -> None:
        for job in list(self._projector.live_jobs.values()):
            if (job.shard, job.owner) == (fact.shard, fact.owner):
                self._projector.remove_job(job)

    def _end_task(self, job: UnendedJob, index: int, code: int, attempt: int) -> None:
        state = STATE_OF_CODE[code]
        if job.state[index] != state:
            job.attempt[index] = attempt or job.attempt[index]
            self._projector.tasks.settle_task(job, index, state)
            if state == SUCCEEDED:
                job.unblock_ready_groups()

    def _end_task_run(self, job: UnendedJob, first: int, code: int, attempt: int, count: int) -> None:
        stop = min(first + count, len(job.state))
        if job.state.count(STATE_OF_CODE[code], first, stop) < stop - first:  # else all ends are known
            for index in range(first, stop):
                self._end_task(job, index, code, attempt)

    def _cancel(self, job: UnendedJob) -> None:
        """Show a copy as cancelled, with the waiting tasks of a large one: they never ran as far as is known.
        The ends of tasks that run follow later."""
        job.cancelled, job.cancel_reason = True, _CANCELLED_BY_OWNER
        if len(job.state) > unended_job.LARGE_JOB_TASKS:
            self._projector.tasks.cancel_waiting(job)
        self._projector.mark_changed(job)
