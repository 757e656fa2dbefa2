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
from hanse.core.broker.failover.standby import StandbyShard, latest_attempts
from hanse.live.readmodel.live_job import LARGE_TASKS, LiveJob, new_live
from hanse.live.readmodel.projector_state import Bid, WardNote
from hanse.model.ids import INDEX_BITS, TASKS_PER_JOB_MAX, JobId, broker_number
from hanse.model.messages import (
    AbortTakeover,
    AttemptEnd,
    OwnershipReply,
    OwnershipTransferred,
    RegisterStandby,
    Replica,
    ReplicateJobs,
    ReplicaUpdate,
    RequestTakeover,
    ShardId,
)

if TYPE_CHECKING:
    from hanse.live.readmodel.projector import Projector

_INDEX: Final = TASKS_PER_JOB_MAX - 1
_ENDS: Final = {
    job_table.SUCCEEDED: SUCCEEDED,
    job_table.FAILED: FAILED,
    job_table.CANCELLED: CANCELLED,
}
_CANCELLED_THERE: Final = "cancelled at its broker"


class Heirs:
    """Projection of replicas, of takeovers by this broker, and of takeovers by peers."""

    def __init__(self, projector: "Projector") -> None:
        self._all = projector
        self._memory = projector.memory

    # --- copies --------------------------------------------------------------------------------------------

    def replicated(self, source: str, message: ReplicateJobs) -> None:
        """Add the jobs that a peer replicates to this broker."""
        if message.shard in self._memory.owned:
            return  # taken over meanwhile
        ward = self._memory.wards.get(message.shard)
        if ward is not None and message.term > ward.term:
            self._forget(message.shard)  # the peer sends every copy again
            ward = None
        if ward is None:
            ward = self._memory.wards[message.shard] = WardNote(source, message.term)
        if message.term < ward.term:
            return
        for replica in message.jobs:
            self.keep(ward.owner, message.shard, replica, self._all.now - replica.age)

    def keep(self, owner: str, shard: ShardId, replica: Replica, submitted: int) -> None:
        """Add the copy of a peer's job, or replace an older copy."""
        projector = self._all
        known = projector.live.get(replica.job)
        job = new_live(replica.job, replica.spec, owner, shard, submitted, replica.spec.after)
        job.cancelled = replica.cancelled
        if replica.cancelled:
            job.cancel_reason = _CANCELLED_THERE
        if known is not None:
            self._replace(known, job)
        projector.live[job.id] = job
        for index, state, attempt in replica.ends:
            self._done(job, index, state, attempt)
        if replica.cancelled:
            self._end_waiting(job)
        projector.touch(job)

    def _replace(self, known: LiveJob, job: LiveJob) -> None:
        """Let ``job`` replace a known job, and drop all that is known of its tasks."""
        self._all.sheet.wipe(known.id)
        job.fresh, job.shown, job.decisions = known.fresh, known.shown, known.decisions
        job.submitted, job.started, job.used = known.submitted, known.started, known.used

    def _done(self, job: LiveJob, index: int, state: int, attempt: int) -> None:
        if job.state[index] != _ENDS[state]:
            job.attempt[index] = attempt or job.attempt[index]
            self._all.settle(job, index, _ENDS[state])

    def _end_waiting(self, job: LiveJob) -> None:
        """Cancel the waiting tasks of a large cancelled job: they never ran as far as is known. The ends of
        tasks that run follow later."""
        if len(job.state) > LARGE_TASKS:
            for index in job.end_waiting():
                self._all.settle(job, index, CANCELLED)

    def _done_run(self, job: LiveJob, first: int, state: int, attempt: int, count: int) -> None:
        behind = min(first + count, len(job.state))
        if job.state.count(_ENDS[state], first, behind) < behind - first:  # else all ends are known
            for index in range(first, behind):
                self._done(job, index, state, attempt)

    def _done_column(self, job: LiveJob, column: EndColumn) -> None:
        for index, state, attempt in ends_in(column):
            self._done(job, index, state, attempt)

    def progress(self, _: str, message: ReplicaUpdate) -> None:
        """Apply the ends that a peer reports."""
        projector = self._all
        if message.shard not in self._memory.wards:
            return
        for number in message.cancelled:
            job = self._kept(number, message.shard)
            if job is not None:
                job.cancel_reason = _CANCELLED_THERE
                self._end_waiting(job)
                projector.touch(job)
        for task, state, attempt in message.ends:
            job = self._kept(JobId(task >> INDEX_BITS), message.shard)
            if job is not None:
                self._done(job, task & _INDEX, state, attempt)
        for task, state, attempt, count in message.end_runs:
            job = self._kept(JobId(task >> INDEX_BITS), message.shard)
            if job is not None:
                self._done_run(job, task & _INDEX, state, attempt, count)
        for task, states, attempts in message.columns:
            job = self._kept(JobId(task >> INDEX_BITS), message.shard)
            if job is not None:
                self._done_column(job, (task & _INDEX, states, attempts))
        for number in message.forget:
            job = self._kept(number, message.shard)
            if job is not None:
                projector.over(job, CANCELLED if job.cancel_reason else job.outcome())

    def _kept(self, number: JobId, shard: ShardId) -> LiveJob | None:
        job = self._all.live.get(number)
        return (
            job
            if job is not None and job.estate == shard and job.owner == self._memory.wards[shard].owner
            else None
        )

    def _forget(self, shard: ShardId) -> None:
        """Drop the copies of a shard, which are out of date."""
        projector = self._all
        ward = self._memory.wards.pop(shard)
        for job in [job for job in projector.live.values() if job.estate == shard]:
            if job.owner == ward.owner:
                del projector.live[job.id]
                projector.sheet.remove(job.id)

    # --- takeovers by this broker --------------------------------------------------------------------------

    def registered(self, _: str, message: RegisterStandby) -> None:
        """Note a shard that this broker registers at the wardens as its own."""
        self._memory.owned[message.shard] = True
        if message.shard.rpartition("#")[0] == self._all.broker and _newer(message.shard, self._memory.base):
            self._memory.base = message.shard

    def bidding(self, _: str, message: RequestTakeover) -> None:
        """Note that this broker requests the takeover of a shard."""
        bid = self._memory.bids.get(message.shard)
        if bid is None or bid.number != message.takeover_id:
            self._memory.bids[message.shard] = Bid(message.takeover_id)

    def returned(self, _: str, message: AbortTakeover) -> None:
        """Drop the takeover that this broker has aborted."""
        self._memory.bids.pop(message.shard, None)

    def answered(self, source: str, message: OwnershipReply) -> None:
        """Collect the attempts that a warden reports in its answer to a takeover request."""
        bid = self._memory.bids.get(message.shard)
        ward = self._memory.wards.get(message.shard)
        if not message.takeover_id or bid is None or ward is None or bid.number != message.takeover_id:
            return
        if message.accepted:
            bid.running += [(source, task, attempt) for task, attempt in message.running]
            bid.ends += [(source, end) for end in message.ended]
        elif message.term > ward.term:
            self._forget(message.shard)

    def keep_end(self, source: str, job: LiveJob, end: AttemptEnd) -> None:
        """Buffer the end of an attempt of a job that is being taken over, until the takeover is complete."""
        bid = self._memory.bids.get(job.estate)
        if bid is not None:
            bid.ends.append((source, end))

    def adopted(self, _: str, message: OwnershipTransferred) -> None:
        """Make this broker the owner of the jobs: every warden has agreed, and the former owner is told."""
        projector = self._all
        bid = self._memory.bids.pop(message.shard, None) or Bid(0)
        ward = self._memory.wards.pop(message.shard, None)
        self._memory.owned[message.shard] = True
        heard = StandbyShard(ward.owner if ward else "", 0, running=bid.running, ends=bid.ends)
        jobs = [job for job in map(projector.live.get, message.jobs) if job is not None]
        for job in jobs:
            job.owner = projector.broker
            self._memory.strangers[broker_number(job.id)] = True
            job.waits = {other: None for other in job.waits if other not in projector.succeeded}
            projector.remind(job)
            job.release()
            projector.touch(job)
        known = {job.id: job for job in jobs}
        for number, latest in latest_attempts(heard).items():
            found = known.get(number)
            for task, (attempt, cluster, end) in latest.items():
                if found is None or _is_over(found, task & _INDEX):
                    continue
                found.unblock(found.group_of(task & _INDEX))
                projector.show_running(found, task & _INDEX, attempt, cluster)
                if end is not None:
                    projector.finish(found, end)

    # --- takeovers by peers --------------------------------------------------------------------------------

    def taken(self, source: str, message: OwnershipTransferred) -> None:
        """Make a peer the owner of the jobs of a shard that it has taken over from this broker."""
        projector = self._all
        if not self._memory.owned.pop(message.shard, False):
            return
        theirs = dict.fromkeys(message.jobs, source)
        projector.given.update(theirs)
        for job in [job for job in projector.live.values() if job.estate == message.shard]:
            if job.owner != projector.broker:
                continue
            if job.id in theirs:
                job.owner = source
                projector.touch(job)
            elif any(map(job.unfinished, range(len(job.spec.groups)))):
                self._begin_anew(job)
            # Otherwise the job has ended and the new owner was told to drop it: we publish its end.

    def _begin_anew(self, job: LiveJob) -> None:
        """Restart a job that the new owner never received: none of its tasks can run, so it joins this
        broker's next shard as a new job."""
        projector = self._all
        name, _, generation = self._memory.base.rpartition("#")
        fresh = new_live(job.id, job.spec, job.owner, f"{name}#{int(generation) + 1}", job.submitted)
        self._replace(job, fresh)
        projector.live[job.id] = fresh
        projector.touch(fresh)


def _is_over(job: LiveJob, index: int) -> bool:
    """Return True if a task is known to have ended. A task of a large copy that was cancelled without a
    known attempt does not count (see ``FailoverProjection._cancel_waiting``)."""
    guessed = job.state[index] == CANCELLED and not job.attempt[index] and len(job.state) > LARGE_TASKS
    return job.state[index] >= SUCCEEDED and not guessed


def _newer(shard: ShardId, base: ShardId) -> bool:
    """Return True if a shard of this broker has a higher generation than ``current``."""
    return not base or int(shard.rpartition("#")[2]) > int(base.rpartition("#")[2])
