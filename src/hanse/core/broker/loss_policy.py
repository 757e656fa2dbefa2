"""What may not run twice: when a task of a job with ``on_loss: fail`` may have begun, and nobody can say how
it went.

Such a task starts again only after an end that is known and that allows it: a failure of its own (or of one
of its gang) while retries are left, or a preemption. What certainly never began starts elsewhere: a claim
that was refused, an attempt that its runner had no lease to start. All else is a loss (ADR 0040).
"""

from collections.abc import Iterable
from typing import Final

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_table import BLOCKED, FAILED, JobRecord, first_task, shape_of
from hanse.model.job import OnLoss

LOST: Final = "lost: "
"""How the reason of a decision begins that ends a task because it must not run again."""
TAKEN_BACK: Final = "it was taken back, and may have begun"


def must_not_repeat(record: JobRecord) -> bool:
    """Whether an attempt that may have begun is the last one if it is lost."""
    return record.spec.on_loss is OnLoss.FAIL


def is_ending(record: JobRecord) -> bool:
    """Whether nothing of a job starts again in any case: it is cancelled, or its gang has failed."""
    return record.cancelled or (record.spec.gang and FAILED in record.state)


def find_unaccounted(context: BrokerContext, record: JobRecord) -> tuple[str, list[int]]:
    """Tasks of an adopted job that may have begun where nobody can be asked any more, and where that is.

    Every warden that is there has said what it has of the job. One that has left the league has not: it may
    have been retired because it was gone, with all that it knew. What was accepted when it had long been
    silent cannot have run there.
    """
    if not must_not_repeat(record):
        return "", []
    for name in context.config.retired:
        view = context.view_by_name.get(name)
        if view is None or not shape_of(record.spec, 0, 0).allows_cluster(name):
            continue
        left_at = view.state.left_at
        if left_at < 0 or record.accepted_at < left_at:
            return name, list(_find_unknown(record))
    return "", []


def _find_unknown(record: JobRecord) -> Iterable[int]:
    """Tasks that no warden knows, of groups that could have started."""
    groups = record.spec.groups
    places = {part.name: group for group, part in enumerate(groups)}
    for group, part in enumerate(groups):
        if any(record.unfinished[places[need]] for need in part.needs):
            continue
        first = first_task(record, group)
        for index in range(first, first + part.count):
            if record.state[index] == BLOCKED:
                yield index
