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
from hanse.sim.backend import Attempt, Backend
from hanse.sim.process import Process
from hanse.sim.state_diff import first_difference
from hanse.sim.workload import JobPlan, Workload
from hanse.sim.world import Violation, World

FOR_ITS_OWN_REASONS: Final = (Outcome.SUCCEEDED, Outcome.FAILED)


class BrokerInside(Protocol):
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


class Speaker(Protocol):
    """Methods by which a broker's HTTP API routes questions about jobs."""

    def is_owner_of(self, job: JobId) -> bool:
        """True if the job belongs to this broker and has not ended."""
        ...

    def find_answering_broker(self, job: JobId, asked: Collection[str] = ()) -> str:
        """Return the broker to ask about a job: itself, another one, or "" if it knows of none."""
        ...


class WardenInside(Protocol):
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


class Place:
    """Real state of a node."""

    __slots__ = ("attributes", "capacity", "cluster", "here", "index", "reserved", "runner", "seen", "used")

    def __init__(self, cluster: str, index: int, config: NodeConfig, reserved: bool) -> None:
        self.cluster = cluster
        self.index = index
        self.capacity = config.capacity
        self.attributes = dict(config.attributes)
        self.runner = config.runner
        self.reserved = reserved
        self.here: dict[int, tuple[Resources, tuple[str, ...]]] = {}
        """Live tasks with their sizes and labels."""
        self.used = Resources()
        """Sum of those sizes."""
        self.seen: dict[str, None] = {}
        """Labels of all tasks that ever ran on this node."""

    def crowd(self, task: int) -> str:
        """Describe the use of the node by tasks other than this one."""
        others = ", ".join(task_text(TaskId(other)) for other in self.here if other != task)
        return f"{self.used} of {self.capacity} in use, with {others or 'nothing else'} there"


class Oracle:
    """Truth about every task; judges the promises that can be judged as things happen."""

    def __init__(
        self, world: World, workload: Workload, wardens: Sequence[WardenConfig], lost_max: int
    ) -> None:
        self.world = world
        self.workload = workload
        self.places = {
            (warden.name, index): Place(warden.name, index, node, index >= len(warden.nodes) - warden.reserve)
            for warden in wardens
            for index, node in enumerate(warden.nodes)
        }
        self.by_cluster = {
            warden.name: [self.places[warden.name, index] for index in range(len(warden.nodes))]
            for warden in wardens
        }
        self.lost_max = lost_max
        self.live: dict[int, Place] = {}
        self.launches: dict[tuple[int, int], Place] = {}
        """Node on which each attempt was launched."""
        self.began: dict[int, list[int]] = {}
        """Task -> its attempts that really began."""
        self.exits: dict[tuple[int, int], Outcome] = {}
        """Real outcome of each attempt."""
        self.succeeded: dict[int, int] = {}
        """Task with an attempt that really succeeded -> time of the success."""
        self.failed: dict[int, None] = {}
        """Tasks with an attempt that really failed."""
        self.losses: dict[int, int] = {}
        """Task -> attempts that ended for no reason of their own."""
        self.settled: dict[int, tuple[int, Outcome]] = {}
        self.specs: dict[int, JobSpec] = {}
        """Submitted jobs, by plan."""
        self.jobs: dict[int, JobPlan] = {}
        """Plans of the jobs that some broker knows."""
        self.acknowledged: dict[int, JobPlan] = {}
        self.open = 0
        """Tasks of acknowledged jobs that are not settled yet."""
        self.cancelled: dict[int, None] = {}
        """Jobs that a client asked to cancel."""
        self.retired: list[str] = []
        """Brokers that have retired, with everything that only they remembered."""
        self.left: list[str] = []
        """Clusters that have retired."""
        self.gangs: dict[int, list[tuple[int, TaskId, str]]] = {}
        """Launches of gangs: true time, task, cluster."""

    # --- promises to clients --------------------------------------------------------------------------------

    def accepted(self, job: JobId, plan: JobPlan) -> None:
        """Record a broker's promise to run this job to its end."""
        known = self.jobs.setdefault(job, plan)
        if known is not plan:
            raise Violation(
                "one job, one number",
                f"job {job_text(job)} is submission {known.number} and submission {plan.number}",
                job=job,
            )
        if job not in self.acknowledged:
            self.acknowledged[job] = plan
            self.open += sum(task_id(job, index) not in self.settled for index in range(plan.spec.tasks))

    def settle(self, effect: TaskSettled) -> None:
        """Record the final outcome that a broker reports for a task."""
        task, said = effect.task, (effect.attempt, effect.outcome)
        before = self.settled.get(task)
        if before is not None:
            if before != said:
                raise Violation(
                    "at most one effective completion",
                    f"task {task_text(task)} settled as {_said(before)} and as {_said(said)}",
                    task,
                )
            return
        self._check_settled(task, effect.attempt, effect.outcome)
        self.settled[task] = said
        if job_of(task) in self.acknowledged:
            self.open -= 1

    def _check_settled(self, task: TaskId, attempt: int, outcome: Outcome) -> None:
        really = self.exits.get((task, attempt))
        if task in self.live:
            raise self._wrong("settled means over", task, attempt, outcome, "it still runs")
        if outcome is Outcome.SUCCEEDED:
            if really is not Outcome.SUCCEEDED:
                why = f"that attempt {really or 'never ran'}"
                raise self._wrong("at most one effective completion", task, attempt, outcome, why)
        elif outcome is Outcome.FAILED:
            plan = self.jobs.get(job_of(task))
            hopeless = plan is None or plan.hopeless
            lost = self.losses.get(task, 0) > self.lost_max or self._may_be_lost(task, attempt)
            if really is not Outcome.FAILED and not lost and not hopeless:
                why = f"that attempt {really or 'never ran'}"
                raise self._wrong("no invented failures", task, attempt, outcome, why)
        elif outcome is not Outcome.CANCELLED:
            raise self._wrong("no invented failures", task, attempt, outcome, "that is not a terminal state")
        elif not self._may_be_cancelled(task) and not self._may_be_lost(task, 1):
            why = "nothing gave a reason to cancel it"
            raise self._wrong("no invented failures", task, attempt, outcome, why)

    @staticmethod
    def _wrong(promise: str, task: TaskId, attempt: int, outcome: Outcome, why: str) -> Violation:
        text = f"task {task_text(task)} settled as {_said((attempt, outcome))}, but {why}"
        return Violation(promise, text, task)

    def _may_be_cancelled(self, task: TaskId) -> bool:
        """True if a client cancelled it, it has a deadline, or a task or job that it depends on failed."""
        job = job_of(task)
        plan = self.jobs.get(job)
        if plan is None or job in self.cancelled:
            return True
        spec = self.specs[plan.number]
        if spec.deadline is not None:
            return True
        if any(other in self.cancelled or not self._ended_well(other) for other in spec.after):
            return True
        if spec.after and self.retired:
            return True  # no other broker may remember how such a job ended
        tasks = [task_id(job, index) for index in range(spec.tasks)]
        return any(other in self.failed or self._settled_badly(other) for other in tasks)

    def _may_be_lost(self, task: TaskId, attempt: int) -> bool:
        """True if a loss of this attempt fails the task. Attempt 0: an attempt that nobody can report,
        because its cluster has retired."""
        plan = self.jobs.get(job_of(task))
        is_once = plan is not None and plan.spec.on_loss is OnLoss.FAIL
        return is_once and (attempt > 0 or bool(self.left))

    def _settled_badly(self, task: TaskId) -> bool:
        settled = self.settled.get(task)
        return settled is not None and settled[1] is not Outcome.SUCCEEDED

    def _ended_well(self, job: JobId) -> bool:
        """True if all tasks succeeded, in truth and in the reported outcomes, and the job has no deadline."""
        plan = self.jobs.get(job)
        if plan is None or self.specs[plan.number].deadline is not None:
            return False
        return self._went_well(job) and not any(
            self._settled_badly(task_id(job, index)) for index in range(plan.spec.tasks)
        )

    def _went_well(self, job: JobId) -> bool:
        plan = self.jobs.get(job)
        return plan is not None and all(
            task_id(job, index) in self.succeeded for index in range(plan.spec.tasks)
        )

    # --- real starts and ends -------------------------------------------------------------------------------

    def launched(self, cluster: str, runner: str, attempt: Attempt) -> None:
        """Record the start of an attempt and check the promises that a start can break."""
        task = attempt.task
        place = self.places.get((cluster, attempt.node))
        if place is None or place.runner != runner:
            raise _broken("only where it may run", cluster, attempt, f"{runner} does not serve that node")
        plan, group = self.workload.plan_of(attempt.payload)
        job = job_of(task)
        known = self.jobs.setdefault(job, plan)
        if known is not plan or not _in_group(plan.spec, group, index_of(task)):
            raise _broken("one job, one number", cluster, attempt, "it runs the command of another task")
        self._check_once(place, attempt)
        spec = self.specs[plan.number]
        if spec.on_loss is OnLoss.FAIL:
            self._check_not_again(spec, place, attempt)
        self._check_place(spec, group, place, attempt)
        if spec.after or spec.groups[group].needs:
            self._check_order(spec, group, place, attempt)
        place.here[task] = (attempt.size, spec.labels)
        place.used = place.used.plus(attempt.size)
        if not place.used.fits(place.capacity):
            raise _broken("no over-commit", cluster, attempt, place.crowd(task))
        for label in spec.labels:
            place.seen[label] = None
        self.live[task] = place
        self.launches[task, attempt.attempt] = place
        self.began.setdefault(task, []).append(attempt.attempt)
        if spec.gang:
            self.gangs.setdefault(job, []).append((self.world.now, task, cluster))

    def _check_once(self, place: Place, attempt: Attempt) -> None:
        task, promise = attempt.task, "at most one live attempt"
        if task in self.live:
            other = self.live[task]
            why = f"another one runs on {other.cluster} node {other.index}"
            raise _broken(promise, place.cluster, attempt, why)
        if (task, attempt.attempt) in self.launches:
            raise _broken(promise, place.cluster, attempt, "the same attempt was launched before")
        if task in self.settled:
            why = f"the task was settled as {_said(self.settled[task])}"
            raise _broken("settled means over", place.cluster, attempt, why)

    def _check_not_again(self, spec: JobSpec, place: Place, attempt: Attempt) -> None:
        """Check that every earlier attempt ended in a way that permits another one: by a failure with
        retries, of this task or of one of its gang, or by preemption."""
        task = attempt.task
        for earlier in self.began.get(task, ()):
            ended = self.exits[task, earlier]
            tasks = [task_id(job_of(task), index) for index in range(spec.tasks)]
            regrouped = spec.gang and spec.retries and any(other in self.failed for other in tasks)
            allowed = bool(spec.retries) if ended is Outcome.FAILED else spec.preemptible or regrouped
            if ended in (Outcome.SUCCEEDED, Outcome.LOST) or not allowed:
                why = f"attempt {earlier} had begun, and was {ended}"
                raise _broken("no second start after a loss", place.cluster, attempt, why)

    def _check_place(self, spec: JobSpec, group: int, place: Place, attempt: Attempt) -> None:
        promise, wanted = "only where it may run", spec.groups[group]
        why = ""
        if wanted.where is not None and not is_satisfied(wanted.where, place.attributes):
            why = "the node's attributes do not satisfy its condition"
        elif place.cluster in spec.clusters_forbidden or (
            spec.clusters_allowed and place.cluster not in spec.clusters_allowed
        ):
            why = "its job may not use this cluster"
        elif place.reserved and spec.klass is not JobClass.LATENCY:
            why = "the node is kept for latency work"
        elif attempt.size != wanted.ask and not (
            wanted.ask.fits(attempt.size) and attempt.size.fits(wanted.ask_max or wanted.ask)
        ):
            why = f"it got {attempt.size}, which it did not ask for"
        if why:
            raise _broken(promise, place.cluster, attempt, why)
        for affinity in wanted.affinity:
            near = [place] if affinity.proximity is Proximity.NODE else self.by_cluster[place.cluster]
            if affinity.apart:
                for other in near:
                    for neighbour, (_, labels) in other.here.items():
                        if affinity.label in labels:
                            who = task_text(TaskId(neighbour))
                            why = f"keeps away from '{affinity.label}', which {who} has"
                            raise _broken(promise, place.cluster, attempt, why)

    def _check_order(self, spec: JobSpec, group: int, place: Place, attempt: Attempt) -> None:
        promise, job, first = "nothing before what it needs", job_of(attempt.task), 0
        for position, other in enumerate(spec.groups):
            if other.name in spec.groups[group].needs:
                for index in range(first, first + other.count):
                    if task_id(job, index) not in self.succeeded:
                        why = f"group {position}, which it needs, has not succeeded"
                        raise _broken(promise, place.cluster, attempt, why)
            first += other.count
        for earlier in spec.after:
            if not self._went_well(earlier):
                why = f"job {job_text(earlier)}, which it comes after, has not succeeded"
                raise _broken(promise, place.cluster, attempt, why)

    def ended(self, cluster: str, attempt: Attempt, outcome: Outcome) -> None:
        """Record the end of an attempt."""
        task = attempt.task
        del self.live[task]
        place = self.places[cluster, attempt.node]
        del place.here[task]
        place.used = place.used.minus(attempt.size)
        self.exits[task, attempt.attempt] = outcome
        if outcome is Outcome.SUCCEEDED:
            self.succeeded[task] = self.world.now
        elif outcome is Outcome.FAILED:
            self.failed[task] = None
        if outcome not in FOR_ITS_OWN_REASONS:
            self.losses[task] = self.losses.get(task, 0) + 1

    # --- checks at the end ----------------------------------------------------------------------------------

    def check_terminal(self, waited: str) -> None:
        """Check that every task of every acknowledged job has ended."""
        for job, plan in self.acknowledged.items():
            for index in range(plan.spec.tasks):
                task = task_id(JobId(job), index)
                if task not in self.settled:
                    where = f"; it runs on {self.live[task].cluster}" if task in self.live else ""
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
        for job, launches in self.gangs.items():
            if self._may_be_cancelled(task_id(JobId(job), 0)):
                continue
            tasks = [task_id(JobId(job), index) for index in range(self.jobs[job].spec.tasks)]
            for when, task, cluster in launches:
                for other in tasks if when >= since else ():
                    if self.succeeded.get(other, when) < when:
                        continue
                    if not any(
                        who == other and where == cluster and abs(at - when) <= window
                        for at, who, where in launches
                    ):
                        message = f"task {task_text(task)} started in {cluster} without {task_text(other)}"
                        raise Violation("a gang starts together", message, task)

    def outcomes(self) -> list[int]:
        """Return every settled task with attempt and outcome as numbers, in task order, for the digest."""
        order = list(Outcome)
        return [
            number
            for task in sorted(self.settled)
            for number in (task, self.settled[task][0], order.index(self.settled[task][1]))
        ]


def check_replay(process: Process) -> None:
    """Check that a fresh machine with the process's snapshot and journal has the process's state."""
    had, gives = process.machine.dump(), process.replayed().dump()
    if had != gives:
        where = first_difference(had, gives)
        raise Violation(
            "ledger equals journal replay", f"the journal of {process.name} gives another state: {where}"
        )


def check_quiet(
    brokers: dict[str, Process], wardens: dict[str, Process], backends: Sequence[Backend]
) -> None:
    """Check that nothing is left over (leases, claims, messages, ends) and that all views are true."""
    for backend in backends:
        for task, attempt in (*backend.live, *backend.ended):
            state = "still runs" if (task, attempt) in backend.live else "was never forgotten"
            message = f"task {task_text(TaskId(task))} attempt {attempt} {state} at {backend.runner.name}"
            raise Violation("no lease leaks", message, task)
    for name, process in (*wardens.items(), *brokers.items()):
        inside: WardenInside | BrokerInside = process.machine  # type: ignore[assignment]  # checked by use
        complaints = inside.find_leftovers()
        if complaints:
            raise Violation("no lease leaks", f"{name}: " + "; ".join(complaints))
    for cluster, warden in wardens.items():
        truth: WardenInside = warden.machine  # type: ignore[assignment]
        offered = truth.advertised_free()
        for name, broker in brokers.items():
            believer: BrokerInside = broker.machine  # type: ignore[assignment]
            view = believer.believed_free(cluster)
            if view != offered:
                raise Violation(
                    "view converges", f"{name} believes {view} of {cluster}, which offers {offered}"
                )


def check_estates(
    brokers: dict[str, Process], wardens: dict[str, Process], retired: Sequence[str] = ()
) -> None:
    """Check that takeovers leave nothing behind: at the end a broker owns only the shard that it created
    last, and nobody knows of any other shard. A warden may know a shard of a retired broker if the shard
    held no work."""
    promise = "no shard is left open"
    known: dict[str, None] = {}
    for name, broker in brokers.items():
        owner: BrokerInside = broker.machine  # type: ignore[assignment]  # checked by use
        owned = owner.shards()[0]
        if [shard.rpartition("#")[0] for shard in owned] != [name]:
            raise Violation(promise, f"{name} owns {', '.join(owned)}")
        known[owned[0]] = None
    for name, warden in wardens.items():
        there: WardenInside = warden.machine  # type: ignore[assignment]
        estates = [name for name in there.shards() if name.rpartition("#")[0] not in retired]
        if sorted(estates) != sorted(known):
            raise Violation(promise, f"{name} knows {', '.join(there.shards())}, not {', '.join(known)}")
    for name, broker in brokers.items():
        keeper: BrokerInside = broker.machine  # type: ignore[assignment]
        stale = [shard for shard in keeper.shards()[1] if shard not in known]
        if stale:
            raise Violation(promise, f"{name} keeps copies for {', '.join(stale)}")


def check_speakers(brokers: dict[str, Process], jobs: Iterable[int]) -> None:
    """Check that brokers route questions about a job to the broker that owns it or remembers its end; if
    there is none, to a broker that says so."""
    promise = "brokers route to the owner"
    doors: dict[str, Speaker] = {name: one.machine for name, one in brokers.items()}  # type: ignore[misc]
    for job in map(JobId, jobs):
        knows = [name for name, door in doors.items() if door.find_answering_broker(job) == name]
        for first, door in doors.items():
            path, here = [first], door.find_answering_broker(job)
            while here in doors and here != path[-1]:  # a retired broker answers no questions
                path.append(here)
                if len(path) > len(doors):
                    raise Violation(promise, f"job {job_text(job)}: a circle of routes, {' to '.join(path)}")
                here = doors[here].find_answering_broker(job, path)
            if knows and path[-1] not in knows:
                way = " to ".join(path)
                raise Violation(promise, f"job {job_text(job)} is known to {knows}; the route was {way}")


def _in_group(spec: JobSpec, group: int, index: int) -> bool:
    first = sum(other.count for other in spec.groups[:group])
    return first <= index < first + spec.groups[group].count


def _said(settled: tuple[int, Outcome]) -> str:
    return f"{settled[1]} by attempt {settled[0]}"


def _broken(promise: str, cluster: str, attempt: Attempt, why: str) -> Violation:
    """Return the violation for a launch that breaks a promise."""
    text = f"task {task_text(attempt.task)} attempt {attempt.attempt} on {cluster} node {attempt.node}: {why}"
    return Violation(promise, text, attempt.task)
