"""Promises that the start of an attempt can break."""

from hanse.model.constraints import is_satisfied
from hanse.model.ids import TaskId, job_of, job_text, task_id, task_text
from hanse.model.job import JobClass, JobSpec, Proximity
from hanse.model.messages import Outcome
from hanse.sim.backend import SimulatedAttempt
from hanse.sim.checkers.actual_node import ActualNode
from hanse.sim.checkers.actual_tasks import ActualTasks
from hanse.sim.checkers.settlements import settlement_text
from hanse.sim.world import Violation


def check_once(truth: ActualTasks, node: ActualNode, attempt: SimulatedAttempt) -> None:
    """Check that no other attempt of the task lives, and that the task is not over."""
    task, promise = attempt.task, "at most one live attempt"
    if task in truth.live_tasks:
        other = truth.live_tasks[task]
        why = f"another one runs on {other.cluster} node {other.index}"
        raise launch_violation(promise, node.cluster, attempt, why)
    if (task, attempt.attempt) in truth.launches:
        raise launch_violation(promise, node.cluster, attempt, "the same attempt was launched before")
    if task in truth.settlements:
        why = f"the task was settled as {settlement_text(truth.settlements[task])}"
        raise launch_violation("settled means over", node.cluster, attempt, why)


def check_restart_allowed(
    truth: ActualTasks, spec: JobSpec, node: ActualNode, attempt: SimulatedAttempt
) -> None:
    """Check that every earlier attempt ended in a way that permits another one: by a failure with
    retries, of this task or of one of its gang, or by preemption."""
    task = attempt.task
    for earlier in truth.begun_attempts.get(task, ()):
        ended = truth.actual_ends[task, earlier]
        tasks = [task_id(job_of(task), index) for index in range(spec.task_count)]
        regrouped = spec.gang and spec.retries and any(other in truth.failed_tasks for other in tasks)
        allowed = bool(spec.retries) if ended is Outcome.FAILED else spec.preemptible or regrouped
        if ended in (Outcome.SUCCEEDED, Outcome.LOST) or not allowed:
            why = f"attempt {earlier} had begun, and was {ended}"
            raise launch_violation("no second start after a loss", node.cluster, attempt, why)


def check_placement(
    truth: ActualTasks, spec: JobSpec, group: int, node: ActualNode, attempt: SimulatedAttempt
) -> None:
    """Check that the node and the size are what the job asked for, and its neighbours those it allows."""
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
        raise launch_violation(promise, node.cluster, attempt, why)
    for affinity in task_group.affinity:
        nodes = [node] if affinity.proximity is Proximity.NODE else truth.nodes_by_cluster[node.cluster]
        if affinity.apart:
            for other in nodes:
                for neighbour, (_, labels) in other.live_tasks.items():
                    if affinity.label in labels:
                        neighbour_text = task_text(TaskId(neighbour))
                        why = f"keeps away from '{affinity.label}', which {neighbour_text} has"
                        raise launch_violation(promise, node.cluster, attempt, why)


def check_order(
    truth: ActualTasks, spec: JobSpec, group: int, node: ActualNode, attempt: SimulatedAttempt
) -> None:
    """Check that the groups and jobs that must come before it have succeeded."""
    promise, job, first = "nothing before what it needs", job_of(attempt.task), 0
    for position, other in enumerate(spec.groups):
        if other.name in spec.groups[group].needs:
            for index in range(first, first + other.count):
                if task_id(job, index) not in truth.success_times:
                    why = f"group {position}, which it needs, has not succeeded"
                    raise launch_violation(promise, node.cluster, attempt, why)
        first += other.count
    for earlier in spec.after:
        if not truth.has_succeeded(earlier):
            why = f"job {job_text(earlier)}, which it comes after, has not succeeded"
            raise launch_violation(promise, node.cluster, attempt, why)


def is_in_group(spec: JobSpec, group: int, index: int) -> bool:
    """True if the task of this index belongs to the group."""
    first = sum(other.count for other in spec.groups[:group])
    return first <= index < first + spec.groups[group].count


def launch_violation(promise: str, cluster: str, attempt: SimulatedAttempt, why: str) -> Violation:
    """Return the violation for a launch that breaks a promise."""
    text = f"task {task_text(attempt.task)} attempt {attempt.attempt} on {cluster} node {attempt.node}: {why}"
    return Violation(promise, text, attempt.task)
