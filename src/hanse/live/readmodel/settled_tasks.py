"""Part of the projector that applies published ends of tasks, of single tasks and of runs of neighbours.
Most ends were shown before, when the broker received them."""

from typing import TYPE_CHECKING, Final

from hanse.api.rows import CANCELLED, FAILED, SUCCEEDED
from hanse.model.effects import TaskSettled, TasksSettled
from hanse.model.ids import INDEX_BITS, TASKS_PER_JOB_MAX, JobId
from hanse.model.messages import Outcome

if TYPE_CHECKING:
    from hanse.live.readmodel.projector import Projector

ENDS: Final = {Outcome.SUCCEEDED: SUCCEEDED, Outcome.FAILED: FAILED, Outcome.CANCELLED: CANCELLED}
_INDEX: Final = TASKS_PER_JOB_MAX - 1


def task_settled(projector: "Projector", command: TaskSettled) -> None:
    """Apply the published end of a task."""
    job = projector.mine(JobId(command.task >> INDEX_BITS))
    if job is not None:
        index, state = command.task & _INDEX, ENDS[command.outcome]
        if job.state[index] != state:
            projector.settle(job, index, state)


def tasks_settled(projector: "Projector", command: TasksSettled) -> None:
    """Apply the published ends of a run of neighbours. A run that is known, or gets no rows, costs as much as
    one task."""
    job = projector.mine(JobId(command.task >> INDEX_BITS))
    if job is None:
        return
    first, state = command.task & _INDEX, ENDS[command.outcome]
    if job.end_stretch(first, first + command.count, state, command.attempt):
        projector.touch(job)
        return
    for one in command.each():
        task_settled(projector, one)
