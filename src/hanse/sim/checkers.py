"""League-wide checkers: they judge the promises by what really happened, not by what any machine believes.

The ``Oracle`` hears of every launch and end when it happens, of every acknowledgement and of every settled
task. It raises a ``Violation`` that names the promise and the task, job or node concerned. ``check_idle``
checks a league that has healed and has no work left.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from hanse.core.config import NodeConfig, WardenConfig
from hanse.model.constraints import is_satisfied
from hanse.model.effects import TaskSettled
from hanse.model.ids import JobId, TaskId, index_of, job_of, job_text, task_id, task_text
from hanse.model.job import JobClass, JobSpec, OnLoss, Proximity
from hanse.model.messages import Outcome
from hanse.model.resources import Resources, Vector
from hanse.sim.backend import SimulatedAttempt, SimulatedBackend
from hanse.sim.process import Process
from hanse.sim.state_diff import first_difference
from hanse.sim.workload import JobPlan, SeedWorkload
from hanse.sim.world import Violation, VirtualWorld

UNINTERRUPTED_OUTCOMES: Final = (Outcome.SUCCEEDED, Outcome.FAILED)


class InspectedBroker(Protocol):
    """Methods of a broker that the checkers call."""

    def believed_free(self, cluster: str) -> list[Vector] | None:
        """Return the believed room of each node; None if the broker does not know the cluster."""
        ...

    def find_leftovers(self) -> list[str]:
        """Return descriptions of work that is left over."""
        ...

    def shards(self) -> tuple[list[str], list[str]]:
        """Return the shards that the broker owns and the shards of which it keeps copies."""
        ...


class AnsweringBroker(Protocol):
    """Methods by which a broker's HTTP API routes questions about jobs."""

    def is_owner_of(self, job: JobId) -> bool:
        """True if the job belongs to this broker and has not ended."""
        ...

    def find_answering_broker(self, job: JobId, asked: Collection[str] = ()) -> str:
        """Return the broker to ask about a job: itself, another one, or "" if it knows of none."""
        ...


class InspectedWarden(Protocol):
    """Methods of a warden that the checkers call."""

    def advertised_free(self) -> list[Vector]:
        """Return the room that the warden advertises on each node."""
        ...

    def find_leftovers(self) -> list[str]:
        """Return descriptions of work that is left over."""
        ...

    def shards(self) -> dict[str, int]:
        """Return the shards that the warden knows."""
        ...


class ActualNode:
    """Real state of a node."""

    __slots__ = (
        "attributes",
        "capacity",
        "cluster",
        "index",
        "labels_seen",
        "live_tasks",
        "reserved",
        "runner",
        "used",
    )

    def __init__(self, cluster: str, index: int, config: NodeConfig, reserved: bool) -> None:
        self.cluster = cluster
        self.index = index
        self.capacity = config.capacity
        self.attributes = dict(config.attributes)
        self.runner = config.runner
        self.reserved = reserved
        self.live_tasks: dict[int, tuple[Resources, tuple[str, ...]]] = {}
        """Live tasks with their sizes and labels."""
        self.used = Resources()
        """Sum of those sizes."""
        self.labels_seen: dict[str, None] = {}
        """Labels of all tasks that ever ran on this node."""

    def describe_use(self, task: int) -> str:
        """Describe the use of the node by tasks other than this one."""
        others = ", ".join(task_text(TaskId(other)) for other in self.live_tasks if other != task)
        return f"{self.used} of {self.capacity} in use, with {others or 'nothing else'} there"


class Oracle:
    """Truth about every task; judges the promises that can be judged as things happen."""

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
                task_id(job, index) not in self.settlements for index in range(plan.spec.tasks)
            )

    def on_task_settled(self, effect: TaskSettled) -> None:
        """Record the final outcome that a broker reports for a task."""
        task, settlement = effect.task, (effect.attempt, effect.outcome)
        previous = self.settlements.get(task)
        if previous is not None:
            if previous != settlement:
                raise Violation(
                    "at most one effective completion",
                    f"task {task_text(task)} settled as {_settlement_text(previous)} and as "
                    f"{_settlement_text(settlement)}",
                    task,
                )
            return
        self._check_settled(task, effect.attempt, effect.outcome)
        self.settlements[task] = settlement
        if job_of(task) in self.acknowledged_jobs:
            self.open_tasks -= 1

    def _check_settled(self, task: TaskId, attempt: int, outcome: Outcome) -> None:
        actual = self.actual_ends.get((task, attempt))
        if task in self.live_tasks:
            raise self._settlement_violation("settled means over", task, attempt, outcome, "it still runs")
        if outcome is Outcome.SUCCEEDED:
            if actual is not Outcome.SUCCEEDED:
                why = f"that attempt {actual or 'never ran'}"
                raise self._settlement_violation(
                    "at most one effective completion", task, attempt, outcome, why
                )
        elif outcome is Outcome.FAILED:
            plan = self.jobs.get(job_of(task))
            hopeless = plan is None or plan.is_infeasible
            lost = self.losses.get(task, 0) > self.lost_max or self._can_fail_by_loss(task, attempt)
            if actual is not Outcome.FAILED and not lost and not hopeless:
                why = f"that attempt {actual or 'never ran'}"
                raise self._settlement_violation("no invented failures", task, attempt, outcome, why)
        elif outcome is not Outcome.CANCELLED:
            raise self._settlement_violation(
                "no invented failures", task, attempt, outcome, "that is not a terminal state"
            )
        elif not self._can_be_cancelled(task) and not self._can_fail_by_loss(task, 1):
            why = "nothing gave a reason to cancel it"
            raise self._settlement_violation("no invented failures", task, attempt, outcome, why)

    @staticmethod
    def _settlement_violation(
        promise: str, task: TaskId, attempt: int, outcome: Outcome, why: str
    ) -> Violation:
        text = f"task {task_text(task)} settled as {_settlement_text((attempt, outcome))}, but {why}"
        return Violation(promise, text, task)

    def _can_be_cancelled(self, task: TaskId) -> bool:
        """True if a client cancelled it, it has a deadline, or a task or job that it depends on failed."""
        job = job_of(task)
        plan = self.jobs.get(job)
        if plan is None or job in self.cancelled_jobs:
            return True
        spec = self.specs[plan.number]
        if spec.deadline is not None:
            return True
        if any(other in self.cancelled_jobs or not self._is_certain_success(other) for other in spec.after):
            return True
        if spec.after and self.retired_brokers:
            return True  # no other broker may remember how such a job ended
        tasks = [task_id(job, index) for index in range(spec.tasks)]
        return any(other in self.failed_tasks or self._is_settled_without_success(other) for other in tasks)

    def _can_fail_by_loss(self, task: TaskId, attempt: int) -> bool:
        """True if a loss of this attempt fails the task. Attempt 0: an attempt that nobody can report,
        because its cluster may have vanished with it."""
        plan = self.jobs.get(job_of(task))
        is_once = plan is not None and plan.spec.on_loss is OnLoss.FAIL
        return is_once and (attempt > 0 or bool(self.doubtful_clusters))

    def _is_settled_without_success(self, task: TaskId) -> bool:
        settlement = self.settlements.get(task)
        return settlement is not None and settlement[1] is not Outcome.SUCCEEDED

    def _is_certain_success(self, job: JobId) -> bool:
        """True if all tasks succeeded, in truth and in the reported outcomes, and the job has no deadline."""
        plan = self.jobs.get(job)
        if plan is None or self.specs[plan.number].deadline is not None:
            return False
        return self._has_succeeded(job) and not any(
            self._is_settled_without_success(task_id(job, index)) for index in range(plan.spec.tasks)
        )

    def _has_succeeded(self, job: JobId) -> bool:
        plan = self.jobs.get(job)
        return plan is not None and all(
            task_id(job, index) in self.success_times for index in range(plan.spec.tasks)
        )

    # --- real starts and ends -------------------------------------------------------------------------------

    def on_launched(self, cluster: str, runner: str, attempt: SimulatedAttempt) -> None:
        """Record the start of an attempt and check the promises that a start can break."""
        task = attempt.task
        node = self.nodes.get((cluster, attempt.node))
        if node is None or node.runner != runner:
            raise _launch_violation(
                "only where it may run", cluster, attempt, f"{runner} does not serve that node"
            )
        plan, group = self.workload.plan_of(attempt.payload)
        job = job_of(task)
        known = self.jobs.setdefault(job, plan)
        if known is not plan or not _is_in_group(plan.spec, group, index_of(task)):
            raise _launch_violation(
                "one job, one number", cluster, attempt, "it runs the command of another task"
            )
        self._check_once(node, attempt)
        spec = self.specs[plan.number]
        if spec.on_loss is OnLoss.FAIL:
            self._check_restart_allowed(spec, node, attempt)
        self._check_placement(spec, group, node, attempt)
        if spec.after or spec.groups[group].needs:
            self._check_order(spec, group, node, attempt)
        node.live_tasks[task] = (attempt.size, spec.labels)
        node.used = node.used.plus(attempt.size)
        if not node.used.fits(node.capacity):
            raise _launch_violation("no over-commit", cluster, attempt, node.describe_use(task))
        for label in spec.labels:
            node.labels_seen[label] = None
        self.live_tasks[task] = node
        self.launches[task, attempt.attempt] = node
        self.begun_attempts.setdefault(task, []).append(attempt.attempt)
        if spec.gang:
            self.gang_launches.setdefault(job, []).append((self.world.now, task, cluster))

    def _check_once(self, node: ActualNode, attempt: SimulatedAttempt) -> None:
        task, promise = attempt.task, "at most one live attempt"
        if task in self.live_tasks:
            other = self.live_tasks[task]
            why = f"another one runs on {other.cluster} node {other.index}"
            raise _launch_violation(promise, node.cluster, attempt, why)
        if (task, attempt.attempt) in self.launches:
            raise _launch_violation(promise, node.cluster, attempt, "the same attempt was launched before")
        if task in self.settlements:
            why = f"the task was settled as {_settlement_text(self.settlements[task])}"
            raise _launch_violation("settled means over", node.cluster, attempt, why)

    def _check_restart_allowed(self, spec: JobSpec, node: ActualNode, attempt: SimulatedAttempt) -> None:
        """Check that every earlier attempt ended in a way that permits another one: by a failure with
        retries, of this task or of one of its gang, or by preemption."""
        task = attempt.task
        for earlier in self.begun_attempts.get(task, ()):
            ended = self.actual_ends[task, earlier]
            tasks = [task_id(job_of(task), index) for index in range(spec.tasks)]
            regrouped = spec.gang and spec.retries and any(other in self.failed_tasks for other in tasks)
            allowed = bool(spec.retries) if ended is Outcome.FAILED else spec.preemptible or regrouped
            if ended in (Outcome.SUCCEEDED, Outcome.LOST) or not allowed:
                why = f"attempt {earlier} had begun, and was {ended}"
                raise _launch_violation("no second start after a loss", node.cluster, attempt, why)

    def _check_placement(
        self, spec: JobSpec, group: int, node: ActualNode, attempt: SimulatedAttempt
    ) -> None:
        promise, task_group = "only where it may run", spec.groups[group]
        why = ""
        if task_group.where is not None and not is_satisfied(task_group.where, node.attributes):
            why = "the node's attributes do not satisfy its condition"
        elif node.cluster in spec.clusters_forbidden or (
            spec.clusters_allowed and node.cluster not in spec.clusters_allowed
        ):
            why = "its job may not use this cluster"
        elif node.reserved and spec.klass is not JobClass.LATENCY:
            why = "the node is kept for latency work"
        elif attempt.size != task_group.ask and not (
            task_group.ask.fits(attempt.size) and attempt.size.fits(task_group.ask_max or task_group.ask)
        ):
            why = f"it got {attempt.size}, which it did not ask for"
        if why:
            raise _launch_violation(promise, node.cluster, attempt, why)
        for affinity in task_group.affinity:
            nodes = [node] if affinity.proximity is Proximity.NODE else self.nodes_by_cluster[node.cluster]
            if affinity.apart:
                for other in nodes:
                    for neighbour, (_, labels) in other.live_tasks.items():
                        if affinity.label in labels:
                            neighbour_text = task_text(TaskId(neighbour))
                            why = f"keeps away from '{affinity.label}', which {neighbour_text} has"
                            raise _launch_violation(promise, node.cluster, attempt, why)

    def _check_order(self, spec: JobSpec, group: int, node: ActualNode, attempt: SimulatedAttempt) -> None:
        promise, job, first = "nothing before what it needs", job_of(attempt.task), 0
        for position, other in enumerate(spec.groups):
            if other.name in spec.groups[group].needs:
                for index in range(first, first + other.count):
                    if task_id(job, index) not in self.success_times:
                        why = f"group {position}, which it needs, has not succeeded"
                        raise _launch_violation(promise, node.cluster, attempt, why)
            first += other.count
        for earlier in spec.after:
            if not self._has_succeeded(earlier):
                why = f"job {job_text(earlier)}, which it comes after, has not succeeded"
                raise _launch_violation(promise, node.cluster, attempt, why)

    def on_ended(self, cluster: str, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        """Record the end of an attempt."""
        task = attempt.task
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
            for index in range(plan.spec.tasks):
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
            if self._can_be_cancelled(task_id(JobId(job), 0)):
                continue
            tasks = [task_id(JobId(job), index) for index in range(self.jobs[job].spec.tasks)]
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


def check_replay(process: Process) -> None:
    """Check that a fresh machine with the process's snapshot and journal has the process's state."""
    state, replayed_state = process.machine.dump(), process.replay().dump()
    if state != replayed_state:
        difference = first_difference(state, replayed_state)
        raise Violation(
            "ledger equals journal replay", f"the journal of {process.name} gives another state: {difference}"
        )


def check_idle(
    brokers: dict[str, Process], wardens: dict[str, Process], backends: Sequence[SimulatedBackend]
) -> None:
    """Check that nothing is left over (leases, claims, messages, ends) and that all views are true."""
    for backend in backends:
        for task, attempt in (*backend.live_attempts, *backend.ends):
            state = "still runs" if (task, attempt) in backend.live_attempts else "was never forgotten"
            message = f"task {task_text(TaskId(task))} attempt {attempt} {state} at {backend.runner.name}"
            raise Violation("no lease leaks", message, task)
    for name, process in (*wardens.items(), *brokers.items()):
        machine: InspectedWarden | InspectedBroker = process.machine  # type: ignore[assignment]  # checked by use
        complaints = machine.find_leftovers()
        if complaints:
            raise Violation("no lease leaks", f"{name}: " + "; ".join(complaints))
    for cluster, warden in wardens.items():
        warden_machine: InspectedWarden = warden.machine  # type: ignore[assignment]
        advertised = warden_machine.advertised_free()
        for name, broker in brokers.items():
            broker_machine: InspectedBroker = broker.machine  # type: ignore[assignment]
            view = broker_machine.believed_free(cluster)
            if view != advertised:
                raise Violation(
                    "view converges", f"{name} believes {view} of {cluster}, which offers {advertised}"
                )


def check_shard_owners(
    brokers: dict[str, Process], wardens: dict[str, Process], retired: Sequence[str] = ()
) -> None:
    """Check that takeovers leave nothing behind: at the end a broker owns only the shard that it created
    last, and nobody knows of any other shard. A warden may know a shard of a retired broker if the shard
    held no work."""
    promise = "no shard is left open"
    known: dict[str, None] = {}
    for name, broker in brokers.items():
        owner: InspectedBroker = broker.machine  # type: ignore[assignment]  # checked by use
        owned = owner.shards()[0]
        if [shard.rpartition("#")[0] for shard in owned] != [name]:
            raise Violation(promise, f"{name} owns {', '.join(owned)}")
        known[owned[0]] = None
    for name, warden in wardens.items():
        machine: InspectedWarden = warden.machine  # type: ignore[assignment]
        shards = [name for name in machine.shards() if name.rpartition("#")[0] not in retired]
        if sorted(shards) != sorted(known):
            raise Violation(promise, f"{name} knows {', '.join(machine.shards())}, not {', '.join(known)}")
    for name, broker in brokers.items():
        standby: InspectedBroker = broker.machine  # type: ignore[assignment]
        stale = [shard for shard in standby.shards()[1] if shard not in known]
        if stale:
            raise Violation(promise, f"{name} keeps copies for {', '.join(stale)}")


def check_job_routing(brokers: dict[str, Process], jobs: Iterable[int]) -> None:
    """Check that brokers route questions about a job to the broker that owns it or remembers its end; if
    there is none, to a broker that says so."""
    promise = "brokers route to the owner"
    machines: dict[str, AnsweringBroker] = {name: one.machine for name, one in brokers.items()}  # type: ignore[misc]
    for job in map(JobId, jobs):
        knowing_brokers = [
            name for name, machine in machines.items() if machine.find_answering_broker(job) == name
        ]
        for first, machine in machines.items():
            path, next_broker = [first], machine.find_answering_broker(job)
            while (
                next_broker in machines and next_broker != path[-1]
            ):  # a retired broker answers no questions
                path.append(next_broker)
                if len(path) > len(machines):
                    raise Violation(promise, f"job {job_text(job)}: a circle of routes, {' to '.join(path)}")
                next_broker = machines[next_broker].find_answering_broker(job, path)
            if knowing_brokers and path[-1] not in knowing_brokers:
                route = " to ".join(path)
                raise Violation(
                    promise, f"job {job_text(job)} is known to {knowing_brokers}; the route was {route}"
                )


def _is_in_group(spec: JobSpec, group: int, index: int) -> bool:
    first = sum(other.count for other in spec.groups[:group])
    return first <= index < first + spec.groups[group].count


def _settlement_text(settlement: tuple[int, Outcome]) -> str:
    return f"{settlement[1]} by attempt {settlement[0]}"


def _launch_violation(promise: str, cluster: str, attempt: SimulatedAttempt, why: str) -> Violation:
    """Return the violation for a launch that breaks a promise."""
    text = f"task {task_text(attempt.task)} attempt {attempt.attempt} on {cluster} node {attempt.node}: {why}"
    return Violation(promise, text, attempt.task)
