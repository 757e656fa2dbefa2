"""Policy for attempts with an unknown result, of jobs with ``on_loss: fail``, which must not run twice.

Such a task starts again only after a known end that allows it: a failure of its own (or of a task of its
gang) with retries left, or a preemption. An attempt that certainly never started is placed elsewhere: a
refused claim, or an attempt that its runner had no lease to start. Every other case is a loss (ADR 0040).
"""

from collections.abc import Iterable
from typing import Final

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_table import BLOCKED, FAILED, JobRecord, first_task, shape_of
from hanse.model.ids import task_id
from hanse.model.job import OnLoss
from hanse.model.messages import AttemptEnd, Outcome

LOST: Final = "lost: "
"""Prefix of the reason of a decision that ends a task because it must not run again."""
TAKEN_BACK: Final = "it was taken back, and may have begun"


def must_not_repeat(record: JobRecord) -> bool:
    """True if a lost attempt that may have started must not be repeated."""
    return record.spec.on_loss is OnLoss.FAIL


def is_ending(record: JobRecord) -> bool:
    """True if no task of a job starts again in any case: the job is cancelled, or its gang has failed."""
    return record.cancelled or (record.spec.gang and FAILED in record.state)


def lost_end(record: JobRecord, index: int, attempt: int, reason: str) -> AttemptEnd:
    """Return the end of an attempt that nobody has reported; attempt 0: it is unknown which one."""
    return AttemptEnd(task_id(record.id, index), attempt, Outcome.LOST, note=reason)


def find_unaccounted(context: BrokerContext, record: JobRecord) -> tuple[str, list[int]]:
    """Return the tasks of a taken job that may have started in a cluster that cannot be asked, and that
    cluster.

    Every present warden has reported what it has of the job. A retired cluster has not. If it was drained
    when it left, there was nothing to report: all its attempts had ended, and a warden forgets an end only
    when the standby knows it, if the task was over. Otherwise it may have vanished with all it knew. A job
    that was accepted after it had been silent for that long cannot have run there.
    """
    if not must_not_repeat(record):
        return "", []
    for name in context.config.retired:
        if name in context.config.drained:
            continue
        view = context.view_by_name.get(name)
        if view is None or not shape_of(record.spec, 0, 0).allows_cluster(name):
            continue
        left_at = view.state.left_at
        if left_at < 0 or record.accepted_at < left_at:
            return name, list(_find_unknown(record))
    return "", []


def _find_unknown(record: JobRecord) -> Iterable[int]:
    """Yield the tasks that no warden knows, of groups that could have started."""
    groups = record.spec.groups
    places = {part.name: group for group, part in enumerate(groups)}
    for group, part in enumerate(groups):
        if any(record.unfinished[places[need]] for need in part.needs):
            continue
        first = first_task(record, group)
        for index in range(first, first + part.count):
            if record.state[index] == BLOCKED:
                yield index
