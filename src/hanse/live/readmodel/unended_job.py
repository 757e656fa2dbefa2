"""In-memory record of a job that has not ended, for the projector: columns with one entry per task.

The columns hold only the data that the projector needs to apply the next event; the rest is in the file.
"""

from bisect import bisect_right
from typing import Final

import msgspec

from hanse.api.row_records import (
    BLOCKED,
    CANCELLED,
    FAILED,
    PLACED,
    QUEUED,
    RUNNING,
    STATE_COUNT,
    SUCCEEDED,
)
from hanse.model.ids import JobId
from hanse.model.job import JobSpec
from hanse.model.messages import Outcome, ShardId
from hanse.model.resources import Resources

LARGE_JOB_TASKS: Final = 4_096
"""Above this number of tasks, a cancelled job gets no rows for tasks that never ran: a million rows would
delay all readers, without any information. If no task of a group waits, its tasks without a row were
cancelled."""

STATE_OF_CODE: Final = (BLOCKED, QUEUED, PLACED, PLACED, RUNNING, SUCCEEDED, FAILED, CANCELLED)
"""State in the read model, by the number of a state in a broker's job table."""
STATE_OF_OUTCOME: Final = {Outcome.SUCCEEDED: SUCCEEDED, Outcome.FAILED: FAILED, Outcome.CANCELLED: CANCELLED}


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


class UnendedJob(msgspec.Struct):
    """State of one job. Times are moments, see ``clock_mapping``."""

    id: JobId
    spec: JobSpec
    owner: str
    shard: ShardId
    submitted: int
    state: bytearray
    attempt: list[int]
    cluster: list[int]
    """By task: number of the cluster of the latest attempt; -1: none."""
    group_starts: list[int]
    """By group: index of the first task."""
    state_counts: list[int]
    """Number of tasks by state."""
    group_counts: list[list[int]]
    """The same by group; empty if there is only one group."""
    placements: list[Placement]
    """Placements that are valid for one of their tasks, and the placements of this batch."""
    placements_seen: int = 0
    """Number of placements so far: the number of the next one."""
    placements_saved: bool = False
    """True if the file has placements of this job."""
    sizes: dict[int, Resources] = {}
    """By task: size of an elastic task, where it differs from the group's ``ask``."""
    failures: dict[int, int] = {}
    clusters_used: dict[int, None] = {}
    """Clusters in which tasks have run."""
    shown_state: int = -1
    """State of the job that users last saw; -1: none."""
    settled_state: int = -1
    """Published terminal state; -1: none."""
    started: int | None = None
    ended: int | None = None
    ended_serial: int | None = None
    cancelled: bool = False
    cancel_reason: str = ""
    is_new: bool = True
    """True if the file does not have the job yet."""
    decision_count: int = 0

    def group_of(self, index: int) -> int:
        """Return the number of a task's group."""
        return bisect_right(self.group_starts, index) - 1

    def group_span(self, group: int) -> tuple[int, int]:
        """Return the index of a group's first task, and one more than that of its last."""
        first = self.group_starts[group]
        return first, first + self.spec.groups[group].count

    def set_state(self, index: int, state: int) -> None:
        """Set the state of a task, and update the counts."""
        old = self.state[index]
        self.state[index] = state
        counts = self.state_counts
        counts[old] -= 1
        counts[state] += 1
        if self.group_counts:
            part = self.group_counts[bisect_right(self.group_starts, index) - 1]
            part[old] -= 1
            part[state] += 1

    def cancel_waiting(self) -> list[int]:
        """Return the waiting tasks that the caller must cancel, with a row each. Tasks of a large job that
        have no row in the file are cancelled here, and get none."""
        if len(self.state) > LARGE_JOB_TASKS:
            tried = self._find_tried()
            before = [self.state[index] for index in tried]
            for group in range(len(self.group_starts)):
                self._replace_state(group, BLOCKED, CANCELLED)
                self._replace_state(group, QUEUED, CANCELLED)
            for index, state in zip(tried, before, strict=True):
                self.set_state(index, state)
            return tried
        return self._find_waiting()

    def _find_tried(self) -> list[int]:
        """Find waiting tasks that had an attempt. Attempts are checked in stretches: most tasks of a large
        job had none, and a check of each task would keep the interpreter from the event loop."""
        tried: list[int] = []
        for at in range(0, len(self.state), LARGE_JOB_TASKS):
            if any(self.attempt[at : at + LARGE_JOB_TASKS]):
                stop = min(at + LARGE_JOB_TASKS, len(self.state))
                tried += [
                    index for index in range(at, stop) if self.attempt[index] and self.state[index] <= QUEUED
                ]
        return tried

    def end_run(self, first: int, stop: int, state: int, attempt: int) -> bool:
        """Try to end a run of neighbours in the same state at once. Return False if each needs its own row.
        Tasks of a large job that never ran are cancelled here without a row, as in ``cancel_waiting``."""
        column = self.state[first:stop]
        if column.count(state) == len(column):
            return True
        old = column[0]
        alike = column.count(old) == len(column) and old <= QUEUED and not any(self.attempt[first:stop])
        if state != CANCELLED or attempt or not alike or len(self.state) <= LARGE_JOB_TASKS:
            return False
        group = self.group_of(first)
        if stop > self.group_span(group)[1]:
            return False
        self.state[first:stop] = bytes((state,)) * len(column)
        for counts in (
            (self.state_counts, self.group_counts[group]) if self.group_counts else (self.state_counts,)
        ):
            counts[old] -= len(column)
            counts[state] += len(column)
        return True

    def _find_waiting(self) -> list[int]:
        return [index for index, state in enumerate(self.state) if state <= QUEUED]

    def unblock_ready_groups(self) -> None:
        """Queue every blocked group of a copy whose needed groups have succeeded: owners do not report it."""
        if self.spec.after or not self.state_counts[BLOCKED]:
            return
        succeeded = {
            part.name: counts[SUCCEEDED] == part.count
            for part, counts in zip(self.spec.groups, self.group_counts, strict=False)
        }
        for group, part in enumerate(self.spec.groups):
            if all(succeeded[need] for need in part.needs):
                self.unblock_group(group)

    def unblock_group(self, group: int) -> None:
        """Queue the blocked tasks of a group."""
        if self.state_counts[BLOCKED]:
            self._replace_state(group, BLOCKED, QUEUED)

    def _replace_state(self, group: int, old: int, new: int) -> None:
        first, stop = self.group_span(group)
        column = self.state[first:stop]
        count = column.count(old)
        if count:
            self.state[first:stop] = column.replace(bytes((old,)), bytes((new,)))
            for counts in (
                (self.state_counts, self.group_counts[group]) if self.group_counts else (self.state_counts,)
            ):
                counts[old] -= count
                counts[new] += count

    def overall_state(self) -> int:
        """Return the state of the job as a whole: the most advanced state of a task that has not ended."""
        if self.settled_state >= 0:
            return self.settled_state
        counts = self.state_counts
        for state in (RUNNING, PLACED, QUEUED, BLOCKED):
            if counts[state]:
                return state
        return (
            self.shown_state if self.shown_state >= 0 else QUEUED
        )  # all have ended, and this is not yet published

    def final_state(self) -> int:
        """Return the terminal state of the job, from the known states of its tasks."""
        if self.cancelled:
            return CANCELLED
        if self.state_counts[SUCCEEDED] == len(self.state):
            return SUCCEEDED
        return FAILED if self.state_counts[FAILED] else CANCELLED

    def add_placement(
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
        self.placements.append(Placement(self.placements_seen, cluster, tasks, attempts, nodes, size))
        self.placements_seen += 1

    def substitute_node(self, index: int, cluster: int, node: int) -> bool:
        """Set the node of a task's latest placement in a cluster; return False if none is known."""
        for placement in reversed(self.placements):
            if placement.cluster == cluster and index in placement.tasks:
                placement.nodes[placement.tasks.index(index)] = node
                placement.saved = False
                return True
        return False

    def is_current(self, placement: Placement) -> bool:
        """Return True if a placement is valid for any of its tasks."""
        state, attempts = self.state, self.attempt
        return any(
            state[index] == PLACED and attempts[index] == attempt
            for index, attempt in zip(placement.tasks, placement.attempts, strict=True)
        )


def new_unended_job(job: JobId, spec: JobSpec, owner: str, shard: ShardId, submitted: int) -> UnendedJob:
    """Build a new job: a group is blocked if the job waits for other jobs, or if it needs other groups."""
    groups = spec.groups
    if len(groups) == 1:
        total = groups[0].count
        state = BLOCKED if spec.after or groups[0].needs else QUEUED
        column = bytearray((state,)) * total
        state_counts = [0] * STATE_COUNT
        state_counts[state] = total
        return UnendedJob(
            job, spec, owner, shard, submitted, column, [0] * total, [-1] * total, [0], state_counts, [], [],
        )  # fmt: skip
    column, group_starts, group_counts = bytearray(), [], []
    for group in groups:
        state = BLOCKED if spec.after or group.needs else QUEUED
        group_starts.append(len(column))
        column += bytearray((state,)) * group.count
        part = [0] * STATE_COUNT
        part[state] = group.count
        group_counts.append(part)
    state_counts = [sum(part[state] for part in group_counts) for state in range(STATE_COUNT)]
    total = len(column)
    return UnendedJob(
        job, spec, owner, shard, submitted, column, [0] * total, [-1] * total, group_starts, state_counts,
        group_counts, [],
    )  # fmt: skip
