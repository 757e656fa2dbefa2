"""Check of the history effects of brokers: a fold over them must give what the broker's own job table says.

A fact that is not stated, or is stated in a wrong order, leaves the fold with another state than the broker.
The fold is as small as possible: a state and an attempt for each task. It knows nothing of messages, retries
or takeovers, as a reader should not. A broker that is restored from a snapshot begins a new fold with it.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hanse.core.broker.broker import Broker
from hanse.core.broker.failover.end_columns import ends_in
from hanse.core.broker.failover.owned_shards import OwnedShard
from hanse.core.broker.failover.standby import StandbyShard
from hanse.core.broker.job_table import (
    BLOCKED,
    CANCELLED,
    CLAIMED,
    PLACED,
    RUNNING,
    STATE_NAMES,
    SUCCEEDED,
    WAITING,
    JobRecord,
    is_unqueued,
)
from hanse.model.effects import Effect, JobSettled
from hanse.model.events import Event
from hanse.model.history_effects import (
    HISTORY_EFFECTS,
    AttemptsEnded,
    CopiesAdded,
    CopiesDropped,
    CopiesUpdated,
    GroupUnblocked,
    JobAdded,
    JobCancelled,
    JobDropped,
    JobsTransferred,
    TasksCancelled,
    TasksPlaced,
    TasksResumed,
    TasksStarted,
)
from hanse.model.ids import JobId, index_of, job_of, job_text
from hanse.model.job import JobSpec
from hanse.model.messages import ShardId
from hanse.sim.world import Violation

PROMISE: Final = "history tells what brokers hold"
FOLDED_EFFECTS: Final = HISTORY_EFFECTS | {JobSettled}
"""Types of the effects that the fold applies, or knows and leaves out."""
_ACCEPTED: Final = bytes.maketrans(bytes((CLAIMED,)), bytes((PLACED,)))
"""The history does not say when a warden has accepted a claim."""
_GIVEN_UP: Final = bytes.maketrans(bytes((BLOCKED, WAITING)), bytes((CANCELLED, CANCELLED)))
"""The history says at once that the waiting tasks of a cancelled job end; the broker ends them in slices."""
_QUEUED: Final = bytes.maketrans(bytes((BLOCKED,)), bytes((WAITING,)))
"""The history says at once that a group is queued; the broker queues it in slices."""

_ENDS: Final = bytes(state if state >= SUCCEEDED else 0 for state in range(256))
"""State -> the part of it that a standby knows: the end."""


class FoldedJob(msgspec.Struct, gc=False):
    """Job as a reader of the history knows it."""

    spec: JobSpec
    shard: str
    owner: str
    state: bytearray
    attempt: list[int]
    is_copy: bool = False
    """True if this broker is its standby."""


class JobFold:
    """Fold over the history of one broker."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.jobs: dict[JobId, FoldedJob] = {}
        self._heard: dict[JobId, None] = {}
        """Jobs that were ever known. The end of one that is not known any more may still be published, and an
        outdated copy of it may be kept."""
        self._appliers: dict[type, Callable[[Any], None]] = {
            JobAdded: self._on_job_added,
            JobDropped: self._on_job_dropped,
            JobCancelled: self._on_job_cancelled,
            JobsTransferred: self._on_jobs_transferred,
            GroupUnblocked: self._on_group_unblocked,
            TasksPlaced: self._on_tasks_placed,
            TasksStarted: self._on_tasks_started,
            AttemptsEnded: self._on_attempts_ended,
            TasksCancelled: self._on_tasks_cancelled,
            TasksResumed: self._on_tasks_resumed,
            CopiesAdded: self._on_copies_added,
            CopiesUpdated: self._on_copies_updated,
            CopiesDropped: self._on_copies_dropped,
            JobSettled: self._on_job_settled,
        }

    def apply(self, effects: list[Effect]) -> None:
        """Apply the facts among the effects of one event."""
        appliers = self._appliers
        for effect in effects:
            applier = appliers.get(type(effect))
            if applier is not None:
                applier(effect)

    def begin(
        self,
        records: dict[JobId, JobRecord],
        standby_shards: dict[ShardId, StandbyShard],
        owned: dict[ShardId, OwnedShard],
    ) -> None:
        """Begin with what a broker holds."""
        self.jobs = {}
        for shard, standby in standby_shards.items():
            for number, replica in standby.jobs.items():
                job = self._new_job(replica.spec, shard, standby.owner)
                job.is_copy = True
                ends = standby.task_ends[number].state
                job.state = bytearray(map(max, zip(job.state, ends, strict=True)))
                self.jobs[number] = job
        for record in records.values():
            if record.admitted or record.cancelled:
                state = bytearray(_expected_states(record))
                self.jobs[record.id] = FoldedJob(
                    record.spec, record.shard, self.broker, state, list(record.attempt)
                )
        unpublished = {
            JobId(subject): None
            for one in owned.values()
            for _, subject, attempt, _ in one.publishing
            if attempt < 0
        }
        self._heard = dict.fromkeys(self.jobs) | unpublished

    def _new_job(self, spec: JobSpec, shard: str, owner: str) -> FoldedJob:
        state = bytearray()
        for group in spec.groups:
            state += bytes((BLOCKED if spec.after or group.needs else WAITING,)) * group.count
        return FoldedJob(spec, shard, owner, state, [0] * len(state))

    # --- own jobs ------------------------------------------------------------------------------------------

    def _on_job_added(self, fact: JobAdded) -> None:
        self._heard[fact.job] = None
        self.jobs[fact.job] = self._new_job(fact.spec, fact.shard, self.broker)

    def _on_job_dropped(self, fact: JobDropped) -> None:
        self.jobs.pop(fact.job, None)

    def _on_job_cancelled(self, fact: JobCancelled) -> None:
        job = self.jobs[fact.job]
        job.state = job.state.translate(_GIVEN_UP)

    def _on_jobs_transferred(self, fact: JobsTransferred) -> None:
        for number in fact.jobs:
            job = self.jobs.get(number)
            if job is not None:
                job.owner, job.is_copy = fact.owner, False
            elif fact.owner == self.broker:
                raise Violation(PROMISE, f"{self.broker} takes {job_text(number)} over, unheard of")

    def _on_group_unblocked(self, fact: GroupUnblocked) -> None:
        job = self.jobs[fact.job]
        first = sum(group.count for group in job.spec.groups[: fact.group])
        behind = first + job.spec.groups[fact.group].count
        job.state[first:behind] = job.state[first:behind].translate(_QUEUED)

    def _on_tasks_placed(self, fact: TasksPlaced) -> None:
        job = self.jobs[fact.batch.job]
        for index, attempt in zip(fact.batch.tasks, fact.batch.attempts, strict=True):
            self._expect(fact.batch.job, index, (WAITING,), "placed")
            job.state[index], job.attempt[index] = PLACED, attempt

    def _on_tasks_started(self, fact: TasksStarted) -> None:
        for task, attempt, _ in fact.entries:
            job, index = self._expect(job_of(task), index_of(task), (PLACED,), "started")
            if job.attempt[index] != attempt:
                raise Violation(PROMISE, f"{self.broker} starts attempt {attempt}", task)
            job.state[index] = RUNNING

    def _on_attempts_ended(self, fact: AttemptsEnded) -> None:
        for task, state, end in fact.ends:
            allowed = (PLACED, RUNNING) if end is None or end.attempt else (BLOCKED, WAITING)
            job, index = self._expect(job_of(task), index_of(task), allowed, "ended")
            if end is not None and end.attempt and job.attempt[index] != end.attempt:
                raise Violation(PROMISE, f"{self.broker} ends attempt {end.attempt}", task)
            job.state[index] = state

    def _on_tasks_cancelled(self, fact: TasksCancelled) -> None:
        state = self.jobs[fact.job].state
        for first, count in fact.runs:
            state[first : first + count] = state[first : first + count].translate(_GIVEN_UP)

    def _on_tasks_resumed(self, fact: TasksResumed) -> None:
        for task, attempt, _ in fact.attempts:
            job, index = self._expect(fact.job, index_of(task), (BLOCKED, WAITING), "resumed")
            job.state[index], job.attempt[index] = PLACED, attempt

    def _expect(
        self, number: JobId, index: int, allowed: tuple[int, ...], what: str
    ) -> tuple[FoldedJob, int]:
        job = self.jobs.get(number)
        if job is None or job.owner != self.broker or job.state[index] not in allowed:
            known = "unknown" if job is None else f"{STATE_NAMES[job.state[index]]} at {job.owner}"
            text = f"{self.broker} says that {job_text(number)}.{index} is {what}, and it was {known}"
            raise Violation(PROMISE, text, job=number)
        return job, index

    def _on_job_settled(self, fact: JobSettled) -> None:
        job = self.jobs.pop(fact.job, None)
        if job is None:
            if fact.job in self._heard:
                return
            raise Violation(PROMISE, f"{self.broker} settles {job_text(fact.job)}, unheard of", job=fact.job)
        if any(state < SUCCEEDED for state in job.state):
            text = f"{self.broker} settles {job_text(fact.job)}, of which tasks are left"
            raise Violation(PROMISE, text, job=fact.job)

    # --- copies --------------------------------------------------------------------------------------------

    def _on_copies_added(self, fact: CopiesAdded) -> None:
        for replica in fact.jobs:
            job = self.jobs[replica.job] = self._new_job(replica.spec, fact.shard, fact.owner)
            job.is_copy, self._heard[replica.job] = True, None
            for index, state, _ in replica.ends:
                job.state[index] = state

    def _on_copies_updated(self, fact: CopiesUpdated) -> None:
        update = fact.update
        runs = [(task, bytes((state,)) * count) for task, state, _, count in update.end_runs]
        runs += [(task, bytes((state,))) for task, state, _ in update.ends]
        for task, states, attempts in update.columns:
            runs += [(task + at, bytes((state,))) for at, state, _ in ends_in((0, states, attempts))]  # type: ignore[misc]
        for task, column in runs:
            job = self._find_copy(job_of(task), fact)
            if job is not None:
                job.state[index_of(task) : index_of(task) + len(column)] = column
        for number in update.forget:
            if self._find_copy(number, fact) is not None:
                del self.jobs[number]

    def _find_copy(self, number: JobId, fact: CopiesUpdated) -> FoldedJob | None:
        job = self.jobs.get(number)
        return job if job is not None and (job.shard, job.owner) == (fact.update.shard, fact.owner) else None

    def _on_copies_dropped(self, fact: CopiesDropped) -> None:
        for number, job in list(self.jobs.items()):
            if (job.shard, job.owner) == (fact.shard, fact.owner):
                del self.jobs[number]

    # --- comparison ----------------------------------------------------------------------------------------

    def compare(self, records: dict[JobId, JobRecord], standby_shards: dict[ShardId, StandbyShard]) -> None:
        """Raise a violation where the fold and the broker differ."""
        for record in records.values():
            if record.admitted or record.cancelled:
                self._compare_job(record)
        for number, job in self.jobs.items():
            if job.is_copy:
                self._compare_copy(number, job, standby_shards.get(job.shard))
        for shard, standby in standby_shards.items():
            for number in standby.jobs:
                if number not in self._heard:
                    text = f"{self.broker} has a copy of {job_text(number)} of {shard}, unheard of"
                    raise Violation(PROMISE, text, job=number)

    def _compare_copy(self, number: JobId, job: FoldedJob, standby: StandbyShard | None) -> None:
        if standby is None or standby.owner != job.owner or number not in standby.jobs:
            raise Violation(PROMISE, f"{self.broker} has no copy of {job_text(number)}", job=number)
        if job.state.translate(_ENDS) != standby.task_ends[number].state:
            text = f"{self.broker} has other ends of the copy of {job_text(number)}"
            raise Violation(PROMISE, text, job=number)

    def _compare_job(self, record: JobRecord) -> None:
        job = self.jobs.get(record.id)
        if job is None or job.owner != self.broker:
            owner = "nobody" if job is None else job.owner
            raise Violation(PROMISE, f"{self.broker} owns {job_text(record.id)}, not {owner}", job=record.id)
        expected, said = _expected_states(record), bytes(job.state)
        if record.cancelled:
            said = said.translate(_GIVEN_UP)
        elif said != expected and is_unqueued(record):
            expected, said = expected.translate(_QUEUED), said.translate(_QUEUED)
        if said == expected and (job.attempt == record.attempt or _have_same_attempts(job, record)):
            return
        different = [at for at, (one, other) in enumerate(zip(expected, said, strict=True)) if one != other]
        raise Violation(
            PROMISE,
            f"{self.broker} holds {job_text(record.id)} otherwise than it says, tasks {different[:5]}:"
            f" {[(STATE_NAMES[expected[at]], STATE_NAMES[said[at]]) for at in different[:5]]}",
            job=record.id,
        )


def _have_same_attempts(job: FoldedJob, record: JobRecord) -> bool:
    """True if the live attempts are the same. The numbers of waiting tasks may differ: a new owner raises
    them."""
    attempts = zip(record.state, job.attempt, record.attempt, strict=True)
    return all(one == other for state, one, other in attempts if CLAIMED <= state <= RUNNING)


def _expected_states(record: JobRecord) -> bytes:
    """Return a job's states as the history tells them."""
    states = bytes(record.state).translate(_ACCEPTED)
    return states.translate(_GIVEN_UP) if record.cancelled else states


class CheckedBroker(Broker):
    """Broker whose history is folded, and compared with each of its checks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._fold = JobFold(self.name)

    def handle(self, event: Event) -> list[Effect]:
        """Handle one event, and apply its facts."""
        effects = super().handle(event)
        if not FOLDED_EFFECTS.isdisjoint(map(type, effects)):  # few events have any
            self._fold.apply(effects)
        return effects

    def restore(self, state: bytes) -> None:
        """Replace the state, and begin the fold with it."""
        super().restore(state)
        self._fold.begin(self._context.jobs, self._standby.shards, self._owned_shards.state.owned)

    def check(self) -> None:
        """Assert the invariants of the broker, and compare its history."""
        super().check()
        self._fold.compare(self._context.jobs, self._standby.shards)
