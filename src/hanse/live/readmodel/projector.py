"""Projector: turns a broker's events and effects into the visible state of its jobs.

The projector mirrors the broker's handling of messages as far as users can see the difference: the current
attempt of a task, its start, its end, and the consequences. It also mirrors the receiving side of the
broker's links (``core.messaging.link``), because a repeated or early message is an event like any other. The
broker's own actions are in its effects: claims, decisions, settled tasks and jobs.

A task is shown in its terminal state when the broker knows the end, a job when the broker publishes it: only
this is a promise. Two ends are invisible until they are published, and such a task is shown as queued or
running: the rest of a failed gang is given up (also after a task was taken back that may have begun and must
not run twice), and a task was lost once too often.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from hanse.api.rows import BLOCKED, CANCELLED, FAILED, PLACED, QUEUED, RUNNING, SUCCEEDED
from hanse.core.config import Timings
from hanse.core.messaging.link import LinkSet
from hanse.live.readmodel.clock_mapping import ClockMapping
from hanse.live.readmodel.failover_projection import FailoverProjection
from hanse.live.readmodel.live_job import LiveJob, new_live_job
from hanse.live.readmodel.lost_clusters import give_up_cluster, is_cluster_given_up
from hanse.live.readmodel.projector_state import PendingSubmission, ProjectorState
from hanse.live.readmodel.settled_tasks import STATE_OF_OUTCOME, on_task_settled, on_tasks_settled
from hanse.live.readmodel.write_batch import WriteBatch
from hanse.model.decision import DecisionKind
from hanse.model.effects import (
    Effect,
    JobAccepted,
    JobSettled,
    RecordDecision,
    RequestRejected,
    SendMessage,
    TaskSettled,
    TasksSettled,
)
from hanse.model.events import Booted, CancelRequested, Event, JobSubmitted, MessageReceived
from hanse.model.ids import INDEX_BITS, TASKS_PER_JOB_MAX, JobId, TaskId, broker_number, task_id
from hanse.model.messages import (
    AbortTakeover,
    AttemptEnd,
    Claim,
    ClaimReply,
    Envelope,
    JobEnded,
    Outcome,
    OwnershipReply,
    OwnershipTransferred,
    RegisterStandby,
    ReplicateJobs,
    ReplicaUpdate,
    RequestTakeover,
    TaskUpdates,
    WatchJobs,
)

SERIAL_BITS: Final = 20
"""Serials are ``position << 20`` plus a count within the event."""
PENDING_MAX: Final = 100_000
"""Number of submissions without a reply; beyond it the oldest are dropped and their jobs not shown."""
UNSEEN_MAX: Final = 1_000
"""Number of kept jobs that ended before they were accepted, for the reply to a repeated submission."""
SUCCEEDED_MAX: Final = 10_000
"""Number of succeeded jobs kept for the jobs that depend on them."""
DECISIONS_PER_JOB_MAX: Final = 1_000
"""Number of decisions kept for one job, the latest ones."""

_INDEX: Final = TASKS_PER_JOB_MAX - 1
_CANCELLED: Final = "cancelled: "
_ENDED_EARLY: Final = "it ended before it was accepted"
_WITHOUT_EXIT_CODE: Final = (Outcome.LOST, Outcome.UNSTARTED)
_WAITS_FOR_JOBS: Final = "waits for other jobs to succeed"
_NONE8: Final = (None,) * 8
_MISSING: Final = object()


class Projector:
    """Applies a broker's history, in order; collects the rows to write in ``writes``."""

    def __init__(self, broker: str, state: ProjectorState, clock: ClockMapping) -> None:
        self.broker = broker
        self.state = state
        self.clock = clock
        self.live_jobs: dict[JobId, LiveJob] = {}
        self.writes = WriteBatch()
        self.now = 0
        """Moment of the current event."""
        self.succeeded: OrderedDict[JobId, None] = OrderedDict()
        """Jobs of this broker with published success; the latest ``SUCCEEDED_MAX``."""
        self._dependents: dict[JobId, dict[JobId, None]] = {}
        """Job -> jobs that wait for it."""
        self.handed_over: dict[JobId, str] = {}
        """Job that a peer takes over with the current event -> the peer."""
        self._serial = 0
        self._touched: dict[JobId, LiveJob] = {}
        self._request: tuple[str, int] | None = None
        """Client and request number of the current event, if it is a request."""
        self._request_is_cancel = False
        """True if the current request is to cancel a job."""
        self._pending = {(entry.client, entry.request): entry for entry in state.pending}
        self._pending_ids = {
            entry.spec.client_id: key for key, entry in self._pending.items() if entry.spec.client_id
        }
        self._links = LinkSet(broker, Timings())
        self._links.links = state.links
        self._cluster_numbers = {name: number for number, name in enumerate(state.clusters)}
        self.failover = FailoverProjection(self)
        failover = self.failover
        self._message_handlers: dict[type, Callable[[str, Any], None]] = {
            TaskUpdates: self._on_task_updates,
            ClaimReply: self._on_claim_reply,
            OwnershipReply: failover.on_ownership_reply,
            ReplicateJobs: failover.on_replicate_jobs,
            ReplicaUpdate: failover.on_replica_update,
            OwnershipTransferred: failover.on_ownership_transferred,
            JobEnded: failover.on_job_ended,
        }
        self._sent_handlers: dict[type, Callable[[str, Any], None]] = {
            Claim: self._on_claim_sent, WatchJobs: failover.on_watch_jobs_sent,
            RequestTakeover: failover.on_request_takeover_sent,
            AbortTakeover: failover.on_abort_takeover_sent,
            OwnershipTransferred: failover.on_ownership_transferred_sent,
            RegisterStandby: failover.on_register_standby_sent,
        }  # fmt: skip
        self._effect_handlers: dict[type, Callable[[Any], None]] = {
            SendMessage: self._on_message_sent, RecordDecision: self._on_decision,
            TaskSettled: partial(on_task_settled, self),
            TasksSettled: partial(on_tasks_settled, self), JobSettled: self._on_job_settled,
            JobAccepted: self._on_job_accepted, RequestRejected: self._on_request_rejected,
        }  # fmt: skip

    # --- one step ------------------------------------------------------------------------------------------

    def apply(self, position: int, event: Event, effects: list[Effect]) -> None:
        """Apply one event and its effects."""
        self.now = self.clock.to_moment(event.at)
        self._serial = position << SERIAL_BITS
        kind = type(event)
        if kind is MessageReceived:
            if event.envelope.seq > 0:  # type: ignore[union-attr]  # soft messages do not concern jobs
                self._on_message_received(event.envelope)  # type: ignore[union-attr]
        elif isinstance(event, JobSubmitted):
            self._on_job_submitted(event)
        elif isinstance(event, CancelRequested):
            self._on_cancel_requested(event, effects)
        elif isinstance(event, Booted):
            self.clock.on_process_start()
        handlers = self._effect_handlers
        for effect in effects:
            handler = handlers.get(type(effect))
            if handler is not None:
                handler(effect)
        if self._touched:
            self._record_state_changes()
        if self.handed_over:
            self.handed_over = {}
        self._request, self._request_is_cancel = None, False

    def mark_changed(self, job: LiveJob) -> None:
        """Note that a job has changed."""
        self._touched[job.id] = self.writes.dirty_jobs[job.id] = job

    def next_serial(self) -> int:
        """Return the next serial of the current event."""
        self._serial += 1
        return self._serial

    def restart_at(self, position: int) -> None:
        """Set the position of a dumped state: all changes so far come from it."""
        self._serial = position << SERIAL_BITS
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

    def find_owned(self, job: JobId) -> LiveJob | None:
        """Find a job that this broker owns."""
        found = self.live_jobs.get(job)
        return found if found is not None and found.owner == self.broker else None

    # --- submissions ---------------------------------------------------------------------------------------

    def _on_job_submitted(self, event: JobSubmitted) -> None:
        key, submitted = (event.client, event.request), self.now
        client_id = event.spec.client_id
        if client_id:
            if client_id in self._pending_ids:  # repeated before the reply: it goes to the latest request
                submitted = self._pending.pop(self._pending_ids[client_id]).submitted
            self._pending_ids[client_id] = key
        self._pending[key] = PendingSubmission(event.client, event.request, event.spec, submitted)
        if len(self._pending) > PENDING_MAX:
            self._pop_pending(*next(iter(self._pending)))
        self._request = key

    def _pop_pending(self, client: str, request: int) -> PendingSubmission | None:
        """Remove a submission whose reply has come."""
        found = self._pending.pop((client, request), None)
        if found is not None and found.spec.client_id:
            self._pending_ids.pop(found.spec.client_id, None)
        return found

    def _on_job_accepted(self, reply: JobAccepted) -> None:
        is_same_event = self._request == (reply.client, reply.request)
        if is_same_event and self._request_is_cancel:
            return  # reply to a cancellation: no job begins
        pending = self._pop_pending(reply.client, reply.request)
        if pending is None or reply.job in self.live_jobs:
            return
        if is_same_event and pending.spec.client_id and not self._is_new_job(reply.job):
            if reply.job in self.state.unseen:
                self._add_unseen_job(reply.job, pending)
            return  # repeated submission of a job that has ended
        self.state.newest = max(self.state.newest, reply.job)
        owner = self.handed_over.get(reply.job, self.broker)
        job = new_live_job(reply.job, pending.spec, owner, self.state.base, pending.submitted)
        self.live_jobs[job.id] = job
        self.mark_changed(job)

    def _add_unseen_job(self, number: JobId, pending: PendingSubmission) -> None:
        """Add a job that was cancelled before it was accepted, for a repeated submission."""
        job = new_live_job(number, pending.spec, self.broker, self.state.base, pending.submitted)
        self.live_jobs[number] = job
        self._cancel_job(job, _ENDED_EARLY)
        self.end_job(job, self.state.unseen.pop(number))

    def _is_new_job(self, job: JobId) -> bool:
        """Return True if a number is new: from this broker, and higher than all before."""
        newest = self.state.newest
        if newest < 0:
            return broker_number(job) not in self.state.strangers
        return broker_number(job) == broker_number(JobId(newest)) and job > newest

    def _on_request_rejected(self, reply: RequestRejected) -> None:
        if not self._request_is_cancel:
            self._pop_pending(reply.client, reply.request)

    def save_state(self) -> ProjectorState:
        """Return the state to store."""
        self.state.pending = list(self._pending.values())
        return self.state

    def _on_cancel_requested(self, event: CancelRequested, effects: list[Effect]) -> None:
        self._request, self._request_is_cancel = (event.client, event.request), True
        job = self.find_owned(event.job)
        if job is not None and any(isinstance(effect, JobAccepted) for effect in effects):
            self._cancel_job(job, f"asked for by {event.client}")

    def _cancel_job(self, job: LiveJob, reason: str) -> None:
        """Cancel a job: waiting tasks end at once, running tasks when their wardens have stopped them."""
        if job.cancelled:
            return
        job.cancelled, job.cancel_reason = True, reason
        for index in job.cancel_waiting():
            self.settle_task(job, index, CANCELLED)
        self.mark_changed(job)

    # --- placing -------------------------------------------------------------------------------------------

    def _on_message_sent(self, effect: SendMessage) -> None:
        envelope = effect.envelope
        seq = envelope.seq
        if seq <= 0 or seq <= self.state.sent.get(envelope.target, 0):
            return  # soft, or a repetition
        self.state.sent[envelope.target] = seq
        handler = self._sent_handlers.get(type(envelope.body))
        if handler is not None:
            handler(envelope.target, envelope.body)

    def _on_claim_sent(self, target: str, claim: Claim) -> None:
        cluster = self.cluster_number(target)
        for batch in claim.batches:
            job = self.find_owned(batch.job)
            if job is None:
                continue
            job.unblock_group(batch.group)
            attempts, clusters, state = job.attempt, job.cluster, job.state
            for index, attempt in zip(batch.tasks, batch.attempts, strict=True):
                if state[index] >= SUCCEEDED:
                    continue
                attempts[index] = attempt
                clusters[index] = cluster
                job.set_state(index, PLACED)
            size = None if batch.size == job.spec.groups[batch.group].ask else batch.size
            job.add_placement(cluster, batch.tasks, batch.attempts, list(batch.nodes), size)
            self.mark_changed(job)

    def _on_claim_reply(self, _: str, reply: ClaimReply) -> None:
        for task, node in reply.substituted:
            job = self.find_owned(JobId(task >> INDEX_BITS))
            if job is not None:
                self._substitute(job, task & _INDEX, node)
        for entry in reply.refused:
            job = self.find_owned(JobId(entry.task >> INDEX_BITS))
            index = entry.task & _INDEX
            if job is not None and job.attempt[index] == entry.attempt and job.state[index] == PLACED:
                self.requeue(job, index)

    def _substitute(self, job: LiveJob, index: int, node: int) -> None:
        for placement in reversed(job.placements):
            if index in placement.tasks:
                placement.nodes[placement.tasks.index(index)] = node
                placement.saved = False
                self.mark_changed(job)
                return

    def requeue(self, job: LiveJob, index: int, end: AttemptEnd | None = None) -> None:
        """Queue a task again, or cancel it if its job is cancelled."""
        self.settle_task(job, index, CANCELLED if job.cancelled else QUEUED, end)

    # --- messages from wardens and peers --------------------------------------------------------------------

    def _on_message_received(self, envelope: Envelope) -> None:
        for body in self._links.receive(0, envelope):
            handler = self._message_handlers.get(type(body))
            if handler is not None:
                handler(envelope.source, body)

    def _on_task_updates(self, source: str, updates: TaskUpdates) -> None:
        live, broker = self.live_jobs, self.broker
        for task, attempt, node in updates.started:
            job = live.get(task >> INDEX_BITS)  # type: ignore[call-overload]
            if job is not None and job.owner == broker:
                index = task & _INDEX
                if job.attempt[index] == attempt and PLACED <= job.state[index] <= RUNNING:
                    self._start_task(job, task, index, node)
        for end in updates.ended:
            job = live.get(end.task >> INDEX_BITS)  # type: ignore[call-overload]
            if job is None:
                continue
            if job.owner == broker:
                self.end_attempt(job, end)
            else:
                self.failover.buffer_end(source, job, end)

    def _start_task(self, job: LiveJob, task: TaskId, index: int, node: int) -> None:
        cluster = job.cluster[index]
        if job.state[index] == PLACED:
            job.set_state(index, RUNNING)
        self.writes.start_task(
            task,
            (
                job.id, index, job.attempt[index], RUNNING, cluster, node, self._size(job, index), self.now,
                *_NONE8[:7], job.failures.get(index),
            ),
        )  # fmt: skip
        if job.started is None:
            job.started = self.now
        job.clusters_used[cluster] = None
        self.mark_changed(job)

    def _size(self, job: LiveJob, index: int) -> bytes | None:
        if not job.sizes:
            return None
        size = job.sizes.get(index)
        return msgspec.msgpack.encode(size) if size is not None else None

    def set_running(self, job: LiveJob, index: int, attempt: int, source: str) -> None:
        """Show an attempt as running in a cluster; the warden has not reported its node and start."""
        job.attempt[index] = attempt
        job.cluster[index] = cluster = self.cluster_number(source)
        job.set_state(index, RUNNING)
        job.clusters_used[cluster] = None
        cells = (job.id, index, attempt, RUNNING, cluster, None, None, None, *_NONE8)
        self.writes.start_task(task_id(job.id, index), cells)
        self.mark_changed(job)

    def end_attempt(self, job: LiveJob, end: AttemptEnd) -> None:
        """End an attempt; if it is the task's current one, the task is settled or queued again."""
        index = end.task & _INDEX
        if job.attempt[index] != end.attempt or not PLACED <= job.state[index] <= RUNNING:
            return
        outcome = end.outcome
        if outcome is Outcome.SUCCEEDED:
            self.settle_task(job, index, SUCCEEDED, end)
            if end.usage is not None and end.usage.run_time:
                spec = job.spec
                key = (spec.tenant, spec.name, spec.groups[job.group_of(index)].name)
                self.writes.durations.setdefault(key, []).append(end.usage.run_time)
                self.writes.duration_serials[key] = self._serial
        elif outcome is Outcome.LOST and job.is_loss_final():
            self.settle_task(job, index, FAILED, end)
        elif outcome is Outcome.FAILED and not job.cancelled:
            job.failures[index] = failures = job.failures.get(index, 0) + 1
            self.settle_task(job, index, FAILED if failures > job.spec.retries else QUEUED, end)
        else:
            self.requeue(job, index, end)

    def settle_task(self, job: LiveJob, index: int, state: int, end: AttemptEnd | None = None) -> None:
        """Set a task's state after an attempt (terminal or queued), and write its row."""
        started: int | None = None
        cells: tuple[int | str | None, ...] = (None,) * 6
        if end is not None:
            usage = end.usage
            code = None if end.outcome in _WITHOUT_EXIT_CODE else end.exit_code
            measured = (None,) * 3 if usage is None else (usage.cpu, usage.memory, usage.run_time)
            cells = (end.outcome, code, *measured, end.note or None)
            if usage is not None and usage.run_time and job.state[index] == RUNNING:
                started = self.now - usage.run_time
                job.started = min(started, job.started or started)  # the start may be reported late or never
        ended = self.now if end is not None or state >= SUCCEEDED else None
        job.set_state(index, state)
        if state == SUCCEEDED and job.state_counts[BLOCKED]:
            job.unblock_ready_groups()
        self.writes.end_task(
            TaskId(job.id << INDEX_BITS | index),
            (
                job.id, index, job.attempt[index], state, job.cluster[index], None, None, started, ended,
                *cells, job.failures.get(index),
            ),
        )  # fmt: skip
        self.mark_changed(job)

    # --- effects of the broker ------------------------------------------------------------------------------

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
        decision_kind = decision.kind
        if decision_kind is DecisionKind.WAITING or decision_kind is DecisionKind.PLACED:
            job.unblock_group(decision.group)
        elif decision_kind is DecisionKind.BLOCKED:
            if decision.reason == _WAITS_FOR_JOBS:
                job.block_group(decision.group)
                self.block_on_jobs(job)
        elif is_cluster_given_up(decision):
            give_up_cluster(self, job, decision)
        elif decision_kind is DecisionKind.ENDED and decision.reason.startswith(_CANCELLED):
            self._cancel_job(job, decision.reason.removeprefix(_CANCELLED))
        self.mark_changed(job)

    def block_on_jobs(self, job: LiveJob) -> None:
        """Make a job wait for those of its ``after`` jobs that are not known to have succeeded."""
        after = job.spec.after
        job.waiting_for = dict.fromkeys([other for other in after if other not in self.succeeded] or after)
        self.index_dependencies(job)

    def index_dependencies(self, job: LiveJob) -> None:
        """Index a job under the jobs that it waits for."""
        for other in job.waiting_for:
            self._dependents.setdefault(other, {})[job.id] = None

    def release_dependents(self, other: JobId) -> None:
        """Remove a succeeded job from the needs of its dependents, and queue those that are ready."""
        for number in self._dependents.pop(other, ()):
            job = self.find_owned(number)
            if job is not None and job.waiting_for.pop(other, _MISSING) is None:
                job.unblock_ready_groups()
                self.mark_changed(job)

    def _on_job_settled(self, effect: JobSettled) -> None:
        job = self.find_owned(effect.job)
        if job is None:
            unseen = self.state.unseen
            unseen[effect.job] = STATE_OF_OUTCOME[effect.outcome]
            if len(unseen) > UNSEEN_MAX:
                del unseen[next(iter(unseen))]
            return
        self.end_job(job, STATE_OF_OUTCOME[effect.outcome])
        if effect.outcome is Outcome.SUCCEEDED:
            self.succeeded[job.id] = None
            if len(self.succeeded) > SUCCEEDED_MAX:
                self.succeeded.popitem(last=False)
            self.release_dependents(job.id)

    def end_job(self, job: LiveJob, state: int) -> None:
        """End a job with a published terminal state."""
        job.settled_state, job.ended, job.ended_serial = state, self.now, self.next_serial()
        self.state.ended += 1
        del self.live_jobs[job.id]
        self.mark_changed(job)
