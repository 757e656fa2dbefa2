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
from hanse.core.broker import job_table
from hanse.core.config import Timings
from hanse.core.messaging.link import LinkSet
from hanse.live.readmodel.clock_mapping import Times
from hanse.live.readmodel.failover_projection import Heirs
from hanse.live.readmodel.live_job import LiveJob, new_live
from hanse.live.readmodel.lost_clusters import give_up, is_given_up
from hanse.live.readmodel.projector_state import Memory, Pending
from hanse.live.readmodel.settled_tasks import ENDS, task_settled, tasks_settled
from hanse.live.readmodel.write_batch import Sheet
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
_TOO_SOON: Final = "it ended before it was accepted"
_AFTER: Final = "waits for other jobs to succeed"
_NONE8: Final = (None,) * 8
_UNSET: Final = object()


class Projector:
    """Applies a broker's history, in order; collects the rows to write in ``writes``."""

    def __init__(self, broker: str, memory: Memory, times: Times) -> None:
        self.broker = broker
        self.memory = memory
        self.times = times
        self.live: dict[JobId, LiveJob] = {}
        self.sheet = Sheet()
        self.now = 0
        """Moment of the current event."""
        self.succeeded: OrderedDict[JobId, None] = OrderedDict()
        """Jobs of this broker with published success; the latest ``SUCCEEDED_MAX``."""
        self._waiters: dict[JobId, dict[JobId, None]] = {}
        """Job -> jobs that wait for it."""
        self.given: dict[JobId, str] = {}
        """Job that a peer takes over with the current event -> the peer."""
        self._serial = 0
        self._touched: dict[JobId, LiveJob] = {}
        self._asked: tuple[str, int] | None = None
        """Client and request number of the current event, if it is a request."""
        self._cancelling = False
        """True if the current request is to cancel a job."""
        self._pending = {(entry.client, entry.request): entry for entry in memory.pending}
        self._pending_ids = {
            entry.spec.client_id: key for key, entry in self._pending.items() if entry.spec.client_id
        }
        self._post = LinkSet(broker, Timings())
        self._post.links = memory.links
        self._numbers = {name: number for number, name in enumerate(memory.clusters)}
        self.heirs = Heirs(self)
        heirs = self.heirs
        self._takes: dict[type, Callable[[str, Any], None]] = {
            TaskUpdates: self._news,
            ClaimReply: self._answered,
            OwnershipReply: heirs.answered,
            ReplicateJobs: heirs.replicated,
            ReplicaUpdate: heirs.progress,
            OwnershipTransferred: heirs.taken,
            JobEnded: self._watched,
        }
        self._sends: dict[type, Callable[[str, Any], None]] = {
            Claim: self._claimed,
            RequestTakeover: heirs.bidding,
            AbortTakeover: heirs.returned,
            OwnershipTransferred: heirs.adopted,
            RegisterStandby: heirs.registered,
        }
        self._does: dict[type, Callable[[Any], None]] = {
            SendMessage: self._sent, RecordDecision: self._decided, TaskSettled: partial(task_settled, self),
            TasksSettled: partial(tasks_settled, self), JobSettled: self._job_settled,
            JobAccepted: self._accepted, RequestRejected: self._rejected,
        }  # fmt: skip

    # --- one step ------------------------------------------------------------------------------------------

    def take(self, position: int, event: Event, commands: list[Effect]) -> None:
        """Apply one event and its effects."""
        self.now = self.times.moment(event.at)
        self._serial = position << SERIAL_BITS
        kind = type(event)
        if kind is MessageReceived:
            if event.envelope.seq > 0:  # type: ignore[union-attr]  # soft messages do not concern jobs
                self._received(event.envelope)  # type: ignore[union-attr]
        elif isinstance(event, JobSubmitted):
            self._submitted(event)
        elif isinstance(event, CancelRequested):
            self._cancel_asked(event, commands)
        elif isinstance(event, Booted):
            self.times.begin()
        does = self._does
        for command in commands:
            handler = does.get(type(command))
            if handler is not None:
                handler(command)
        if self._touched:
            self._show()
        if self.given:
            self.given = {}
        self._asked, self._cancelling = None, False

    def touch(self, job: LiveJob) -> None:
        """Note that a job has changed."""
        self._touched[job.id] = self.sheet.dirty[job.id] = job

    def next_serial(self) -> int:
        """Return the next serial of the current event."""
        self._serial += 1
        return self._serial

    def begin(self, position: int) -> None:
        """Set the position of a dumped state: all changes so far come from it."""
        self._serial = position << SERIAL_BITS
        self._show()

    def _show(self) -> None:
        """Record the jobs whose overall state has changed."""
        changes = self.sheet.changes
        for job in self._touched.values():
            state = job.summary()
            if state != job.shown:
                job.shown = state
                changes.append((self.next_serial(), job.id, state, self.now))
        self._touched = {}

    def cluster(self, name: str) -> int:
        """Return the number of a cluster; a new name gets the next number."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.memory.clusters)
            self.memory.clusters.append(name)
        return number

    def mine(self, job: JobId) -> LiveJob | None:
        """Find a job that this broker owns."""
        found = self.live.get(job)
        return found if found is not None and found.owner == self.broker else None

    # --- submissions ---------------------------------------------------------------------------------------

    def _submitted(self, event: JobSubmitted) -> None:
        key, submitted = (event.client, event.request), self.now
        client_id = event.spec.client_id
        if client_id:
            if client_id in self._pending_ids:  # repeated before the reply: it goes to the latest request
                submitted = self._pending.pop(self._pending_ids[client_id]).submitted
            self._pending_ids[client_id] = key
        self._pending[key] = Pending(event.client, event.request, event.spec, submitted)
        if len(self._pending) > PENDING_MAX:
            self._waiting(*next(iter(self._pending)))
        self._asked = key

    def _waiting(self, client: str, request: int) -> Pending | None:
        """Remove a submission whose reply has come."""
        found = self._pending.pop((client, request), None)
        if found is not None and found.spec.client_id:
            self._pending_ids.pop(found.spec.client_id, None)
        return found

    def _accepted(self, reply: JobAccepted) -> None:
        at_once = self._asked == (reply.client, reply.request)
        if at_once and self._cancelling:
            return  # reply to a cancellation: no job begins
        known = self._waiting(reply.client, reply.request)
        if known is None or reply.job in self.live:
            return
        if at_once and known.spec.client_id and not self._is_new(reply.job):
            if reply.job in self.memory.unseen:
                self._show_unseen(reply.job, known)
            return  # repeated submission of a job that has ended
        self.memory.newest = max(self.memory.newest, reply.job)
        owner = self.given.get(reply.job, self.broker)
        job = new_live(reply.job, known.spec, owner, self.memory.base, known.submitted)
        self.live[job.id] = job
        self.touch(job)

    def _show_unseen(self, number: JobId, known: Pending) -> None:
        """Add a job that was cancelled before it was accepted, for a repeated submission."""
        job = new_live(number, known.spec, self.broker, self.memory.base, known.submitted)
        self.live[number] = job
        self._cancelled(job, _TOO_SOON)
        self.over(job, self.memory.unseen.pop(number))

    def _is_new(self, job: JobId) -> bool:
        """Return True if a number is new: from this broker, and higher than all before."""
        newest = self.memory.newest
        if newest < 0:
            return broker_number(job) not in self.memory.strangers
        return broker_number(job) == broker_number(JobId(newest)) and job > newest

    def _rejected(self, reply: RequestRejected) -> None:
        if not self._cancelling:
            self._waiting(reply.client, reply.request)

    def save(self) -> Memory:
        """Return the state to store."""
        self.memory.pending = list(self._pending.values())
        return self.memory

    def _cancel_asked(self, event: CancelRequested, commands: list[Effect]) -> None:
        self._asked, self._cancelling = (event.client, event.request), True
        job = self.mine(event.job)
        if job is not None and any(isinstance(command, JobAccepted) for command in commands):
            self._cancelled(job, f"asked for by {event.client}")

    def _cancelled(self, job: LiveJob, reason: str) -> None:
        """Cancel a job: waiting tasks end at once, running tasks when their wardens have stopped them."""
        if job.cancelled:
            return
        job.cancelled, job.cancel_reason = True, reason
        for index in job.end_waiting():
            self.settle(job, index, CANCELLED)
        self.touch(job)

    # --- placing -------------------------------------------------------------------------------------------

    def _sent(self, command: SendMessage) -> None:
        envelope = command.envelope
        seq = envelope.seq
        if seq <= 0 or seq <= self.memory.sent.get(envelope.target, 0):
            return  # soft, or a repetition
        self.memory.sent[envelope.target] = seq
        handler = self._sends.get(type(envelope.body))
        if handler is not None:
            handler(envelope.target, envelope.body)

    def _claimed(self, target: str, claim: Claim) -> None:
        cluster = self.cluster(target)
        for batch in claim.batches:
            job = self.mine(batch.job)
            if job is None:
                continue
            job.unblock(batch.group)
            attempts, place, state = job.attempt, job.place, job.state
            for index, attempt in zip(batch.tasks, batch.attempts, strict=True):
                if state[index] >= SUCCEEDED:
                    continue
                attempts[index] = attempt
                place[index] = cluster
                job.move(index, PLACED)
            size = None if batch.size == job.spec.groups[batch.group].ask else batch.size
            job.add_lot(cluster, batch.tasks, batch.attempts, list(batch.nodes), size)
            self.touch(job)

    def _answered(self, _: str, answer: ClaimReply) -> None:
        for task, node in answer.substituted:
            job = self.mine(JobId(task >> INDEX_BITS))
            if job is not None:
                self._substitute(job, task & _INDEX, node)
        for entry in answer.refused:
            job = self.mine(JobId(entry.task >> INDEX_BITS))
            index = entry.task & _INDEX
            if job is not None and job.attempt[index] == entry.attempt and job.state[index] == PLACED:
                self.requeue(job, index)

    def _substitute(self, job: LiveJob, index: int, node: int) -> None:
        for batch in reversed(job.lots):
            if index in batch.tasks:
                batch.nodes[batch.tasks.index(index)] = node
                batch.saved = False
                self.touch(job)
                return

    def requeue(self, job: LiveJob, index: int, end: AttemptEnd | None = None) -> None:
        """Queue a task again, or cancel it if its job is cancelled."""
        self.settle(job, index, CANCELLED if job.cancelled else QUEUED, end)

    # --- messages from wardens and peers --------------------------------------------------------------------

    def _received(self, envelope: Envelope) -> None:
        for body in self._post.receive(0, envelope):
            handler = self._takes.get(type(body))
            if handler is not None:
                handler(envelope.source, body)

    def _news(self, source: str, news: TaskUpdates) -> None:
        live, broker = self.live, self.broker
        for task, attempt, node in news.started:
            job = live.get(task >> INDEX_BITS)  # type: ignore[call-overload]
            if job is not None and job.owner == broker:
                index = task & _INDEX
                if job.attempt[index] == attempt and PLACED <= job.state[index] <= RUNNING:
                    self._began(job, task, index, node)
        for end in news.ended:
            job = live.get(end.task >> INDEX_BITS)  # type: ignore[call-overload]
            if job is None:
                continue
            if job.owner == broker:
                self.finish(job, end)
            else:
                self.heirs.keep_end(source, job, end)

    def _began(self, job: LiveJob, task: TaskId, index: int, node: int) -> None:
        cluster = job.place[index]
        if job.state[index] == PLACED:
            job.move(index, RUNNING)
        self.sheet.start(
            task,
            (
                job.id, index, job.attempt[index], RUNNING, cluster, node, self._size(job, index), self.now,
                *_NONE8[:7], job.failures.get(index),
            ),
        )  # fmt: skip
        if job.started is None:
            job.started = self.now
        job.used[cluster] = None
        self.touch(job)

    def _size(self, job: LiveJob, index: int) -> bytes | None:
        if not job.sizes:
            return None
        size = job.sizes.get(index)
        return msgspec.msgpack.encode(size) if size is not None else None

    def show_running(self, job: LiveJob, index: int, attempt: int, source: str) -> None:
        """Show an attempt as running in a cluster; the warden has not reported its node and start."""
        job.attempt[index] = attempt
        job.place[index] = cluster = self.cluster(source)
        job.move(index, RUNNING)
        job.used[cluster] = None
        cells = (job.id, index, attempt, RUNNING, cluster, None, None, None, *_NONE8)
        self.sheet.start(task_id(job.id, index), cells)
        self.touch(job)

    def finish(self, job: LiveJob, end: AttemptEnd) -> None:
        """End an attempt; if it is the task's current one, the task is settled or queued again."""
        index = end.task & _INDEX
        if job.attempt[index] != end.attempt or not PLACED <= job.state[index] <= RUNNING:
            return
        outcome = end.outcome
        if outcome is Outcome.SUCCEEDED:
            self.settle(job, index, SUCCEEDED, end)
            if end.usage is not None and end.usage.run_time:
                spec = job.spec
                key = (spec.tenant, spec.name, spec.groups[job.group_of(index)].name)
                self.sheet.durations.setdefault(key, []).append(end.usage.run_time)
                self.sheet.measured[key] = self._serial
        elif outcome is Outcome.LOST and job.fails_lost():
            self.settle(job, index, FAILED, end)
        elif outcome is Outcome.FAILED and not job.cancelled:
            job.failures[index] = failures = job.failures.get(index, 0) + 1
            self.settle(job, index, FAILED if failures > job.spec.retries else QUEUED, end)
        else:
            self.requeue(job, index, end)

    def settle(self, job: LiveJob, index: int, state: int, end: AttemptEnd | None = None) -> None:
        """Set a task's state after an attempt (terminal or queued), and write its row."""
        started: int | None = None
        told: tuple[int | str | None, ...]
        if end is None:
            told = (None,) * 6
        elif end.usage is None:
            told = (end.outcome, end.exit_code, None, None, None, end.note or None)
        else:
            usage = end.usage
            told = (end.outcome, end.exit_code, usage.cpu, usage.memory, usage.run_time, end.note or None)
            if usage.run_time and job.state[index] == RUNNING:
                started = self.now - usage.run_time
                job.started = min(started, job.started or started)  # the start may be reported late or never
        ended = self.now if end is not None or state >= SUCCEEDED else None
        job.move(index, state)
        if state == SUCCEEDED and job.totals[BLOCKED]:
            job.release()
        self.sheet.end(
            TaskId(job.id << INDEX_BITS | index),
            (
                job.id, index, job.attempt[index], state, job.place[index], None, None, started, ended,
                *told, job.failures.get(index),
            ),
        )  # fmt: skip
        self.touch(job)

    # --- effects of the broker ------------------------------------------------------------------------------

    def _decided(self, command: RecordDecision) -> None:
        decision = command.decision
        job = self.live.get(decision.job)
        if job is None:
            return
        considered = msgspec.msgpack.encode(decision.considered) if decision.considered else None
        self.sheet.decisions.append(
            (
                job.id, self.next_serial(), self.now, decision.broker, decision.group, decision.kind,
                decision.tasks, decision.reason, considered,
            )
        )  # fmt: skip
        job.decisions += 1
        answered = decision.kind
        if answered is DecisionKind.WAITING or answered is DecisionKind.PLACED:
            job.unblock(decision.group)
        elif answered is DecisionKind.BLOCKED:
            if decision.reason == _AFTER:
                job.block(decision.group)
                self.wait(job)
        elif is_given_up(decision):
            give_up(self, job, decision)
        elif answered is DecisionKind.ENDED and decision.reason.startswith(_CANCELLED):
            self._cancelled(job, decision.reason.removeprefix(_CANCELLED))
        self.touch(job)

    def wait(self, job: LiveJob) -> None:
        """Make a job wait for those of its ``after`` jobs that are not known to have succeeded."""
        after = job.spec.after
        job.waits = dict.fromkeys([other for other in after if other not in self.succeeded] or after)
        self.remind(job)

    def remind(self, job: LiveJob) -> None:
        """Index a job under the jobs that it waits for."""
        for other in job.waits:
            self._waiters.setdefault(other, {})[job.id] = None

    def _watched(self, _: str, message: JobEnded) -> None:
        if message.state == job_table.SUCCEEDED:
            self._met(message.job)

    def _met(self, other: JobId) -> None:
        """Remove a succeeded job from the needs of its dependents, and queue those that are ready."""
        for number in self._waiters.pop(other, ()):
            job = self.mine(number)
            if job is not None and job.waits.pop(other, _UNSET) is None:
                job.release()
                self.touch(job)

    def _job_settled(self, command: JobSettled) -> None:
        job = self.mine(command.job)
        if job is None:
            unseen = self.memory.unseen
            unseen[command.job] = ENDS[command.outcome]
            if len(unseen) > UNSEEN_MAX:
                del unseen[next(iter(unseen))]
            return
        self.over(job, ENDS[command.outcome])
        if command.outcome is Outcome.SUCCEEDED:
            self.succeeded[job.id] = None
            if len(self.succeeded) > SUCCEEDED_MAX:
                self.succeeded.popitem(last=False)
            self._met(job.id)

    def over(self, job: LiveJob, state: int) -> None:
        """End a job with a published terminal state."""
        job.settled, job.ended, job.ended_serial = state, self.now, self.next_serial()
        self.memory.ended += 1
        del self.live[job.id]
        self.touch(job)
