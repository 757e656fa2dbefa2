"""Part of the projector that follows jobs from broker to broker: copies of peers' jobs, and takeovers.

A peer replicates a job's specification and the ends of its tasks, and says when the copy may be dropped. It
does not replicate where tasks run, so a copy shows tasks as blocked or queued until they end. When every
warden has agreed to a takeover, this broker owns the jobs, with the attempts that the wardens reported. When
a peer takes over jobs of this broker, they stay visible in their last known state, with the peer as owner.
"""

from typing import TYPE_CHECKING, Final

from hanse.api.rows import CANCELLED, FAILED, SUCCEEDED
from hanse.core.broker import job_table
from hanse.core.broker.failover.end_columns import EndColumn, ends_in
from hanse.core.broker.failover.orphaned_jobs import ORPHANS_ROUND
from hanse.core.broker.failover.standby import StandbyShard, latest_attempts
from hanse.live.readmodel.live_job import LARGE_JOB_TASKS, LiveJob, new_live_job
from hanse.live.readmodel.projector_state import PendingTakeover, StandbyNote
from hanse.model.ids import INDEX_BITS, TASKS_PER_JOB_MAX, JobId, broker_number
from hanse.model.messages import (
    AbortTakeover,
    AttemptEnd,
    JobEnded,
    OwnershipReply,
    OwnershipTransferred,
    RegisterStandby,
    Replica,
    ReplicateJobs,
    ReplicaUpdate,
    RequestTakeover,
    ShardId,
    WatchJobs,
)

if TYPE_CHECKING:
    from hanse.live.readmodel.projector import Projector

_INDEX: Final = TASKS_PER_JOB_MAX - 1
_STATE_OF_CODE: Final = {
    job_table.SUCCEEDED: SUCCEEDED,
    job_table.FAILED: FAILED,
    job_table.CANCELLED: CANCELLED,
}
_CANCELLED_BY_OWNER: Final = "cancelled at its broker"


class FailoverProjection:
    """Projection of replicas, of takeovers by this broker, and of takeovers by peers."""

    def __init__(self, projector: "Projector") -> None:
        self._projector = projector
        self._state = projector.state

    # --- copies --------------------------------------------------------------------------------------------

    def on_replicate_jobs(self, source: str, message: ReplicateJobs) -> None:
        """Add the jobs that a peer replicates to this broker."""
        if message.shard in self._state.owned:
            return  # taken over meanwhile
        note = self._state.wards.get(message.shard)
        if note is not None and message.term > note.term:
            self._drop_copies(message.shard)  # the peer sends every copy again
            note = None
        if note is None:
            note = self._state.wards[message.shard] = StandbyNote(source, message.term)
        if message.term < note.term:
            return
        for replica in message.jobs:
            self.add_copy(note.owner, message.shard, replica, self._projector.now - replica.age)

    def add_copy(self, owner: str, shard: ShardId, replica: Replica, submitted: int) -> None:
        """Add the copy of a peer's job, or replace an older copy."""
        projector = self._projector
        known = projector.live_jobs.get(replica.job)
        job = new_live_job(replica.job, replica.spec, owner, shard, submitted, replica.spec.after)
        job.cancelled = replica.cancelled
        if replica.cancelled:
            job.cancel_reason = _CANCELLED_BY_OWNER
        if known is not None:
            self._reset_job(known, job)
        projector.live_jobs[job.id] = job
        for index, state, attempt in replica.ends:
            self._end_task(job, index, state, attempt)
        if replica.cancelled:
            self._cancel_waiting(job)
        projector.mark_changed(job)

    def _reset_job(self, known: LiveJob, job: LiveJob) -> None:
        """Let ``job`` replace a known job, and drop all that is known of its tasks."""
        self._projector.writes.wipe_job(known.id)
        job.is_new, job.shown_state, job.decision_count = (
            known.is_new,
            known.shown_state,
            known.decision_count,
        )
        job.submitted, job.started, job.clusters_used = known.submitted, known.started, known.clusters_used

    def _end_task(self, job: LiveJob, index: int, state: int, attempt: int) -> None:
        if job.state[index] != _STATE_OF_CODE[state]:
            job.attempt[index] = attempt or job.attempt[index]
            self._projector.settle_task(job, index, _STATE_OF_CODE[state])

    def _cancel_waiting(self, job: LiveJob) -> None:
        """Cancel the waiting tasks of a large cancelled job: they never ran as far as is known. The ends of
        tasks that run follow later."""
        if len(job.state) > LARGE_JOB_TASKS:
            for index in job.cancel_waiting():
                self._projector.settle_task(job, index, CANCELLED)

    def _end_task_run(self, job: LiveJob, first: int, state: int, attempt: int, count: int) -> None:
        stop = min(first + count, len(job.state))
        if job.state.count(_STATE_OF_CODE[state], first, stop) < stop - first:  # else all ends are known
            for index in range(first, stop):
                self._end_task(job, index, state, attempt)

    def _end_task_column(self, job: LiveJob, column: EndColumn) -> None:
        for index, state, attempt in ends_in(column):
            self._end_task(job, index, state, attempt)

    def on_replica_update(self, _: str, message: ReplicaUpdate) -> None:
        """Apply the ends that a peer reports."""
        projector = self._projector
        if message.shard not in self._state.wards:
            return
        for number in message.cancelled:
            job = self._find_copy(number, message.shard)
            if job is not None:
                job.cancel_reason = _CANCELLED_BY_OWNER
                self._cancel_waiting(job)
                projector.mark_changed(job)
        for task, state, attempt in message.ends:
            job = self._find_copy(JobId(task >> INDEX_BITS), message.shard)
            if job is not None:
                self._end_task(job, task & _INDEX, state, attempt)
        for task, state, attempt, count in message.end_runs:
            job = self._find_copy(JobId(task >> INDEX_BITS), message.shard)
            if job is not None:
                self._end_task_run(job, task & _INDEX, state, attempt, count)
        for task, states, attempts in message.columns:
            job = self._find_copy(JobId(task >> INDEX_BITS), message.shard)
            if job is not None:
                self._end_task_column(job, (task & _INDEX, states, attempts))
        for number in message.forget:
            job = self._find_copy(number, message.shard)
            if job is not None:
                projector.end_job(job, CANCELLED if job.cancel_reason else job.final_state())

    def _find_copy(self, number: JobId, shard: ShardId) -> LiveJob | None:
        job = self._projector.live_jobs.get(number)
        return (
            job
            if job is not None and job.shard == shard and job.owner == self._state.wards[shard].owner
            else None
        )

    def _drop_copies(self, shard: ShardId) -> None:
        """Drop the copies of a shard, which are out of date."""
        projector = self._projector
        note = self._state.wards.pop(shard)
        for job in [job for job in projector.live_jobs.values() if job.shard == shard]:
            if job.owner == note.owner:
                del projector.live_jobs[job.id]
                projector.writes.remove_job(job.id)

    # --- takeovers by this broker --------------------------------------------------------------------------

    def on_register_standby_sent(self, _: str, message: RegisterStandby) -> None:
        """Note a shard that this broker registers at the wardens as its own."""
        self._state.owned[message.shard] = True
        if message.shard.rpartition("#")[0] == self._projector.broker and _is_newer_shard(
            message.shard, self._state.base
        ):
            self._state.base = message.shard

    def on_request_takeover_sent(self, _: str, message: RequestTakeover) -> None:
        """Note that this broker requests the takeover of a shard."""
        takeover = self._state.bids.get(message.shard)
        if takeover is None or takeover.number != message.takeover_id:
            self._state.bids[message.shard] = PendingTakeover(message.takeover_id)

    def on_abort_takeover_sent(self, _: str, message: AbortTakeover) -> None:
        """Drop the takeover that this broker has aborted."""
        self._state.bids.pop(message.shard, None)

    def on_ownership_reply(self, source: str, message: OwnershipReply) -> None:
        """Collect the attempts that a warden reports in its answer to a takeover request."""
        takeover = self._state.bids.get(message.shard)
        note = self._state.wards.get(message.shard)
        if (
            not message.takeover_id
            or takeover is None
            or note is None
            or takeover.number != message.takeover_id
        ):
            return
        if message.accepted:
            takeover.running += [(source, task, attempt) for task, attempt in message.running]
            takeover.ends += [(source, end) for end in message.ended]
        elif message.term > note.term:
            self._drop_copies(message.shard)

    def buffer_end(self, source: str, job: LiveJob, end: AttemptEnd) -> None:
        """Buffer the end of an attempt of a job that is being taken over, until the takeover is complete."""
        takeover = self._state.bids.get(job.shard)
        if takeover is not None:
            takeover.ends.append((source, end))

    def on_ownership_transferred_sent(self, _: str, message: OwnershipTransferred) -> None:
        """Make this broker the owner of the jobs: every warden has agreed, and the former owner is told."""
        projector = self._projector
        takeover = self._state.bids.pop(message.shard, None) or PendingTakeover(0)
        note = self._state.wards.pop(message.shard, None)
        self._state.owned[message.shard] = True
        standby = StandbyShard(note.owner if note else "", 0, running=takeover.running, ends=takeover.ends)
        jobs = [job for job in map(projector.live_jobs.get, message.jobs) if job is not None]
        for job in jobs:
            job.owner = projector.broker
            self._state.strangers[broker_number(job.id)] = True
            job.waiting_for = {other: None for other in job.waiting_for if other not in projector.succeeded}
            projector.index_dependencies(job)
            job.unblock_ready_groups()
            projector.mark_changed(job)
        known = {job.id: job for job in jobs}
        for number, latest in latest_attempts(standby).items():
            found = known.get(number)
            for task, (attempt, cluster, end) in latest.items():
                if found is None or _has_ended(found, task & _INDEX):
                    continue
                found.unblock_group(found.group_of(task & _INDEX))
                projector.set_running(found, task & _INDEX, attempt, cluster)
                if end is not None:
                    projector.end_attempt(found, end)

    # --- takeovers by peers --------------------------------------------------------------------------------

    def on_ownership_transferred(self, source: str, message: OwnershipTransferred) -> None:
        """Make a peer the owner of the jobs of a shard that it has taken over from this broker."""
        projector = self._projector
        if not self._state.owned.pop(message.shard, False):
            return
        new_owners = dict.fromkeys(message.jobs, source)
        projector.handed_over.update(new_owners)
        for job in [job for job in projector.live_jobs.values() if job.shard == message.shard]:
            if job.owner != projector.broker:
                continue
            if job.id in new_owners:
                job.owner = source
                projector.mark_changed(job)
            elif any(map(job.count_unfinished, range(len(job.spec.groups)))):
                self._restart_job(job)
            # Otherwise the job has ended and the new owner was told to drop it: we publish its end.

    def on_watch_jobs_sent(self, _: str, message: WatchJobs) -> None:
        """Note the orphaned jobs that this broker asks a peer about."""
        if message.round == ORPHANS_ROUND:
            self._state.orphaned.update(dict.fromkeys(message.jobs, True))

    def on_job_ended(self, source: str, message: JobEnded) -> None:
        """Release the jobs that wait for an ended one. A peer that knows the end of an orphaned job is its
        owner."""
        if message.state == job_table.SUCCEEDED:
            self._projector.release_dependents(message.job)
        if message.state < 0 or not self._state.orphaned.pop(message.job, False):
            return
        job = self._projector.find_owned(message.job)
        if job is not None:
            job.owner = self._projector.handed_over[job.id] = source
            self._projector.mark_changed(job)

    def _restart_job(self, job: LiveJob) -> None:
        """Restart a job that the new owner never received: none of its tasks can run, so it joins this
        broker's next shard as a new job."""
        projector = self._projector
        name, _, generation = self._state.base.rpartition("#")
        fresh = new_live_job(job.id, job.spec, job.owner, f"{name}#{int(generation) + 1}", job.submitted)
        self._reset_job(job, fresh)
        projector.live_jobs[job.id] = fresh
        projector.mark_changed(fresh)


def _has_ended(job: LiveJob, index: int) -> bool:
    """Return True if a task is known to have ended. A task of a large copy that was cancelled without a
    known attempt does not count (see ``FailoverProjection._cancel_waiting``)."""
    is_assumed = job.state[index] == CANCELLED and not job.attempt[index] and len(job.state) > LARGE_JOB_TASKS
    return job.state[index] >= SUCCEEDED and not is_assumed


def _is_newer_shard(shard: ShardId, current: ShardId) -> bool:
    """Return True if a shard of this broker has a higher generation than ``current``."""
    return not current or int(shard.rpartition("#")[2]) > int(current.rpartition("#")[2])
