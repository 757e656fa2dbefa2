"""Promises that a task's final outcome, as a broker reports it, can break."""

from hanse.model.ids import TaskId, job_of, task_text
from hanse.model.messages import Outcome
from hanse.sim.checkers.actual_tasks import ActualTasks
from hanse.sim.world import Violation


def check_settled(truth: ActualTasks, task: TaskId, attempt: int, outcome: Outcome) -> None:
    """Check that what really happened allows this final outcome of the task."""
    actual = truth.actual_ends.get((task, attempt))
    if task in truth.live_tasks:
        raise _settlement_violation("settled means over", task, attempt, outcome, "it still runs")
    if outcome is Outcome.SUCCEEDED:
        if actual is not Outcome.SUCCEEDED:
            why = f"that attempt {actual or 'never ran'}"
            raise _settlement_violation("at most one effective completion", task, attempt, outcome, why)
    elif outcome is Outcome.FAILED:
        plan = truth.jobs.get(job_of(task))
        hopeless = plan is None or plan.is_infeasible
        lost = truth.losses.get(task, 0) > truth.lost_max or truth.can_fail_by_loss(task, attempt)
        if actual is not Outcome.FAILED and not lost and not hopeless:
            why = f"that attempt {actual or 'never ran'}"
            raise _settlement_violation("no invented failures", task, attempt, outcome, why)
    elif outcome is not Outcome.CANCELLED:
        raise _settlement_violation(
            "no invented failures", task, attempt, outcome, "that is not a terminal state"
        )
    elif not truth.can_be_cancelled(task) and not truth.can_fail_by_loss(task, 1):
        why = "nothing gave a reason to cancel it"
        raise _settlement_violation("no invented failures", task, attempt, outcome, why)


def settlement_text(settlement: tuple[int, Outcome]) -> str:
    """Return a reported outcome as text: attempt and outcome."""
    return f"{settlement[1]} by attempt {settlement[0]}"


def _settlement_violation(promise: str, task: TaskId, attempt: int, outcome: Outcome, why: str) -> Violation:
    text = f"task {task_text(task)} settled as {settlement_text((attempt, outcome))}, but {why}"
    return Violation(promise, text, task)
