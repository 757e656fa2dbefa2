"""A job that has not ended, as the projector keeps it in memory: columns with one entry a task.

The columns say only what the next event must be judged by; all the rest is in the file.
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
"""A job with more tasks than this that is cancelled gets no row for those that never ran: a million rows
would keep everybody waiting, and say nothing. If nothing of a group waits, its tasks without a row were
cancelled."""


class Placement(msgspec.Struct):
    """Tasks of a job that were claimed together. Holds for a task while this is its latest attempt and it has
    not started."""

    number: int
    """Its own number in the job."""
    cluster: int
    tasks: tuple[int, ...]
    attempts: tuple[int, ...]
    nodes: list[int]
    """Proposed or substituted; -1: left to the warden."""
    size: Resources | None = None
    """What each task gets, if that is not what it asked for at least."""
    saved: bool = False
    """Whether the file has it as it is."""


class LiveJob(msgspec.Struct):
    """One job. Moments are machine time, see ``clock_mapping``."""

    id: JobId
    spec: JobSpec
    owner: str
    estate: ShardId
    submitted: int
    state: bytearray
    attempt: list[int]
    place: list[int]
    """Number of the cluster of the latest attempt; -1: none."""
    firsts: list[int]
    """Each group's first task."""
    totals: list[int]
    """Tasks by state."""
    parts: list[list[int]]
    """The same by group; empty when there is only one."""
    lots: list[Placement]
    """Those that still hold for one of their tasks, and those of this batch."""
    lots_seen: int = 0
    """Placements so far: the number of the next one."""
    lots_saved: bool = False
    """Whether the file has any."""
    waits: dict[JobId, None] = {}
    """Jobs that must succeed first, as far as is known."""
    sizes: dict[int, Resources] = {}
    """What elastic tasks were given, where that is not what they asked for at least."""
    failures: dict[int, int] = {}
    used: dict[int, None] = {}
    """Clusters in which its tasks have run."""
    shown: int = -1
    """The state that people were last told; -1: none."""
    settled: int = -1
    """The terminal state that was made known; -1: none."""
    started: int | None = None
    ended: int | None = None
    ended_serial: int | None = None
    cancelled: bool = False
    cancel_reason: str = ""
    fresh: bool = True
    """Whether the file does not have it yet."""
    decisions: int = 0

    def group_of(self, index: int) -> int:
        """The group of a task."""
        return bisect_right(self.firsts, index) - 1

    def span(self, group: int) -> tuple[int, int]:
        """A group's first task, and the one behind its last."""
        first = self.firsts[group]
        return first, first + self.spec.groups[group].count

    def move(self, index: int, state: int) -> None:
        """A task comes into another state."""
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
        """Everything that waits is to be cancelled: which tasks must be settled, with a row for each. Those
        of a large job of which the file has no row are cancelled here, and get none."""
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
        """Tasks that wait and have been tried. Attempts are looked at a stretch at a time: most of a large
        job was never tried, and each task's look would keep the interpreter from the loop."""
        tried: list[int] = []
        for at in range(0, len(self.state), LARGE_TASKS):
            if any(self.attempt[at : at + LARGE_TASKS]):
                behind = min(at + LARGE_TASKS, len(self.state))
                tried += [one for one in range(at, behind) if self.attempt[one] and self.state[one] <= QUEUED]
        return tried

    def end_stretch(self, first: int, behind: int, state: int, attempt: int) -> bool:
        """Neighbours have ended alike: whether nothing more is to be done. Of a large job those that never
        ran are cancelled here and get no row, as in ``end_waiting``."""
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
        """A group of a new job waits for other jobs."""
        self._swap(group, QUEUED, BLOCKED)

    def attempts_at(self, group: int, cluster: int) -> list[int]:
        """A group's tasks that run in a cluster, or are on their way there."""
        tasks = range(*self.span(group))
        return [at for at in tasks if self.place[at] == cluster and PLACED <= self.state[at] <= RUNNING]

    def fails_lost(self) -> bool:
        """Whether a task that is lost fails: it must not run twice, and the job goes on."""
        is_ending = self.cancelled or (self.spec.gang and self.totals[FAILED] > 0)
        return self.spec.on_loss is OnLoss.FAIL and not is_ending

    def release(self) -> None:
        """Let every group wait for room whose needs are met."""
        if self.waits or not self.totals[BLOCKED]:
            return
        names = {part.name: number for number, part in enumerate(self.spec.groups)}
        for group, part in enumerate(self.spec.groups):
            if not any(self.unfinished(names[need]) for need in part.needs):
                self.unblock(group)

    def unfinished(self, group: int) -> int:
        """How many tasks of a group have not ended."""
        return sum((self.parts[group] if self.parts else self.totals)[:SUCCEEDED])

    def unblock(self, group: int) -> None:
        """What a group needs has succeeded: its tasks wait for room."""
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
        """The state of the job as a whole: that of the task that has come furthest without having ended."""
        if self.settled >= 0:
            return self.settled
        totals = self.totals
        for state in (RUNNING, PLACED, QUEUED, BLOCKED):
            if totals[state]:
                return state
        return self.shown if self.shown >= 0 else QUEUED  # all have ended, and nobody may know it yet

    def outcome(self) -> int:
        """How it ended, if all that is known of its tasks is all there is."""
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
        """Tasks were claimed."""
        if size is not None:
            self.sizes.update(dict.fromkeys(tasks, size))
        elif self.sizes:
            for index in tasks:
                self.sizes.pop(index, None)
        self.lots.append(Placement(self.lots_seen, cluster, tasks, attempts, nodes, size))
        self.lots_seen += 1

    def holds(self, batch: Placement) -> bool:
        """Whether a placement still says something about any of its tasks."""
        state, attempts = self.state, self.attempt
        return any(
            state[index] == PLACED and attempts[index] == attempt
            for index, attempt in zip(batch.tasks, batch.attempts, strict=True)
        )


def new_live(
    job: JobId, spec: JobSpec, owner: str, shard: ShardId, submitted: int, waits: tuple[JobId, ...] = ()
) -> LiveJob:
    """A job as it begins: blocked if it waits for other jobs, and in each group that needs another one."""
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
