"""In-memory record of a job that has not ended, for the projector: columns with one entry per task.

The columns hold only the data that the projector needs to apply the next event; the rest is in the file.
"""

from bisect import bisect_right
from typing import Final

import msgspec

from hanse.api.rows import (
    BLOCKED,
    CANCELLED,
    FAILED,
    KINDS,
    PLACED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
)
from hanse.model.ids import JobId
from hanse.model.job import JobSpec, OnLoss
from hanse.model.messages import ShardId
from hanse.model.resources import Resources

LARGE_TASKS: Final = 4_096
"""Above this number of tasks, a cancelled job gets no rows for tasks that never ran: a million rows would
delay all readers, without any information. If no task of a group waits, its tasks without a row were
cancelled."""


class Placement(msgspec.Struct):
    """Tasks of a job that were claimed together. Valid for a task while this is its latest attempt and it has
    not started."""

    number: int
    """Number of the placement in the job."""
    cluster: int
    tasks: tuple[int, ...]
    attempts: tuple[int, ...]
    nodes: list[int]
    """Proposed or substituted nodes; -1: the warden chooses."""
    size: Resources | None = None
    """Size of each task, if it differs from the group's ``ask``."""
    saved: bool = False
    """True if the file has the placement in this state."""


class LiveJob(msgspec.Struct):
    """State of one job. Times are moments, see ``clock_mapping``."""

    id: JobId
    spec: JobSpec
    owner: str
    estate: ShardId
    submitted: int
    state: bytearray
    attempt: list[int]
    place: list[int]
    """By task: number of the cluster of the latest attempt; -1: none."""
    firsts: list[int]
    """By group: index of the first task."""
    totals: list[int]
    """Number of tasks by state."""
    parts: list[list[int]]
    """The same by group; empty if there is only one group."""
    lots: list[Placement]
    """Placements that are valid for one of their tasks, and the placements of this batch."""
    lots_seen: int = 0
    """Number of placements so far: the number of the next one."""
    lots_saved: bool = False
    """True if the file has placements of this job."""
    waits: dict[JobId, None] = {}
    """Jobs that must succeed first and are not known to have succeeded."""
    sizes: dict[int, Resources] = {}
    """By task: size of an elastic task, where it differs from the group's ``ask``."""
    failures: dict[int, int] = {}
    used: dict[int, None] = {}
    """Clusters in which tasks have run."""
    shown: int = -1
    """State of the job that users last saw; -1: none."""
    settled: int = -1
    """Published terminal state; -1: none."""
    started: int | None = None
    ended: int | None = None
    ended_serial: int | None = None
    cancelled: bool = False
    cancel_reason: str = ""
    fresh: bool = True
    """True if the file does not have the job yet."""
    decisions: int = 0

    def group_of(self, index: int) -> int:
        """Return the number of a task's group."""
        return bisect_right(self.firsts, index) - 1

    def span(self, group: int) -> tuple[int, int]:
        """Return the index of a group's first task, and one more than that of its last."""
        first = self.firsts[group]
        return first, first + self.spec.groups[group].count

    def move(self, index: int, state: int) -> None:
        """Set the state of a task, and update the counts."""
        old = self.state[index]
        self.state[index] = state
        totals = self.totals
        totals[old] -= 1
        totals[state] += 1
        if self.parts:
            part = self.parts[bisect_right(self.firsts, index) - 1]
            part[old] -= 1
            part[state] += 1

    def end_waiting(self) -> list[int]:
        """Return the waiting tasks that the caller must cancel, with a row each. Tasks of a large job that
        have no row in the file are cancelled here, and get none."""
        if len(self.state) > LARGE_TASKS:
            kept = self._tried()
            before = [self.state[index] for index in kept]
            for group in range(len(self.firsts)):
                self._swap(group, BLOCKED, CANCELLED)
                self._swap(group, QUEUED, CANCELLED)
            for index, state in zip(kept, before, strict=True):
                self.move(index, state)
            return kept
        return self._waiting()

    def _tried(self) -> list[int]:
        """Find waiting tasks that had an attempt. Attempts are checked in stretches: most tasks of a large
        job had none, and a check of each task would keep the interpreter from the event loop."""
        tried: list[int] = []
        for at in range(0, len(self.state), LARGE_TASKS):
            if any(self.attempt[at : at + LARGE_TASKS]):
                behind = min(at + LARGE_TASKS, len(self.state))
                tried += [one for one in range(at, behind) if self.attempt[one] and self.state[one] <= QUEUED]
        return tried

    def end_stretch(self, first: int, behind: int, state: int, attempt: int) -> bool:
        """Try to end a run of neighbours in the same state at once. Return False if each needs its own row.
        Tasks of a large job that never ran are cancelled here without a row, as in ``cancel_waiting``."""
        column = self.state[first:behind]
        if column.count(state) == len(column):
            return True
        old = column[0]
        alike = column.count(old) == len(column) and old <= QUEUED and not any(self.attempt[first:behind])
        if state != CANCELLED or attempt or not alike or len(self.state) <= LARGE_TASKS:
            return False
        group = self.group_of(first)
        if behind > self.span(group)[1]:
            return False
        self.state[first:behind] = bytes((state,)) * len(column)
        for counts in (self.totals, self.parts[group]) if self.parts else (self.totals,):
            counts[old] -= len(column)
            counts[state] += len(column)
        return True

    def _waiting(self) -> list[int]:
        return [index for index, state in enumerate(self.state) if state <= QUEUED]

    def block(self, group: int) -> None:
        """Block a group of a new job, because it waits for other jobs."""
        self._swap(group, QUEUED, BLOCKED)

    def attempts_at(self, group: int, cluster: int) -> list[int]:
        """Return a group's tasks that are placed or run in a cluster."""
        tasks = range(*self.span(group))
        return [at for at in tasks if self.place[at] == cluster and PLACED <= self.state[at] <= RUNNING]

    def fails_lost(self) -> bool:
        """Return True if a lost task fails: it must not run twice, and the job is not ending."""
        is_ending = self.cancelled or (self.spec.gang and self.totals[FAILED] > 0)
        return self.spec.on_loss is OnLoss.FAIL and not is_ending

    def release(self) -> None:
        """Queue every blocked group whose needs are met."""
        if self.waits or not self.totals[BLOCKED]:
            return
        names = {part.name: number for number, part in enumerate(self.spec.groups)}
        for group, part in enumerate(self.spec.groups):
            if not any(self.unfinished(names[need]) for need in part.needs):
                self.unblock(group)

    def unfinished(self, group: int) -> int:
        """Count the tasks of a group that have not ended."""
        return sum((self.parts[group] if self.parts else self.totals)[:SUCCEEDED])

    def unblock(self, group: int) -> None:
        """Queue the blocked tasks of a group, because its needs are met."""
        if self.totals[BLOCKED]:
            self._swap(group, BLOCKED, QUEUED)

    def _swap(self, group: int, old: int, new: int) -> None:
        first, behind = self.span(group)
        column = self.state[first:behind]
        count = column.count(old)
        if count:
            self.state[first:behind] = column.replace(bytes((old,)), bytes((new,)))
            for counts in (self.totals, self.parts[group]) if self.parts else (self.totals,):
                counts[old] -= count
                counts[new] += count

    def summary(self) -> int:
        """Return the state of the job as a whole: the most advanced state of a task that has not ended."""
        if self.settled >= 0:
            return self.settled
        totals = self.totals
        for state in (RUNNING, PLACED, QUEUED, BLOCKED):
            if totals[state]:
                return state
        return self.shown if self.shown >= 0 else QUEUED  # all have ended, and this is not yet published

    def outcome(self) -> int:
        """Return the terminal state of the job, from the known states of its tasks."""
        if self.cancelled:
            return CANCELLED
        if self.totals[SUCCEEDED] == len(self.state):
            return SUCCEEDED
        return FAILED if self.totals[FAILED] else CANCELLED

    def add_lot(
        self,
        cluster: int,
        tasks: tuple[int, ...],
        attempts: tuple[int, ...],
        nodes: list[int],
        size: Resources | None,
    ) -> None:
        """Add a placement: tasks were claimed."""
        if size is not None:
            self.sizes.update(dict.fromkeys(tasks, size))
        elif self.sizes:
            for index in tasks:
                self.sizes.pop(index, None)
        self.lots.append(Placement(self.lots_seen, cluster, tasks, attempts, nodes, size))
        self.lots_seen += 1

    def holds(self, batch: Placement) -> bool:
        """Return True if a placement is valid for any of its tasks."""
        state, attempts = self.state, self.attempt
        return any(
            state[index] == PLACED and attempts[index] == attempt
            for index, attempt in zip(batch.tasks, batch.attempts, strict=True)
        )


def new_live(
    job: JobId, spec: JobSpec, owner: str, shard: ShardId, submitted: int, waits: tuple[JobId, ...] = ()
) -> LiveJob:
    """Build a new job: a group is blocked if the job waits for other jobs, or if it needs other groups."""
    groups = spec.groups
    if len(groups) == 1:
        total = groups[0].count
        state = BLOCKED if waits or groups[0].needs else QUEUED
        column = bytearray((state,)) * total
        totals = [0] * KINDS
        totals[state] = total
        return LiveJob(
            job, spec, owner, shard, submitted, column, [0] * total, [-1] * total, [0], totals, [], [],
            waits=dict.fromkeys(waits),
        )  # fmt: skip
    column, firsts, parts = bytearray(), [], []
    for group in groups:
        state = BLOCKED if waits or group.needs else QUEUED
        firsts.append(len(column))
        column += bytearray((state,)) * group.count
        part = [0] * KINDS
        part[state] = group.count
        parts.append(part)
    totals = [sum(part[state] for part in parts) for state in range(KINDS)]
    total = len(column)
    return LiveJob(
        job, spec, owner, shard, submitted, column, [0] * total, [-1] * total, firsts, totals, parts, [],
        waits=dict.fromkeys(waits),
    )  # fmt: skip
