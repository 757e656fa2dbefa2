"""Standby side of failover: copies of peers' jobs, and what is restored from them after a takeover.

``takeover`` requests and completes takeovers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.end_columns import CutEnds, ran_flags
from hanse.core.broker.failover.replica_updates import TaskEnds, new_task_ends
from hanse.core.broker.failover.terms import TERMS_BITS
from hanse.core.broker.job_table import BLOCKED, PLACED, JobRecord, new_record
from hanse.model.ids import JobId, TaskId, index_of, job_of
from hanse.model.messages import (
    AbortTakeover,
    Ack,
    AttemptEnd,
    Replica,
    ReplicateJobs,
    ReplicaUpdate,
    ShardId,
)
from hanse.model.messages.shard_teardown import DropReplicas

ATTEMPTS_BITS: Final = 16
"""Shift of attempt numbers: a new owner starts at its number of takeovers ``<< 16``, above all used
before."""

LatestAttempts = dict[TaskId, tuple[int, str, AttemptEnd | None]]
"""Tasks -> their latest attempts: number, cluster, and the end if it has ended."""


class StandbyShard(
    msgspec.Struct,
    rename={
        "old_ends": "done",
        "accepted_at": "since",
        "takeover_id": "bid",
        "clusters_asked": "asked",
        "is_taking_over": "adopting",
        "is_partial": "partial",
        "task_ends": "known",
    },
):
    """Shard of which this broker is the standby."""

    owner: str
    term: int
    jobs: dict[JobId, Replica] = {}
    old_ends: dict[JobId, dict[int, tuple[int, int]]] = {}
    """Ends as in ``task_ends``, in states that were dumped before that field existed."""
    cancelled: list[JobId] = []
    accepted_at: dict[JobId, int] = {}
    """Time of acceptance of each job, on this broker's clock."""
    takeover_id: int = 0
    """Id of the latest takeover attempt; 0: there was none."""
    clusters_asked: int = 1 << 30
    """Number of clusters, the first ones of the league, that this attempt has asked."""
    is_taking_over: bool = False
    retry_at: int = 0
    answers: dict[str, bool] = {}
    running: list[tuple[str, TaskId, int]] = []
    ends: list[tuple[str, AttemptEnd]] = []
    is_partial: bool = False
    """True if jobs are missing that the owner had before this term: then the copy must not be used."""
    task_ends: dict[JobId, TaskEnds] = {}
    """Ends of the tasks of each job."""


class StandbyShards:
    """Shards of which this broker is the standby."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.shards: dict[ShardId, StandbyShard] = {}
        self.takeover_count = 0
        """Takeover attempts started so far."""

    def handlers(self) -> dict[type, Callable[[str, Any], None]]:
        """Return the handlers by message type."""
        return {
            ReplicateJobs: self.on_replicate_jobs,
            ReplicaUpdate: self.on_replica_update,
            DropReplicas: self.on_drop_replicas,
        }

    def restore(self, shards: dict[ShardId, StandbyShard], takeover_count: int) -> None:
        """Restore a dumped state."""
        self.shards, self.takeover_count = upgrade_standby_shards(shards), takeover_count

    def find_leftovers(self) -> list[str]:
        """List what should not exist when no work is left."""
        return [f"takeover of {e} is under way" for e, w in self.shards.items() if w.is_taking_over]

    def on_replicate_jobs(self, owner: str, message: ReplicateJobs) -> None:
        """Store copies of a peer's jobs, and acknowledge at once, because a submitter waits."""
        if message.shard in self.context.owned_shards.state.owned:
            return  # taken over: its former owner is told so
        self.context.links.send_soft(self.context.effects, owner, Ack())
        shard_copy = self.shards.get(message.shard)
        if shard_copy is not None and message.term > shard_copy.term:
            if shard_copy.is_taking_over:
                self.abort_takeover(message.shard, shard_copy)
            self.context.history.drop_copies(message.shard, shard_copy.owner)
            shard_copy = None  # a new term starts with a new copy of everything
        if shard_copy is None:
            shard_copy = StandbyShard(
                owner, message.term, {}, {}, [], {}, answers={}, running=[], ends=[], task_ends={}
            )
            self.shards[message.shard] = shard_copy
        if message.term < shard_copy.term:
            return
        shard_copy.is_partial = message.more_follow
        self.context.history.add_copies(message.shard, shard_copy.owner, message.jobs)
        for replica in message.jobs:
            shard_copy.accepted_at[replica.job] = self.context.now - replica.age
            shard_copy.jobs[replica.job] = replica
            ends = shard_copy.task_ends[replica.job] = new_task_ends(replica.spec.task_count)
            for index, state, attempt in replica.ends:
                ends.add(index, state, attempt)

    def on_replica_update(self, owner: str, message: ReplicaUpdate) -> None:
        """Store the ends of a peer's jobs, unless the copies come from a later owner by now."""
        self.context.links.send_soft(self.context.effects, owner, Ack())
        shard_copy = self.shards.get(message.shard)
        if shard_copy is None or shard_copy.owner != owner:
            return
        self.context.history.update_copies(owner, message)
        for task, state, attempt in message.ends:
            ends = shard_copy.task_ends.get(job_of(task))
            if ends is not None:
                ends.add(index_of(task), state, attempt)
        for task, state, attempt, count in message.end_runs:
            ends = shard_copy.task_ends.get(job_of(task))
            if ends is not None:
                ends.add_run(index_of(task), state, attempt, count)
        for task, states, attempts in message.columns:
            ends = shard_copy.task_ends.get(job_of(task))
            if ends is not None:
                ends.add_column((index_of(task), states, attempts))
        shard_copy.cancelled += [job for job in message.cancelled if job in shard_copy.jobs]
        for job in message.forget:
            shard_copy.jobs.pop(job, None)
            shard_copy.task_ends.pop(job, None)
            shard_copy.accepted_at.pop(job, None)
            if job in shard_copy.cancelled:
                shard_copy.cancelled.remove(job)
        if not shard_copy.jobs:
            self._drop_shard(message.shard)

    def on_drop_replicas(self, owner: str, message: DropReplicas) -> None:
        """Drop copies of a shard that its owner has released or closed. Copies of a later owner stay."""
        shard_copy = self.shards.get(message.shard)
        if shard_copy is not None and shard_copy.owner == owner:
            self.context.mark("broker.dropped_copies")
            self.context.history.drop_copies(message.shard, owner)
            self._drop_shard(message.shard)

    def _drop_shard(self, shard: ShardId) -> None:
        """Drop the copies of a shard, and abort its takeover."""
        shard_copy = self.shards.pop(shard)
        if shard_copy.is_taking_over:
            self.abort_takeover(shard, shard_copy)

    def count_takeovers(self) -> int:
        """Count the takeovers under way: wardens that have agreed already would wait for this broker."""
        return sum(shard_copy.is_taking_over for shard_copy in self.shards.values())

    def has_job(self, job: JobId) -> bool:
        """True if a copy of a job is kept here."""
        return bool(self.find_owner(job))

    def find_owner(self, job: JobId) -> str:
        """Return the owner of a job that is kept here; "" if it is not."""
        return next((shard_copy.owner for shard_copy in self.shards.values() if job in shard_copy.jobs), "")

    def find_by_client_id(self, client_id: str) -> JobId | None:
        """Return the job with this client id that is kept here."""
        for shard_copy in self.shards.values():
            for replica in shard_copy.jobs.values():
                if replica.spec.client_id == client_id:
                    return replica.job
        return None

    def count_tasks(self, job: JobId) -> int | None:
        """Count the tasks of a job that is kept here; None if it is not."""
        for shard_copy in self.shards.values():
            replica = shard_copy.jobs.get(job)
            if replica is not None:
                return replica.spec.task_count
        return None

    def filter_ends(self, cluster: str, ends: tuple[AttemptEnd, ...]) -> Sequence[AttemptEnd]:
        """Return the ends that this broker must handle. Ends of jobs under takeover are kept until it is
        complete. Ends of other copied jobs came too late for an aborted takeover: wardens repeat them to the
        owner or with the next takeover, so they are not acknowledged here."""
        if not self.shards:
            return ends
        own_jobs = self.context.jobs
        remaining = []
        for end in ends:
            job = job_of(end.task)
            if job in own_jobs:
                remaining.append(end)
                continue
            shard_copy = next(
                (shard_copy for shard_copy in self.shards.values() if job in shard_copy.jobs), None
            )
            if shard_copy is None:
                remaining.append(end)
            elif shard_copy.is_taking_over:
                shard_copy.ends.append((cluster, end))
            else:
                self.context.mark("broker.end_for_peer")
        return remaining

    def abort_takeover(self, shard: ShardId, shard_copy: StandbyShard) -> None:
        """Abort a takeover attempt at every warden; another one may begin later."""
        context = self.context
        for cluster in context.config.active_clusters:
            context.links.send(
                context.effects,
                context.now,
                cluster,
                AbortTakeover(shard, shard_copy.term, shard_copy.takeover_id),
            )
        shard_copy.is_taking_over = False
        turn = context.config.brokers.index(context.config.name) + 1  # standbys retry at different times
        shard_copy.retry_at = context.now + turn * context.timings.beat
        shard_copy.answers.clear()
        shard_copy.running.clear()
        shard_copy.ends.clear()


def restore_placements(
    record: JobRecord, latest: LatestAttempts, place_of: Callable[[str], int]
) -> tuple[list[tuple[TaskId, int, str]], list[tuple[str, AttemptEnd]]]:
    """Set the tasks of a taken job to the places that wardens reported; return these, and the ends with their
    clusters."""
    found: list[tuple[TaskId, int, str]] = []
    ends: list[tuple[str, AttemptEnd]] = []
    for task, (attempt, cluster, end) in sorted(latest.items()):
        index = index_of(task)
        if record.state[index] == BLOCKED:
            record.attempt[index] = attempt
            record.state[index] = PLACED
            record.place[index] = place_of(cluster)
            found.append((task, attempt, cluster))
        if end is not None:
            ends.append((cluster, end))
    return found, ends


def can_take_over(shard_copy: StandbyShard) -> bool:
    """True if the copy has jobs and nothing of it is missing."""
    return bool(shard_copy.jobs) and not shard_copy.is_partial and is_complete(shard_copy)


def is_complete(shard_copy: StandbyShard) -> bool:
    """True if every copy has all the ends that were announced with it. They arrive before anything newer."""
    known = shard_copy.task_ends
    return all(
        not copy.ends_to_follow or known[job].count >= copy.ends_to_follow
        for job, copy in shard_copy.jobs.items()
    )


def upgrade_standby_shards(standby_shards: dict[ShardId, StandbyShard]) -> dict[ShardId, StandbyShard]:
    """Convert a dumped state from before ends were kept as columns."""
    for shard_copy in standby_shards.values():
        for job, replica in shard_copy.jobs.items():
            if job not in shard_copy.task_ends:
                ends = shard_copy.task_ends[job] = new_task_ends(replica.spec.task_count)
                for index, (state, attempt) in shard_copy.old_ends.pop(job, {}).items():
                    ends.add(index, state, attempt)
    return standby_shards


def restore_job(replica: Replica, shard_copy: StandbyShard, shard: ShardId, cut: CutEnds) -> JobRecord:
    """Build a record from a copy and its ends. Ended tasks keep their state; the rest is blocked for now."""
    record = new_record(replica.job, replica.spec, shard, shard_copy.accepted_at[replica.job])
    record.admitted = True
    record.cancelled = replica.cancelled
    base = ((shard_copy.term >> TERMS_BITS) + 1) << ATTEMPTS_BITS
    record.attempt = [base] * len(record.state)
    ends = shard_copy.task_ends[replica.job]
    runs, columns = cut
    for first, state, attempt, count in runs:
        behind = first + count
        record.state[first:behind] = bytes((state,)) * count
        record.attempt[first:behind] = [attempt] * count
        record.ran[first:behind] = bytes((attempt > 0,)) * count
    for column in columns:
        first, behind = column[0], column[0] + len(column[1])
        ended = np.frombuffer(column[1], dtype=np.uint8) > 0
        known = np.array(ends.attempt[first:behind], dtype=object)  # reuses the existing int objects
        record.state[first:behind] = column[1]  # what has not ended is blocked, which is 0 too
        record.attempt[first:behind] = np.where(ended, known, base).tolist()
        record.ran[first:behind] = ran_flags(column)
    record.tasks_left -= ends.count
    at = 0
    for group, part in enumerate(replica.spec.groups):
        record.unfinished[group] = record.state.count(BLOCKED, at, at + part.count)
        at += part.count
    return record


def latest_attempts(shard_copy: StandbyShard) -> dict[JobId, LatestAttempts]:
    """Return for each task of each job the latest attempt that any warden knows."""
    latest: dict[JobId, LatestAttempts] = {}
    entries = [(attempt, cluster, task, None) for cluster, task, attempt in shard_copy.running]
    entries += [(end.attempt, cluster, end.task, end) for cluster, end in shard_copy.ends]  # type: ignore[misc]
    for attempt, cluster, task, end in entries:
        tasks = latest.setdefault(job_of(task), {})
        known = tasks.get(task)
        if known is None or attempt > known[0] or (attempt == known[0] and end is not None):
            tasks[task] = (attempt, cluster, end)
    return latest
