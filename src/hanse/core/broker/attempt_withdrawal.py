"""Withdrawal of attempts from their wardens, and exceptions for tasks that must not run twice.

A cluster that accepted a task and does not start it in time loses the task to another cluster. A task that
must not run twice stays: it may be starting, or its start may not be reported yet, and after a stop it would
be unknown whether it had started. Such a task waits for its cluster, which ends it or loses it.
"""

from typing import Final

import msgspec

from hanse.core.broker.cluster_view import STANDING_FULL, ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_table import PLACED, JobRecord
from hanse.core.broker.loss_policy import must_not_repeat
from hanse.core.messaging.message_splitting import split_by_count
from hanse.model.ids import JobId, TaskId, task_id
from hanse.model.messages import CancelAttempts, TaskBatch

EXPECTED_MAX: Final = 1_000_000
"""Batches that are expected to start."""


class ExpectedStart(msgspec.Struct, gc=False):
    """Tasks that a warden has accepted and that should start soon."""

    due: int
    cluster: int
    job: JobId
    tasks: tuple[int, ...]
    attempts: tuple[int, ...]


class AttemptWithdrawal:
    """Withdrawals of one broker, and the starts that it expects."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.expected_starts: list[ExpectedStart] = []
        self.cancels: dict[int, list[tuple[TaskId, int]]] = {}
        """Cluster -> tasks and attempts withdrawn in this step."""

    def expect_start(self, cluster: int, batch: TaskBatch) -> None:
        """Expect accepted tasks to start before the deadline."""
        due = self.context.now + self.context.timings.start_deadline
        self.expected_starts.append(ExpectedStart(due, cluster, batch.job, batch.tasks, batch.attempts))
        assert len(self.expected_starts) <= EXPECTED_MAX

    def withdraw(self, record: JobRecord, index: int) -> None:
        """Withdraw an attempt from its warden, which will report the end."""
        record.withdrawn[index] = record.attempt[index]
        entry = (task_id(record.id, index), record.attempt[index])
        self.cancels.setdefault(record.place[index], []).append(entry)

    def tick(self) -> None:
        """Withdraw accepted tasks that did not start in time."""
        expected, now = self.expected_starts, self.context.now
        late = 0
        while late < len(expected) and expected[late].due <= now:
            item = expected[late]
            late += 1
            record = self.context.jobs.get(item.job)
            if record is None or must_not_repeat(record):
                continue
            for index, attempt in zip(item.tasks, item.attempts, strict=True):
                if (
                    record.attempt[index] == attempt
                    and record.state[index] == PLACED
                    and index not in record.withdrawn
                ):
                    self.context.mark("broker.withdrew_unstarted")
                    self.withdraw(record, index)
                    adjust_standing(self.context.views[item.cluster], good=False)
        del expected[:late]

    def flush(self) -> None:
        """Send the cancellations of this step."""
        for cluster, entries in self.cancels.items():
            for part in split_by_count(entries):
                tasks, attempts = zip(*part, strict=True)
                message = CancelAttempts(tasks, attempts)
                self.context.links.send(
                    self.context.effects, self.context.now, self.context.views[cluster].name, message
                )
        self.cancels.clear()


def adjust_standing(view: ClusterView, good: bool) -> None:
    """Raise or lower the standing of a cluster after a start in time, or a late one."""
    view_state = view.state
    view_state.standing += (
        (STANDING_FULL - view_state.standing) // 8 + 1 if good else -view_state.standing // 4
    )
    view_state.standing = max(0, min(STANDING_FULL, view_state.standing))
