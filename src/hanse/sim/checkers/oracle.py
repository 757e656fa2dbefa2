"""Oracle: it hears of what really happens as it happens, and judges the promises that can be judged then.

The ``Oracle`` hears of every launch and end when it happens, of every acknowledgement and of every settled
task. It raises a ``Violation`` that names the promise and the task, job or node concerned.
"""

from collections.abc import Sequence
from typing import Final

from hanse.core.config import WardenConfig
from hanse.model.effects import TaskSettled
from hanse.model.ids import JobId, index_of, job_of, job_text, task_id, task_text
from hanse.model.job import OnLoss
from hanse.model.messages import Outcome
from hanse.sim.backend import SimulatedAttempt
from hanse.sim.checkers.actual_tasks import ActualTasks
from hanse.sim.checkers.gangs import GangChecker
from hanse.sim.checkers.launches import (
    check_once,
    check_order,
    check_placement,
    check_restart_allowed,
    is_in_group,
    launch_violation,
)
from hanse.sim.checkers.settlements import check_settled, settlement_text
from hanse.sim.workload import JobPlan, SeedWorkload
from hanse.sim.world import Violation, VirtualWorld

UNINTERRUPTED_OUTCOMES: Final = (Outcome.SUCCEEDED, Outcome.FAILED)


class Oracle(ActualTasks):
    """Truth about every task; judges the promises that can be judged as things happen."""

    def __init__(
        self, world: VirtualWorld, workload: SeedWorkload, wardens: Sequence[WardenConfig], lost_max: int
    ) -> None:
        super().__init__(world, workload, wardens, lost_max)
        self.gangs = GangChecker(self)

    # --- promises to clients --------------------------------------------------------------------------------

    def on_job_accepted(self, job: JobId, plan: JobPlan) -> None:
        """Record a broker's promise to run this job to its end."""
        known = self.jobs.setdefault(job, plan)
        if known is not plan:
            raise Violation(
                "one job, one number",
                f"job {job_text(job)} is submission {known.number} and submission {plan.number}",
                job=job,
            )
        if job not in self.acknowledged_jobs:
            self.acknowledged_jobs[job] = plan
            self.open_tasks += sum(
                task_id(job, index) not in self.settlements for index in range(plan.spec.task_count)
            )

    def on_task_settled(self, effect: TaskSettled) -> None:
        """Record the final outcome that a broker reports for a task."""
        task, settlement = effect.task, (effect.attempt, effect.outcome)
        previous = self.settlements.get(task)
        if previous is not None:
            if previous != settlement:
                raise Violation(
                    "at most one effective completion",
                    f"task {task_text(task)} settled as {settlement_text(previous)} and as "
                    f"{settlement_text(settlement)}",
                    task,
                )
            return
        check_settled(self, task, effect.attempt, effect.outcome)
        self.settlements[task] = settlement
        if job_of(task) in self.acknowledged_jobs:
            self.open_tasks -= 1

    # --- real starts and ends -------------------------------------------------------------------------------

    def on_launched(self, cluster: str, runner: str, attempt: SimulatedAttempt) -> None:
        """Record the start of an attempt and check the promises that a start can break."""
        task = attempt.task
        node = self.nodes.get((cluster, attempt.node))
        if node is None or node.runner != runner:
            raise launch_violation(
                "only where it may run", cluster, attempt, f"{runner} does not serve that node"
            )
        plan, group = self.workload.plan_of(attempt.payload)
        job = job_of(task)
        known = self.jobs.setdefault(job, plan)
        if known is not plan or not is_in_group(plan.spec, group, index_of(task)):
            raise launch_violation(
                "one job, one number", cluster, attempt, "it runs the command of another task"
            )
        check_once(self, node, attempt)
        spec = self.specs[plan.number]
        if spec.on_loss is OnLoss.FAIL:
            check_restart_allowed(self, spec, node, attempt)
        check_placement(self, spec, group, node, attempt)
        self.gangs.on_launched(spec, group, node, attempt)
        if spec.after or spec.groups[group].needs:
            check_order(self, spec, group, node, attempt)
        node.live_tasks[task] = (attempt.size, spec.labels)
        node.used = node.used.plus(attempt.size)
        if not node.used.fits(node.capacity):
            raise launch_violation("no over-commit", cluster, attempt, node.describe_use(task))
        for label in spec.labels:
            node.labels_seen[label] = None
        self.live_tasks[task] = node
        self.launches[task, attempt.attempt] = node
        self.begun_attempts.setdefault(task, []).append(attempt.attempt)
        if spec.gang:
            self.gang_launches.setdefault(job, []).append((self.world.now, task, cluster))

    def on_ended(self, cluster: str, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        """Record the end of an attempt."""
        task = attempt.task
        self.gangs.on_ended(attempt)
        del self.live_tasks[task]
        node = self.nodes[cluster, attempt.node]
        del node.live_tasks[task]
        node.used = node.used.minus(attempt.size)
        self.actual_ends[task, attempt.attempt] = outcome
        if outcome is Outcome.SUCCEEDED:
            self.success_times[task] = self.world.now
        elif outcome is Outcome.FAILED:
            self.failed_tasks[task] = None
        if outcome not in UNINTERRUPTED_OUTCOMES:
            self.losses[task] = self.losses.get(task, 0) + 1

    # --- checks at the end ----------------------------------------------------------------------------------

    def check_terminal(self, waited: str) -> None:
        """Check that every task of every acknowledged job has ended."""
        for job, plan in self.acknowledged_jobs.items():
            for index in range(plan.spec.task_count):
                task = task_id(JobId(job), index)
                if task not in self.settlements:
                    where = f"; it runs on {self.live_tasks[task].cluster}" if task in self.live_tasks else ""
                    raise Violation(
                        "every acknowledged task terminal",
                        f"task {task_text(task)} of submission {plan.number} is not settled {waited}{where}",
                        task,
                    )

    def check_gangs(self, since: int, window: int) -> None:
        """Check that, without faults, the tasks of a gang start in one cluster and together, or not at all.

        The check covers launches after ``since``, when faults had ceased: every other task of the gang has
        either succeeded before or starts in the same cluster within ``window`` microseconds.
        """
        for job, launches in self.gang_launches.items():
            if self.can_be_cancelled(task_id(JobId(job), 0)):
                continue
            tasks = [task_id(JobId(job), index) for index in range(self.jobs[job].spec.task_count)]
            for when, task, cluster in launches:
                for other in tasks if when >= since else ():
                    if self.success_times.get(other, when) < when:
                        continue
                    if not any(
                        launched == other and launched_in == cluster and abs(at - when) <= window
                        for at, launched, launched_in in launches
                    ):
                        message = f"task {task_text(task)} started in {cluster} without {task_text(other)}"
                        raise Violation("a gang starts together", message, task)

    def outcomes(self) -> list[int]:
        """Return every settled task with attempt and outcome as numbers, in task order, for the digest."""
        order = list(Outcome)
        return [
            number
            for task in sorted(self.settlements)
            for number in (task, self.settlements[task][0], order.index(self.settlements[task][1]))
        ]
