"""Projector: folds a broker's history into the visible state of its jobs.

The broker states each fact when it becomes true (``model.history_effects``), and decides nothing here: the
projector knows no messages, retries, dependencies or takeovers. ``task_projection`` applies the facts about
attempts, ``replica_projection`` those about copies of peers' jobs.

A task is shown in its terminal state when the broker knows the end, a job when the broker publishes it: only
this is a promise.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hanse.live.readmodel.clock_mapping import ClockMapping
from hanse.live.readmodel.projector_state import ProjectorState
from hanse.live.readmodel.replica_projection import ReplicaProjection
from hanse.live.readmodel.task_projection import TaskProjection
from hanse.live.readmodel.unended_job import STATE_OF_OUTCOME, UnendedJob, new_unended_job
from hanse.live.readmodel.write_batch import WriteBatch
from hanse.model.effects import Effect, JobSettled, RecordDecision
from hanse.model.events import Booted, Event
from hanse.model.history_effects import GroupUnblocked, JobAdded, JobCancelled, JobDropped, JobsTransferred
from hanse.model.ids import JobId

SERIAL_BITS: Final = 20
"""Serials are ``position << 20`` plus a count within the event."""
DECISIONS_PER_JOB_MAX: Final = 1_000
"""Number of decisions kept for one job, the latest ones."""


class Projector:
    """Applies a broker's history, in order; collects the rows to write in ``writes``."""

    def __init__(self, broker: str, state: ProjectorState, clock: ClockMapping) -> None:
        self.broker = broker
        self.state = state
        self.clock = clock
        self.live_jobs: dict[JobId, UnendedJob] = {}
        self.writes = WriteBatch()
        self.now = 0
        """Moment of the current event."""
        self.serial = 0
        """Latest serial of the current event."""
        self._touched: dict[JobId, UnendedJob] = {}
        self._cluster_numbers = {name: number for number, name in enumerate(state.clusters)}
        self.tasks = TaskProjection(self)
        self.copies = ReplicaProjection(self)
        self._appliers: dict[type, Callable[[Any], None]] = {
            JobAdded: self._on_job_added,
            JobDropped: self._on_job_dropped,
            JobCancelled: self._on_job_cancelled,
            JobsTransferred: self._on_jobs_transferred,
            GroupUnblocked: self._on_group_unblocked,
            JobSettled: self._on_job_settled,
            RecordDecision: self._on_decision,
            **self.tasks.appliers(),
            **self.copies.appliers(),
        }

    # --- one step ------------------------------------------------------------------------------------------

    def apply(self, position: int, event: Event, effects: list[Effect]) -> None:
        """Apply one event and its effects."""
        self.now = self.clock.to_moment(event.at)
        self.serial = position << SERIAL_BITS
        if type(event) is Booted:
            self.clock.on_process_start()
        appliers = self._appliers
        for effect in effects:
            applier = appliers.get(type(effect))
            if applier is not None:
                applier(effect)
        if self._touched:
            self._record_state_changes()

    def mark_changed(self, job: UnendedJob) -> None:
        """Note that a job has changed."""
        self._touched[job.id] = self.writes.dirty_jobs[job.id] = job

    def next_serial(self) -> int:
        """Return the next serial of the current event."""
        self.serial += 1
        return self.serial

    def restart_at(self, position: int) -> None:
        """Set the position of a dumped state: all changes so far come from it."""
        self.serial = position << SERIAL_BITS
        self._record_state_changes()

    def _record_state_changes(self) -> None:
        """Record the jobs whose overall state has changed."""
        changes = self.writes.changes
        for job in self._touched.values():
            state = job.overall_state()
            if state != job.shown_state:
                job.shown_state = state
                changes.append((self.next_serial(), job.id, state, self.now))
        self._touched = {}

    def cluster_number(self, name: str) -> int:
        """Return the number of a cluster; a new name gets the next number."""
        number = self._cluster_numbers.get(name)
        if number is None:
            number = self._cluster_numbers[name] = len(self.state.clusters)
            self.state.clusters.append(name)
        return number

    # --- jobs ----------------------------------------------------------------------------------------------

    def _on_job_added(self, fact: JobAdded) -> None:
        submitted = self.clock.past_moment(fact.accepted_at)
        self.add_job(new_unended_job(fact.job, fact.spec, self.broker, fact.shard, submitted))

    def add_job(self, job: UnendedJob) -> None:
        """Add a job. It replaces a known one, with all that is known of the tasks."""
        known = self.live_jobs.get(job.id)
        if known is not None:
            self.writes.wipe_job(known.id)
            job.is_new, job.shown_state = known.is_new, known.shown_state
            job.decision_count, job.clusters_used = known.decision_count, known.clusters_used
            job.submitted, job.started = known.submitted, known.started
        self.live_jobs[job.id] = job
        self.mark_changed(job)

    def remove_job(self, job: UnendedJob) -> None:
        """Remove a job from the file, because it exists elsewhere or is out of date."""
        del self.live_jobs[job.id]
        self._touched.pop(job.id, None)
        self.writes.remove_job(job.id)

    def _on_job_dropped(self, fact: JobDropped) -> None:
        job = self.live_jobs.get(fact.job)
        if job is not None:
            self.remove_job(job)

    def _on_job_cancelled(self, fact: JobCancelled) -> None:
        job = self.live_jobs.get(fact.job)
        if job is not None:
            job.cancelled, job.cancel_reason = True, job.cancel_reason or fact.reason
            self.tasks.cancel_waiting(job)

    def _on_jobs_transferred(self, fact: JobsTransferred) -> None:
        """Change the owner of jobs. What a peer has taken over stays visible as it was."""
        for job in filter(None, map(self.live_jobs.get, fact.jobs)):
            job.owner = fact.owner
            self.mark_changed(job)

    def _on_group_unblocked(self, fact: GroupUnblocked) -> None:
        job = self.live_jobs.get(fact.job)
        if job is not None:
            job.unblock_group(fact.group)
            self.mark_changed(job)

    def _on_job_settled(self, effect: JobSettled) -> None:
        job = self.live_jobs.get(effect.job)
        if job is not None and job.owner == self.broker:
            self.end_job(job, STATE_OF_OUTCOME[effect.outcome])

    def end_job(self, job: UnendedJob, state: int) -> None:
        """End a job with a published terminal state."""
        job.settled_state, job.ended, job.ended_serial = state, self.now, self.next_serial()
        self.state.ended += 1
        del self.live_jobs[job.id]
        self.mark_changed(job)

    # --- decisions -----------------------------------------------------------------------------------------

    def _on_decision(self, effect: RecordDecision) -> None:
        decision = effect.decision
        job = self.live_jobs.get(decision.job)
        if job is None:
            return
        considered = msgspec.msgpack.encode(decision.considered) if decision.considered else None
        self.writes.decisions.append(
            (
                job.id, self.next_serial(), self.now, decision.broker, decision.group, decision.kind,
                decision.tasks, decision.reason, considered,
            )
        )  # fmt: skip
        job.decision_count += 1
        self.mark_changed(job)
