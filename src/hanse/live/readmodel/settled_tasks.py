"""Part of the projector that applies published ends of tasks, of single tasks and of runs of neighbours.
Most ends were shown before, when the broker received them."""

from typing import TYPE_CHECKING, Final

from hanse.api.rows import CANCELLED, FAILED, SUCCEEDED
from hanse.model.effects import TaskSettled, TasksSettled
from hanse.model.ids import INDEX_BITS, TASKS_PER_JOB_MAX, JobId
from hanse.model.messages import Outcome

if TYPE_CHECKING:
    from hanse.live.readmodel.projector import Projector

STATE_OF_OUTCOME: Final = {Outcome.SUCCEEDED: SUCCEEDED, Outcome.FAILED: FAILED, Outcome.CANCELLED: CANCELLED}
_INDEX: Final = TASKS_PER_JOB_MAX - 1


def on_task_settled(projector: "Projector", effect: TaskSettled) -> None:
    """Apply the published end of a task."""
    job = projector.find_owned(JobId(effect.task >> INDEX_BITS))
    if job is not None:
        index, state = effect.task & _INDEX, STATE_OF_OUTCOME[effect.outcome]
        if job.state[index] != state:
            projector.settle_task(job, index, state)


def on_tasks_settled(projector: "Projector", effect: TasksSettled) -> None:
    """Apply the published ends of a run of neighbours. A run that is known, or gets no rows, costs as much as
    one task."""
    job = projector.find_owned(JobId(effect.task >> INDEX_BITS))
    if job is None:
        return
    first, state = effect.task & _INDEX, STATE_OF_OUTCOME[effect.outcome]
    if job.end_run(first, first + effect.count, state, effect.attempt):
        projector.mark_changed(job)
        return
    for settled in effect.expand():
        on_task_settled(projector, settled)
