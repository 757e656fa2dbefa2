"""Log of what has ended in the shards of a broker: tasks, jobs, and cancellations.

Each shard keeps its part of the log (``OwnedShard``). An end goes to the standby first, collected for
``delta_linger``; ``ShardReplication.release_safe`` publishes it when the standby has it for certain. Without
a standby it is published with the present event.
"""

from typing import Final

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.replica_updates import replica_update_messages
from hanse.core.broker.job_table import STATE_BY_OUTCOME, JobRecord
from hanse.core.messaging.link import NEVER
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.model.ids import INDEX_BITS, TaskId, task_id

UNPUBLISHED_MAX: Final = 8 * ENTRIES_MAX
"""Unpublished ends above which ending a cancelled job's tasks pauses."""


class EndLog:
    """Ends of one broker's tasks and jobs on their way to the standbys."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.shards = context.owned_shards
        self.state = context.owned_shards.state

    def add_task_end(self, record: JobRecord, index: int, attempt: int) -> None:
        """Add the end of a task; attempt 0: it never ran."""
        owned = self.state.owned[record.shard]
        task, state = TaskId(record.id << INDEX_BITS | index), record.state[index]
        if owned.standby:
            owned.publishing.append((-1, task, attempt, state))
            owned.unsent_ends.append((task, state, attempt))
            self.schedule_updates()
        else:
            owned.publishing.append((0, task, attempt, state))
            self.shards.needs_release = True

    def add_task_ends(self, record: JobRecord, first: int, count: int) -> None:
        """Add the same end of neighbours that never ran."""
        if count == 1:
            self.add_task_end(record, first, 0)
            return
        owned = self.state.owned[record.shard]
        owned.add_end_run(task_id(record.id, first), record.state[first], count)
        if owned.standby:
            self.schedule_updates()
        else:
            self.shards.needs_release = True

    def add_job_end(self, record: JobRecord) -> None:
        """Add the end of a job, after those of all its tasks."""
        owned = self.state.owned[record.shard]
        owned.publishing.append(
            (-1 if owned.standby else 0, record.id, -1, STATE_BY_OUTCOME[record.outcome()])
        )
        if owned.jobs_left:
            owned.jobs_left -= 1
        if owned.standby:
            owned.forget.append(record.id)
            self.schedule_updates()
        else:
            self.shards.needs_release = True

    def has_backlog(self, record: JobRecord) -> bool:
        """True if so many ends of a job's shard wait for publication that ending large jobs must pause."""
        owned = self.state.owned[record.shard]
        runs = sum([entry[4] for entry in owned.republishing])
        return len(owned.publishing) + runs > UNPUBLISHED_MAX

    def add_cancellation(self, record: JobRecord) -> None:
        """Tell the standby that a job is cancelled, so that it never runs the job."""
        owned = self.state.owned.get(record.shard)
        if owned is not None and record.id not in owned.cancelled:
            owned.cancelled.append(record.id)
            self.schedule_updates()

    def forget_replica(self, record: JobRecord) -> None:
        """Have the standby drop its copy of a duplicate job."""
        owned = self.state.owned.get(record.shard)
        if owned is not None and owned.standby:
            owned.forget.append(record.id)
            self.schedule_updates()

    def schedule_updates(self) -> None:
        """Send what has ended when ``delta_linger`` has passed."""
        due = self.context.now + self.context.timings.delta_linger
        if due < self.state.progress_at:  # noqa: PLR1730  hot: min() costs more
            self.state.progress_at = due

    def send_updates(self) -> None:
        """Send the standbys what has ended."""
        self.state.progress_at = NEVER
        for shard, owned in self.state.owned.items():
            if owned.standby and (owned.unsent_ends or owned.done_runs or owned.cancelled or owned.forget):
                ends, runs = owned.unsent_ends, owned.done_runs
                for message in replica_update_messages(shard, ends, runs, owned.cancelled, owned.forget):
                    owned.last_message = self.context.links.send(
                        self.context.effects, self.context.now, owned.standby, message
                    )
            owned.mark_sent(owned.last_message if owned.standby else 0)
        self.shards.needs_release = True
