"""Table of a broker's jobs: the state of each task, and what follows when a task ends.

Tasks are entries of columns, not objects. A task is BLOCKED until the groups it needs have succeeded, WAITING
in the queue, CLAIMED while a claim is on its way, PLACED when a warden has accepted it, RUNNING when it has
started; then it has one of the terminal states, which it never leaves.
"""

from typing import Final

import msgspec
import numpy as np

from hanse.model.ids import JobId
from hanse.model.job import JobClass, JobSpec
from hanse.model.messages import Outcome, QueueKey, Shape, ShardId, TaskTemplate
from hanse.model.resources import Resources
from hanse.policy.interface import JobFacts

BLOCKED: Final = 0
WAITING: Final = 1
CLAIMED: Final = 2
PLACED: Final = 3
RUNNING: Final = 4
SUCCEEDED: Final = 5
FAILED: Final = 6
CANCELLED: Final = 7
STATE_NAMES: Final = (
    "blocked",
    "waiting",
    "claimed",
    "placed",
    "running",
    "succeeded",
    "failed",
    "cancelled",
)
STATE_BY_OUTCOME: Final = {Outcome.SUCCEEDED: SUCCEEDED, Outcome.FAILED: FAILED, Outcome.CANCELLED: CANCELLED}
OUTCOME_BY_STATE: Final = {SUCCEEDED: Outcome.SUCCEEDED, FAILED: Outcome.FAILED, CANCELLED: Outcome.CANCELLED}
TRANSITIONS: Final = {
    (BLOCKED, WAITING): "all that the task needs has succeeded",
    (BLOCKED, PLACED): "after a takeover: a warden already has an attempt",
    (BLOCKED, CANCELLED): "something that the task needs did not succeed, or the job was cancelled",
    (WAITING, CLAIMED): "a claim was sent for room that the broker sees",
    (WAITING, PLACED): "the task was bound to room that a warden had granted",
    (WAITING, CANCELLED): "the job was cancelled, its deadline has passed, or its gang has failed",
    (CLAIMED, PLACED): "the warden accepted",
    (CLAIMED, WAITING): "the warden refused, or its cluster was given up",
    (CLAIMED, FAILED): "its cluster was given up, and `on_loss` is `fail` or the task was lost too often",
    (CLAIMED, CANCELLED): "the job was cancelled, and the attempt has ended",
    (PLACED, WAITING): "the attempt failed with a retry left, was stopped, lost or withdrawn",
    (PLACED, RUNNING): "the attempt started",
    (PLACED, SUCCEEDED): "the attempt succeeded before news of its start arrived",
    (PLACED, FAILED): "the attempt failed with no retry left, or was lost (too often, or `on_loss: fail`)",
    (PLACED, CANCELLED): "the job was cancelled, and the attempt has ended",
    (RUNNING, WAITING): "the attempt failed with a retry left, was stopped, lost or withdrawn",
    (RUNNING, SUCCEEDED): "the attempt succeeded",
    (RUNNING, FAILED): "the attempt failed with no retry left, or was lost (too often, or `on_loss: fail`)",
    (RUNNING, CANCELLED): "the job was cancelled, and the attempt has ended",
}
"""All changes of a task's state at its broker, and when they happen. Terminal states are never left."""
NEIGHBOURS_FEW: Final = 64
"""Number of tasks up to which a loop is used."""


class JobRecord(
    msgspec.Struct, gc=False, rename={"shard": "estate", "last_decision": "told", "tasks_left": "left"}
):
    """Job that has not ended. Lists are columns with one entry per task unless stated otherwise."""

    id: JobId
    spec: JobSpec
    shard: ShardId
    accepted_at: int
    client: str
    request: int
    state: bytearray
    attempt: list[int]
    ran: bytearray
    """1 if the terminal state came from an attempt; 0: the task never ran."""
    place: list[int]
    """Position of the task's cluster in the broker's configuration; -1: none."""
    group: list[int]
    """Group of each task; empty when there is only one group."""
    waiting: list[list[int]]
    """Per group: tasks in the queue, the next one last."""
    unfinished: list[int]
    """Per group: tasks not yet terminal."""
    keys: list[QueueKey]
    """Per group: its key in the queue."""
    lines: list[int]
    """Per group: its demand line; -1: none yet."""
    tasks_left: int
    """Tasks not yet terminal."""
    admitted: bool = False
    """True if the job is safe with the standby (or there is none), so acknowledged and free to run."""
    cancelled: bool = False
    cancel_reason: str = ""
    after: list[JobId] = []
    """Jobs that must succeed before this job starts and have not ended."""
    failures: dict[int, int] = {}
    losses: dict[int, int] = {}
    withdrawn: dict[int, int] = {}
    """Task -> attempt that the broker withdrew."""
    regrouped: dict[int, int] = {}
    """Task -> attempt that was withdrawn because a task of its gang failed and is retried."""
    sizes: dict[int, Resources] = {}
    """Task -> its ask, where a sizer chose the ask in advance."""
    served: list[int] = []
    """Per group: time at which one of its tasks last got room of a chosen size, or the time of acceptance."""
    placed: dict[int, tuple[int, bool]] = {}
    """Task -> time of placement, and True if at an advised size; only where a sizer takes advice."""
    last_decision: list[str] = []
    """Per group: the last recorded decision, so that only changes are recorded."""
    ready: dict[int, int] = {}
    """Group -> time since which it waits, or waited; only where tasks are placed by estimates."""
    limited_until: dict[int, int] = {}
    """Group -> time at which it stops to wait for a better place."""
    ran_on: dict[int, int] = {}
    """Running task -> column of its node class in the table of durations; only where they are learned."""
    samples: dict[int, list[tuple[int, float]]] = {}
    """Group -> column and seconds of tasks that succeeded."""

    def group_of(self, index: int) -> int:
        """Return the group of a task."""
        return self.group[index] if self.group else 0

    def facts(self, tenant_usage: int = 0, learned_duration: int = 0) -> JobFacts:
        """Return the facts that a queue order may use. ``learned_duration``: estimate of the broker; 0: the
        user's counts."""
        spec = self.spec
        duration = learned_duration or spec.groups[0].duration or 0
        latency = spec.klass is JobClass.LATENCY
        left, tenant = self.tasks_left, spec.tenant
        return JobFacts(
            self.accepted_at, len(self.state), left, duration, spec.priority, latency, tenant, tenant_usage
        )

    def outcome(self) -> Outcome:
        """Return how the job as a whole ended."""
        if self.cancelled:
            return Outcome.CANCELLED
        return Outcome.SUCCEEDED if self.state.count(SUCCEEDED) == len(self.state) else Outcome.FAILED


def new_record(job: JobId, spec: JobSpec, shard: ShardId, at: int) -> JobRecord:
    """Create the record of a new job: every task is blocked."""
    counts = [group.count for group in spec.groups]
    total = sum(counts)
    group = [g for g, count in enumerate(counts) for _ in range(count)] if len(counts) > 1 else []
    return JobRecord(
        id=job,
        spec=spec,
        shard=shard,
        accepted_at=at,
        client="",
        request=0,
        state=bytearray(total),
        attempt=[0] * total,
        ran=bytearray(total),
        place=[-1] * total,
        group=group,
        waiting=[[] for _ in counts],
        unfinished=counts,
        keys=[()] * len(counts),
        lines=[-1] * len(counts),
        tasks_left=total,
        after=list(spec.after),
        failures={},
        losses={},
        withdrawn={},
        regrouped={},
        sizes={},
        served=[at] * len(counts),
        placed={},
        last_decision=[""] * len(counts),
    )


def first_task(record: JobRecord, group: int) -> int:
    """Return the index of a group's first task."""
    return sum(g.count for g in record.spec.groups[:group])


def mark_waiting(record: JobRecord, tasks: list[int]) -> None:
    """Mark tasks as waiting; each is once in the list. Many blocked tasks are marked at once: a loop over a
    million of them would take longer than an event may."""
    state, place, count = record.state, record.place, len(tasks)
    if count > NEIGHBOURS_FEW:  # blocked tasks have no place
        first, behind = tasks[-1], tasks[0] + 1
        if behind - first == count == state.count(BLOCKED, first, behind):
            state[first:behind] = bytes((WAITING,)) * count
            return
        column, chosen = np.frombuffer(state, dtype=np.uint8), np.array(tasks, dtype=np.int64)
        if not column[chosen].any():
            column[chosen] = WAITING
            return
    for index in tasks:
        state[index] = WAITING
        place[index] = -1


def blocked_tasks(record: JobRecord, group: int, most: int) -> list[int]:
    """Return the first ``most`` blocked tasks of a group, the lowest index last: it is taken first."""
    first, count = first_task(record, group), record.spec.groups[group].count
    at = record.state.find(BLOCKED, first, first + count)
    if at < 0 or most <= 0:
        return []
    behind = min(at + most, first + count)
    if record.state.count(BLOCKED, at, behind) == behind - at:
        return list(range(behind - 1, at - 1, -1))
    column = np.frombuffer(record.state, dtype=np.uint8)[at : first + count]
    return (np.flatnonzero(column == BLOCKED)[:most][::-1] + at).tolist()  # type: ignore[no-any-return]


def find_unmet_need(record: JobRecord, group: int) -> str:
    """Return the first needed group that has not succeeded; "" if there is none. A group that needs a failed
    one is never queued: it is cancelled, in slices if it is large."""
    needs = record.spec.groups[group].needs
    if not needs:
        return ""
    names = {part.name: position for position, part in enumerate(record.spec.groups)}
    spans = spans_of(record.spec)
    for need in needs:
        if record.unfinished[names[need]] or has_failed(record.state, *spans[need]):
            return need
    return ""


def cancel_columns(record: JobRecord, first: int, count: int) -> int:
    """Cancel neighbours of one group that never ran; return their group. Whole columns are changed at once,
    so that thousands of tasks cost as much as one."""
    behind = first + count
    record.ran[first:behind] = bytes(count)
    record.state[first:behind] = bytes((CANCELLED,)) * count
    record.place[first:behind] = [-1] * count
    group = record.group_of(first)
    record.tasks_left -= count
    record.unfinished[group] -= count
    return group


def spans_of(spec: JobSpec) -> dict[str, tuple[int, int]]:
    """Return where each group's tasks are: the first, the one behind the last."""
    spans, at = {}, 0
    for group in spec.groups:
        spans[group.name] = at, at + group.count
        at += group.count
    return spans


def dependents_of(spec: JobSpec, group: int) -> list[tuple[int, int]]:
    """Return where the tasks are of the groups that need this one."""
    if len(spec.groups) == 1:
        return []
    name, spans = spec.groups[group].name, spans_of(spec)
    return [spans[other.name] for other in spec.groups if name in other.needs]


def has_failed(states: bytearray, first: int, behind: int) -> bool:
    """True if one of these tasks has ended without success."""
    return states.find(FAILED, first, behind) >= 0 or states.find(CANCELLED, first, behind) >= 0


def is_unqueued(record: JobRecord) -> bool:
    """True if tasks are blocked although their needs are met: they are to be queued."""
    if record.cancelled or record.after or not record.admitted or BLOCKED not in record.state:
        return False
    at = 0
    for group, part in enumerate(record.spec.groups):
        if record.state.find(BLOCKED, at, at + part.count) >= 0 and not find_unmet_need(record, group):
            return True
        at += part.count
    return False


def shape_of(spec: JobSpec, group: int, gang: int, kind: int = 0) -> Shape:
    """Return the shape of a group's tasks; ``gang`` of them must start together (0: each alone). ``kind``:
    number of the kind of work, where estimates tell kinds apart."""
    part = spec.groups[group]
    return Shape(
        ask=part.ask,
        ask_max=part.ask_max,
        where=part.where,
        affinity=part.affinity,
        labels=spec.labels,
        latency=spec.klass is JobClass.LATENCY,
        gang=gang,
        priority=spec.priority,
        preemptible=spec.preemptible,
        clusters_allowed=spec.clusters_allowed,
        clusters_forbidden=spec.clusters_forbidden,
        together=spec.together,
        spread=spec.spread,
        spread_max=spec.spread_max,
        kind=kind,
    )


def kind_of(spec: JobSpec, group: int) -> str:
    """Return the kind of a group: the name that its tasks share with tasks of other jobs."""
    return f"{spec.tenant}/{spec.name}/{spec.groups[group].name}"


def template_of(spec: JobSpec, group: int, shape: Shape, shard: ShardId) -> TaskTemplate:
    """Return what a warden must know of a group."""
    part = spec.groups[group]
    first = sum([before.count for before in spec.groups[:group]])
    return TaskTemplate(
        shape, shard, part.payload, spec.grace, spec.unreachable, part.duration, part.name, first, part.count
    )


def take_last(waiting: list[int], count: int) -> list[int]:
    """Remove and return ``count`` tasks from the end of a queue, the last one first."""
    tasks = waiting[-count:]
    del waiting[-count:]
    tasks.reverse()
    return tasks
