"""Life cycle of a broker's jobs: queueing, release of dependents, ends, retries, cancellation.

Every path to a terminal state goes through ``_settle`` or ``_settle_run``, once per task. Ends are matched by
attempt: an end of another than the task's current attempt changes nothing.
"""

from hanse.core.broker.attempt_withdrawal import AttemptWithdrawal, adjust_standing
from hanse.core.broker.cluster_view import STANDING_FULL
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.end_log import EndLog
from hanse.core.broker.failover.standby import StandbyShards
from hanse.core.broker.job_dependencies import EndedJob, JobDependencies
from hanse.core.broker.job_table import (
    BLOCKED,
    CANCELLED,
    CLAIMED,
    FAILED,
    PLACED,
    RUNNING,
    SUCCEEDED,
    WAITING,
    JobRecord,
    blocked_tasks,
    cancel_columns,
    dependents_of,
    find_unmet_need,
    first_task,
    is_unqueued,
)
from hanse.core.broker.loss_policy import LOST, TAKEN_BACK, is_ending, must_not_repeat
from hanse.core.broker.placement import BrokerPlacement
from hanse.core.broker.sliced_jobs import SlicedJobs, find_stretches, find_tasks
from hanse.model.decision_record import DecisionKind
from hanse.model.ids import INDEX_BITS, INDEX_MASK, JobId, TaskId, index_of, job_of, task_id
from hanse.model.messages import AttemptEnd, Outcome, RefusalReason


class JobLifecycle:
    """Life cycle of one broker's jobs."""

    def __init__(
        self, context: BrokerContext, placement: BrokerPlacement, standby_shards: StandbyShards,
        end_log: EndLog,
    ) -> None:  # fmt: skip
        self.context = context
        self.placement = placement
        self._end_log = end_log
        self._follows_progress = placement.keys.follows_progress
        self._history = context.history
        self.large_cancellations = SlicedJobs(
            context.jobs, end_log, self._settle_run, self._release, context.config.slice_tasks
        )
        self.withdrawal = AttemptWithdrawal(context)
        self.dependencies = JobDependencies(context, standby_shards, self)
        self.clients: dict[str, JobId] = {}
        """Client ids of live and remembered jobs."""
        self.deadlines: list[tuple[int, JobId]] = []
        self.tasks = 0
        """Tasks of live jobs."""

    # --- beginning -----------------------------------------------------------------------------------------

    def add_job(self, record: JobRecord) -> None:
        """Add a job to the live jobs."""
        self.context.jobs[record.id] = record
        self.tasks += len(record.state)
        if record.spec.client_id:
            self.clients[record.spec.client_id] = record.id
        self.dependencies.add(record)

    def begin(self, record: JobRecord) -> None:
        """Queue the runnable tasks of an admitted job."""
        context, spec = self.context, record.spec
        if spec.deadline is not None:
            self.deadlines.append((record.accepted_at + spec.deadline, record.id))
            self.deadlines.sort()
        self.dependencies.look_up(record)
        if record.cancelled or record.id not in context.jobs:
            return
        if not record.after:
            self._release(record)
        else:
            for group in range(len(spec.groups)):
                count, why = record.unfinished[group], "waits for other jobs to succeed"
                context.record_decision(record, group, DecisionKind.BLOCKED, count, why)

    def on_dependency_ended(self, record: JobRecord, job: JobId, succeeded: bool) -> None:
        """Let a job run, or cancel it, after the end of a job for which it may wait."""
        if job not in record.after:
            return
        record.after.remove(job)
        if not succeeded:
            self.context.mark("broker.dependency_failed")
            self.cancel(record, "a job that it waits for did not succeed")
        elif not record.after and record.admitted:
            self._release(record)

    def _release(self, record: JobRecord) -> None:
        """Queue every group with met needs: as many tasks as one event may, the rest later."""
        left = self.large_cancellations.queued_most
        for group in range(len(record.spec.groups)):
            left -= self._release_group(record, group, left)

    def _release_group(self, record: JobRecord, group: int, most: int) -> int:
        """Queue a group if its needs are met; return the number of tasks queued."""
        need = find_unmet_need(record, group)
        if need:
            self.context.record_decision(
                record, group, DecisionKind.BLOCKED, record.unfinished[group], f"waits for group {need}"
            )
            return 0
        tasks = blocked_tasks(record, group, len(record.state) if record.spec.gang else most)
        count = len(tasks)  # the placement removes tasks from this list
        if tasks:
            self._history.unblock_group(record, group)
            self.placement.enqueue(record, group, tasks, behind=True)
            if record.lines[group] >= 0:
                self.placement.place_line(record.lines[group])
        if count >= most and not record.spec.gang and is_unqueued(record):
            self.large_cancellations.queue_later(self.context.now, record)
        return count

    def resume(self, record: JobRecord) -> None:
        """Continue a job of a taken shard: queue what may run, cancel what cannot succeed any more."""
        self.placement.keys.on_usage(record)
        if record.spec.deadline is not None:
            self.deadlines.append((record.accepted_at + record.spec.deadline, record.id))
            self.deadlines.sort()
        if not record.tasks_left:
            self._finish(record)
            return
        for group in range(len(record.spec.groups)):
            first = first_task(record, group)
            states = record.state[first : first + record.spec.groups[group].count]
            if FAILED in states or CANCELLED in states:
                self._cancel_dependents(record, group, FAILED if FAILED in states else CANCELLED)
        self.dependencies.look_up(record)
        if record.id in self.context.jobs and not record.after and not record.cancelled:
            self._release(record)
        if record.spec.gang and record.waiting[0] and len(record.waiting[0]) < record.unfinished[0]:
            self._break_gang(record)

    def release_job(self, record: JobRecord) -> None:
        """Remove a job that another broker owns now, without any report."""
        for group in range(len(record.spec.groups)):
            self.placement.dequeue(record, group)
            self.placement.leave(record, group)
        self.placement.keys.on_usage(record, is_leaving=True)
        del self.context.jobs[record.id]
        self.large_cancellations.drop(record.id)
        self.tasks -= len(record.state)

    # --- reports of attempts -------------------------------------------------------------------------------

    def on_attempts_started(self, entries: tuple[tuple[TaskId, int, int], ...]) -> None:
        """Handle started attempts: task, attempt, node."""
        jobs, views = self.context.jobs, self.context.views
        outdated = []
        for task, attempt, node in entries:
            record = jobs.get(task >> INDEX_BITS)  # type: ignore[call-overload]  # a job id is a number
            index = task & INDEX_MASK
            if record is None or index >= len(record.state) or record.attempt[index] != attempt:
                outdated.append((task, attempt, node))
                continue
            if not CLAIMED <= record.state[index] <= PLACED:
                outdated.append((task, attempt, node))
                continue
            record.state[index] = RUNNING
            view = views[record.place[index]]
            if view.state.standing < STANDING_FULL:
                adjust_standing(view, good=True)
        self._history.start_tasks(entries, outdated)

    def on_attempt_refused(self, task: TaskId, attempt: int, reason: str) -> None:
        """Queue a task again after a warden refused its attempt, which never ran."""
        record = self.context.jobs.get(job_of(task))
        index = index_of(task)
        if record is None or record.attempt[index] != attempt or record.state[index] not in (CLAIMED, PLACED):
            self.context.mark("broker.refusal_of_old_attempt")
            return
        record.withdrawn.pop(index, None)
        if reason == RefusalReason.HELD:
            self.placement.demand_publisher.pause(record.place[index])
        self._requeue(record, index, DecisionKind.MOVED, f"refused: {reason}", None)

    def on_attempt_ended(self, record: JobRecord, index: int, end: AttemptEnd) -> bool:
        """Handle an ended attempt; False if it is not the task's current one, which changes nothing."""
        if record.attempt[index] != end.attempt or not CLAIMED <= record.state[index] <= RUNNING:
            self.context.mark("broker.end_of_old_attempt")
            return False
        withdrawn = bool(record.withdrawn) and record.withdrawn.pop(index, None) == end.attempt
        regrouped = bool(record.regrouped) and record.regrouped.pop(index, None) == end.attempt
        outcome = end.outcome
        if outcome is Outcome.SUCCEEDED:
            if record.sizes:
                self.placement.resize(self.placement.sizing.on_task_succeeded(record, index, end.usage))
            self._settle_attempt(record, index, SUCCEEDED, end)
        elif record.cancelled:
            self._settle_attempt(record, index, CANCELLED, end)
        elif outcome is Outcome.FAILED:
            self._on_attempt_failed(record, index, end)
        elif outcome is Outcome.LOST:
            self.on_attempt_lost(record, index, "its node was lost", end)
        elif outcome is Outcome.CANCELLED and must_not_repeat(record) and not regrouped:
            self.on_attempt_lost(record, index, TAKEN_BACK, end)
        else:
            self.context.mark("broker.requeued_withdrawn" if withdrawn else f"broker.requeued_{outcome}")
            self._requeue(record, index, DecisionKind.MOVED, f"{outcome}", end)
        return True

    def _on_attempt_failed(self, record: JobRecord, index: int, end: AttemptEnd) -> None:
        record.failures[index] = record.failures.get(index, 0) + 1
        if record.failures[index] > record.spec.retries:
            self._settle_attempt(record, index, FAILED, end)
            return
        self.context.mark("broker.retried")
        self._requeue(record, index, DecisionKind.RETRIED, f"exit code {end.exit_code}", end)

    def on_attempt_lost(self, record: JobRecord, index: int, reason: str, end: AttemptEnd) -> None:
        """Handle an attempt that was lost through no fault of its own: start another one, unless that is
        forbidden."""
        record.losses[index] = record.losses.get(index, 0) + 1
        if must_not_repeat(record) and not is_ending(record):
            self.fail_lost(record, index, reason, end)
        elif record.losses[index] > self.context.config.lost_max:
            self._settle_attempt(record, index, FAILED, end)
        else:
            self._requeue(record, index, DecisionKind.MOVED, reason, end)

    def fail_lost(self, record: JobRecord, index: int, reason: str, end: AttemptEnd) -> None:
        """Fail a task that may have started and must not run twice."""
        self.context.mark("broker.failed_lost")
        self.context.record_decision(record, record.group_of(index), DecisionKind.ENDED, 1, f"{LOST}{reason}")
        self._settle_attempt(record, index, FAILED, end)

    def _requeue(
        self, record: JobRecord, index: int, kind: DecisionKind, reason: str, end: AttemptEnd | None
    ) -> None:
        """Queue a task again, unless its job is ending or its gang has failed. No end: it was refused."""
        if is_ending(record):
            self._settle_attempt(record, index, CANCELLED, end)
            return
        self._history.end_attempt(task_id(record.id, index), WAITING, end)
        group = record.group_of(index)
        self.context.record_decision(record, group, kind, 1, reason)
        self.placement.enqueue(record, group, [index])
        if record.spec.gang:
            self._break_gang(record, kind is DecisionKind.RETRIED)

    def _break_gang(self, record: JobRecord, retried: bool = False) -> None:
        """Withdraw the rest of a gang of which one task must start again. ``retried``: that task has failed,
        and the job has a retry left."""
        for index, state in enumerate(record.state):
            if CLAIMED <= state <= RUNNING and index not in record.withdrawn:
                self.context.mark("broker.broke_gang")
                self.withdrawal.withdraw(record, index)
                if retried:
                    record.regrouped[index] = record.attempt[index]

    # --- terminal states -----------------------------------------------------------------------------------

    def _settle_attempt(self, record: JobRecord, index: int, state: int, end: AttemptEnd | None) -> None:
        """Move a task to its terminal state with the end of its attempt."""
        self._history.end_attempt(TaskId(record.id << INDEX_BITS | index), state, end)
        self._settle(record, index, state)

    def _settle(self, record: JobRecord, index: int, state: int) -> None:
        """Move a task to its terminal state."""
        before = record.state[index]
        assert before < SUCCEEDED
        ran = before >= CLAIMED
        record.ran[index] = ran
        record.state[index] = state
        record.place[index] = -1
        record.tasks_left -= 1
        group = record.group[index] if record.group else 0
        record.unfinished[group] -= 1
        self._end_log.add_task_end(record, index, record.attempt[index] if ran else 0)
        if state != SUCCEEDED:
            self._cancel_dependents(record, group, state)
        elif record.waiting[group] and record.spec.gang:
            self.placement.enqueue(record, group, [])  # fewer are left to start together
        elif not record.unfinished[group] and record.tasks_left:
            self._release_dependents(record, group)
        if not record.unfinished[group] or self._follows_progress:  # hot: asked before the call
            self._on_group_progress(record, group)

    def _on_group_progress(self, record: JobRecord, group: int) -> bool:
        """Handle ended tasks of a group; return whether the job is over with them."""
        if not record.unfinished[group]:
            self.placement.leave(record, group)
            if not record.tasks_left:
                self._finish(record)
                return True
        if self.placement.keys.follows_progress:
            self.placement.keys.on_progress(record)
        return False

    def _settle_run(self, record: JobRecord, first: int, count: int) -> bool:
        """Cancel neighbours of one group that are in no queue; return whether the job is over."""
        self._history.cancel_tasks(record, [(first, count)])
        group = cancel_columns(record, first, count)
        self._end_log.add_task_ends(record, first, count)
        self._cancel_dependents(record, group, CANCELLED)
        return self._on_group_progress(record, group)

    def _release_dependents(self, record: JobRecord, group: int) -> None:
        """Queue the groups that needed a group that has succeeded."""
        spec = record.spec
        first, count = first_task(record, group), spec.groups[group].count
        if record.cancelled or record.state.count(SUCCEEDED, first, first + count) < count:
            return
        left = self.large_cancellations.queued_most
        for other, part in enumerate(spec.groups):
            if spec.groups[group].name in part.needs and not record.after:
                left -= self._release_group(record, other, left)

    def _cancel_dependents(self, record: JobRecord, group: int, state: int) -> None:
        """Cancel what depends on a group of which a task did not succeed, and the rest of a failed gang."""
        if record.spec.gang and state == FAILED and not record.cancelled:
            self.context.mark("broker.gang_failed")
            self._cancel_rest(record)
        ends = record.id in self.large_cancellations.unfinished  # then the dependents end in any case
        for first, behind in () if ends else dependents_of(record.spec, group):
            if record.state.count(BLOCKED, first, behind) > self.large_cancellations.slice_tasks:
                self.large_cancellations.end_later(self.context.now, record)
                return
            for at, count in find_stretches(
                record.state, self.large_cancellations.slice_tasks, first, behind
            ):
                self._settle_run(record, at, count)

    def _cancel_rest(self, record: JobRecord) -> None:
        large = record.cancelled and record.tasks_left > self.large_cancellations.slice_tasks
        for group in range(len(record.waiting)):
            waiting = self.placement.dequeue(record, group)
            if not record.cancelled:
                self._history.cancel_tasks(record, [(index, 1) for index in waiting])
            for index in () if large else waiting:
                self._settle(record, index, CANCELLED)
        for index in find_tasks(record.state, (CLAIMED, PLACED, RUNNING), len(record.state)):
            self.withdrawal.withdraw(record, index)

    def cancel(self, record: JobRecord, reason: str) -> None:
        """Cancel a job: waiting tasks at once, running ones as soon as their warden has stopped them."""
        if record.cancelled:
            return
        record.cancelled, record.cancel_reason = True, reason
        self._history.cancel_job(record, reason)
        self.large_cancellations.stop_queueing(record.id)
        record.after.clear()
        for group in range(len(record.spec.groups)):
            self.context.record_decision(
                record, group, DecisionKind.ENDED, record.unfinished[group], f"cancelled: {reason}"
            )
        large = record.tasks_left > self.large_cancellations.slice_tasks
        self._cancel_rest(record)
        if large:
            self.large_cancellations.begin(self.context.now, record)
            return
        self.large_cancellations.end(record, record.tasks_left)
        self.large_cancellations.drop(record.id)  # a group may have been scheduled for slices

    def _finish(self, record: JobRecord) -> None:
        if self.context.jobs.pop(record.id, None) is None:
            return
        self.placement.keys.on_usage(record, is_leaving=True)
        self.large_cancellations.drop(record.id)
        self.tasks -= len(record.state)
        outcome = record.outcome()
        for group in range(len(record.spec.groups)):
            self.placement.leave(record, group)
        self.remember(record.id, EndedJob(outcome, record.spec.client_id))
        self._end_log.add_job_end(record)

    def remember(self, job: JobId, ended: EndedJob) -> None:
        """Remember how a job ended, and its client id; forget the oldest such job."""
        ended_jobs = self.dependencies.ended_jobs
        ended_jobs[job] = ended
        if len(ended_jobs) > self.context.config.ended_max:
            oldest = next(iter(ended_jobs))
            self.clients.pop(ended_jobs.pop(oldest).client_id, None)

    def check(self) -> None:
        """Assert that counts and lists match the live jobs."""
        jobs = self.context.jobs.values()
        assert self.tasks == sum(len(record.state) for record in jobs)
        for record in jobs:
            over = sum(map(record.state.count, (SUCCEEDED, FAILED, CANCELLED)))
            assert record.tasks_left == len(record.state) - over == sum(record.unfinished)
        self.dependencies.check()
        self.large_cancellations.check()

    # --- time ----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Cancel jobs past their deadline; withdraw attempts that did not start in time."""
        now = self.context.now
        while self.deadlines and self.deadlines[0][0] <= now:
            _, job = self.deadlines.pop(0)
            record = self.context.jobs.get(job)
            if record is not None and record.admitted:
                self.context.mark("broker.deadline_passed")
                self.cancel(record, "its deadline has passed")
        self.withdrawal.tick()
