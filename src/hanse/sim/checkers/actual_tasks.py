"""Real course of every task and job, and its consequences."""

from collections.abc import Sequence

from hanse.core.config import WardenConfig
from hanse.model.ids import JobId, TaskId, job_of, task_id
from hanse.model.job import JobSpec, OnLoss
from hanse.model.messages import Outcome
from hanse.sim.checkers.actual_node import ActualNode
from hanse.sim.workload import JobPlan, SeedWorkload
from hanse.sim.world import VirtualWorld


class ActualTasks:
    """Record of what really happened, and of what was promised and reported."""

    def __init__(
        self, world: VirtualWorld, workload: SeedWorkload, wardens: Sequence[WardenConfig], lost_max: int
    ) -> None:
        self.world = world
        self.workload = workload
        self.nodes = {
            (warden.name, index): ActualNode(
                warden.name, index, node, index >= len(warden.nodes) - warden.reserve
            )
            for warden in wardens
            for index, node in enumerate(warden.nodes)
        }
        self.nodes_by_cluster = {
            warden.name: [self.nodes[warden.name, index] for index in range(len(warden.nodes))]
            for warden in wardens
        }
        self.lost_max = lost_max
        self.live_tasks: dict[int, ActualNode] = {}
        self.launches: dict[tuple[int, int], ActualNode] = {}
        """Node on which each attempt was launched."""
        self.begun_attempts: dict[int, list[int]] = {}
        """Task -> its attempts that really began."""
        self.actual_ends: dict[tuple[int, int], Outcome] = {}
        """Real outcome of each attempt."""
        self.success_times: dict[int, int] = {}
        """Task with an attempt that really succeeded -> time of the success."""
        self.failed_tasks: dict[int, None] = {}
        """Tasks with an attempt that really failed."""
        self.losses: dict[int, int] = {}
        """Task -> attempts that ended for no reason of their own."""
        self.settlements: dict[int, tuple[int, Outcome]] = {}
        self.specs: dict[int, JobSpec] = {}
        """Submitted jobs, by plan."""
        self.jobs: dict[int, JobPlan] = {}
        """Plans of the jobs that some broker knows."""
        self.acknowledged_jobs: dict[int, JobPlan] = {}
        self.open_tasks = 0
        """Tasks of acknowledged jobs that are not settled yet."""
        self.cancelled_jobs: dict[int, None] = {}
        """Jobs that a client asked to cancel."""
        self.retired_brokers: list[str] = []
        """Brokers that have retired, with everything that only they remembered."""
        self.doubtful_clusters: list[str] = []
        """Clusters that have retired, and are not on record as drained when they left."""
        self.gang_launches: dict[int, list[tuple[int, TaskId, str]]] = {}
        """Launches of gangs: true time, task, cluster."""

    def can_be_cancelled(self, task: TaskId) -> bool:
        """True if a client cancelled it, it has a deadline, or a task or job that it depends on failed."""
        job = job_of(task)
        plan = self.jobs.get(job)
        if plan is None or job in self.cancelled_jobs:
            return True
        spec = self.specs[plan.number]
        if spec.deadline is not None:
            return True
        if any(other in self.cancelled_jobs or not self.is_certain_success(other) for other in spec.after):
            return True
        if spec.after and self.retired_brokers:
            return True  # no other broker may remember how such a job ended
        tasks = [task_id(job, index) for index in range(spec.task_count)]
        return any(other in self.failed_tasks or self.is_settled_without_success(other) for other in tasks)

    def can_fail_by_loss(self, task: TaskId, attempt: int) -> bool:
        """True if a loss of this attempt fails the task. Attempt 0: an attempt that nobody can report,
        because its cluster may have vanished with it."""
        plan = self.jobs.get(job_of(task))
        is_once = plan is not None and plan.spec.on_loss is OnLoss.FAIL
        return is_once and (attempt > 0 or bool(self.doubtful_clusters))

    def is_settled_without_success(self, task: TaskId) -> bool:
        """True if a broker has reported a final outcome of the task other than a success."""
        settlement = self.settlements.get(task)
        return settlement is not None and settlement[1] is not Outcome.SUCCEEDED

    def is_certain_success(self, job: JobId) -> bool:
        """True if all tasks succeeded, in truth and in the reported outcomes, and the job has no deadline."""
        plan = self.jobs.get(job)
        if plan is None or self.specs[plan.number].deadline is not None:
            return False
        return self.has_succeeded(job) and not any(
            self.is_settled_without_success(task_id(job, index)) for index in range(plan.spec.task_count)
        )

    def has_succeeded(self, job: JobId) -> bool:
        """True if every task of the job has really succeeded."""
        plan = self.jobs.get(job)
        return plan is not None and all(
            task_id(job, index) in self.success_times for index in range(plan.spec.task_count)
        )
