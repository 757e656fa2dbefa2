"""Messages that replicate jobs and their ends to a standby, split into sizes that every shell can carry.

The copy of a job carries its ends if they are few. Otherwise the ends follow in messages of their own: runs
of neighbours that ended alike, and columns elsewhere (``end_columns``). The copy states how many ends follow,
and a standby requests no takeover before it has them: a task that was published as ended must never run
again.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from hanse.core.broker.failover.end_columns import CutEnds, EndColumn, EndRun, attempts_of, cut_ends, has_ends
from hanse.core.broker.job_table import SUCCEEDED, JobRecord
from hanse.core.messaging.message_splitting import ENTRIES_MAX, ENTRY_BYTES, split_by_bytes, split_by_count
from hanse.model.ids import JobId, TaskId, task_id
from hanse.model.messages import Replica, ReplicateJobs, ReplicaUpdate, ShardId

REPLICATE_JOBS_MAX: Final = 64
"""Jobs in one message to the standby."""
INLINE_MAX: Final = 256
"""Ends that the copy itself carries, one by one."""
GROUP_BYTES: Final = 4_096
"""Upper estimate of the bytes of a group besides its payload."""
RUN_COMPARE_TASKS: Final = 1_024
"""Tasks that are compared at once in the search for runs."""

EndedTask = tuple[TaskId, int, int]
"""Task, terminal state, and attempt that led to it."""
TaskRun = tuple[TaskId, int, int, int]
"""First task, terminal state, attempt, and number of neighbours that ended alike."""


class TaskEnds(msgspec.Struct, gc=False):
    """Ends of a job as a standby knows them: columns with one entry per task."""

    state: bytearray
    """Terminal states; 0: the task has not ended."""
    attempt: list[int]
    count: int = 0
    """Number of ended tasks."""

    def add(self, index: int, state: int, attempt: int) -> None:
        """Add the end of a task."""
        if index < len(self.state):
            self.count += not self.state[index]
            self.state[index], self.attempt[index] = state, attempt

    def add_run(self, index: int, state: int, attempt: int, count: int) -> None:
        """Add the ends of neighbours that ended alike."""
        behind = min(index + count, len(self.state))
        if not index < behind:
            return
        self.count += self.state.count(0, index, behind)
        self.state[index:behind] = bytes((state,)) * (behind - index)
        self.attempt[index:behind] = [attempt] * (behind - index)

    def add_column(self, column: EndColumn) -> None:
        """Add a column of ends. Where the column has no end, a known end stays."""
        first, states, _ = column
        behind = min(first + len(states), len(self.state))
        if not first < behind:
            return
        fresh, tries = states[: behind - first], attempts_of(column)[: behind - first]
        before = self.state[first:behind]
        self.count -= len(before) - before.count(0)
        if before.count(0) < len(before):
            known = self.attempt[first:behind]
            tries = [new if state else old for state, new, old in zip(fresh, tries, known, strict=True)]
            fresh = bytes([state or old for state, old in zip(fresh, before, strict=True)])
        self.state[first:behind], self.attempt[first:behind] = fresh, tries
        self.count += len(fresh) - fresh.count(0)

    def runs(self) -> Iterator[EndRun]:
        """Return all ends as runs."""
        return find_end_runs(self.state, self.attempt)

    def cut(self) -> CutEnds:
        """Return all ends in parts of bounded size."""
        return cut_ends(self.state, self.attempt)


def new_task_ends(tasks: int) -> TaskEnds:
    """Create the ends of a job of which nothing has ended."""
    return TaskEnds(bytearray(tasks), [0] * tasks)


def replica_messages(
    shard: ShardId, term: int, jobs: list[JobRecord], now: int, cuts: dict[JobId, CutEnds]
) -> Iterator[ReplicateJobs | ReplicaUpdate]:
    """Yield, in order, the messages that make a peer the standby of these jobs. ``cuts``: ends of jobs that
    have been cut already."""
    if len(jobs) == 1 and not _count_ended(jobs[0]):  # a new job: hot
        yield ReplicateJobs(shard, term, (make_replica(jobs[0], now),), False)
        return
    parts = [jobs] if len(jobs) == 1 else list(split_by_bytes(jobs, _weight, REPLICATE_JOBS_MAX))
    for number, part in enumerate(parts, 1):
        yield ReplicateJobs(
            shard, term, tuple([make_replica(record, now) for record in part]), number < len(parts)
        )
        for record in part:
            if _count_ended(record) > INLINE_MAX:
                yield from _messages_with_ends(shard, record, cuts.get(record.id))


def _messages_with_ends(shard: ShardId, record: JobRecord, cut: CutEnds | None) -> Iterator[ReplicaUpdate]:
    """Yield the messages with the ends that follow a copy."""
    base = task_id(record.id, 0)
    runs, columns = cut or cut_ends(record.state, record.attempt, record.ran)
    for part in split_by_count(runs) if runs else ():
        yield ReplicaUpdate(shard, (), end_runs=tuple([(TaskId(base + run[0]), *run[1:]) for run in part]))
    for first, states, attempts in columns:
        yield ReplicaUpdate(shard, (), columns=((TaskId(base + first), states, attempts),))


def replica_update_messages(
    shard: ShardId, done: Sequence[EndedTask], runs: Sequence[TaskRun], cancelled: Sequence[JobId],
    forget: Sequence[JobId],
) -> Iterator[ReplicaUpdate]:  # fmt: skip
    """Yield, in order, the messages that tell a standby what has ended. Cancelled jobs come first, so that
    their many ends repeat what is known. Jobs to forget come last: they concern the tasks before them."""
    if len(done) + len(runs) <= ENTRIES_MAX:
        yield ReplicaUpdate(shard, tuple(done), tuple(cancelled), tuple(forget), tuple(runs))
        return
    for some in split_by_count(runs) if runs else ():
        yield ReplicaUpdate(shard, (), tuple(cancelled), end_runs=tuple(some))
        cancelled = ()
    parts = list(split_by_count(done))
    for part in parts[:-1]:
        yield ReplicaUpdate(shard, tuple(part), tuple(cancelled))
        cancelled = ()
    yield ReplicaUpdate(shard, tuple(parts[-1]), tuple(cancelled), tuple(forget))


def make_replica(record: JobRecord, now: int) -> Replica:
    """Build the copy of a job for its standby, with its ends if they are few."""
    age, ended = now - record.accepted_at, _count_ended(record)
    if not ended:  # most jobs, when they are accepted
        return Replica(record.id, record.spec, age, (), record.cancelled)
    if ended > INLINE_MAX:
        return Replica(record.id, record.spec, age, (), record.cancelled, ended)
    done = tuple(
        (index + at, state, attempt)
        for index, state, attempt, count in ends_of(record)
        for at in range(count)
    )
    return Replica(record.id, record.spec, age, done, record.cancelled)


def ends_of(record: JobRecord) -> Iterator[EndRun]:
    """Yield the runs of a job's ended tasks, in order; a task that never ran has attempt 0."""
    return find_end_runs(record.state, record.attempt, record.ran)


def find_end_runs(states: bytearray, attempts: list[int], ran: bytearray | None = None) -> Iterator[EndRun]:
    """Yield runs of ended tasks of one state and attempt; ``ran``: flags of tasks with an attempt that counts
    (None: all). Equal stretches are compared as a whole: a look at each of a million tasks would take too
    long."""
    first, length = 0, 0
    last = (-1, -1)
    for at in range(0, len(states), RUN_COMPARE_TASKS):
        behind = at + RUN_COMPARE_TASKS
        block = states[at:behind]
        if not has_ends(block):
            if last[0] >= SUCCEEDED:
                yield first, *last, length
            first, length, last = at + len(block), 0, (-1, -1)
            continue
        tries = attempts[at:behind]
        if ran is not None and 0 in ran[at:behind]:
            tries = [attempt if one else 0 for attempt, one in zip(tries, ran[at:behind], strict=True)]
        if block.count(block[0]) == len(block) and tries.count(tries[0]) == len(tries):
            parts = [((block[0], tries[0]), len(block))]
        elif max(tries) < 256:
            parts = _split_runs(bytes(block), bytes(tries))
        else:
            parts = [(key, len(list(same))) for key, same in groupby(zip(block, tries, strict=True))]
        for key, count in parts:
            if key == last:
                length += count
                continue
            if last[0] >= SUCCEEDED:
                yield first, *last, length
            first, length, last = first + length, count, key
    if last[0] >= SUCCEEDED:
        yield first, *last, length


def _split_runs(states: bytes, attempts: bytes) -> list[tuple[tuple[int, int], int]]:
    """Split two columns into runs, with as many steps as there are runs, not tasks."""
    found = []
    while states:
        alike = len(states) - len(states.lstrip(states[:1]))
        count = min(alike, len(attempts) - len(attempts.lstrip(attempts[:1])))
        found.append(((states[0], attempts[0]), count))
        states, attempts = states[count:], attempts[count:]
    return found


def _count_ended(record: JobRecord) -> int:
    return len(record.state) - record.tasks_left


def _weight(record: JobRecord) -> int:
    groups = record.spec.groups
    entries = min(_count_ended(record), INLINE_MAX)
    return sum([len(group.payload) + GROUP_BYTES for group in groups]) + entries * ENTRY_BYTES
