"""Checks of gangs as their tasks really start: parts of the cluster, spread, ranks, hosts and ports."""

from hanse.model.ids import TaskId, index_of, job_of, task_text
from hanse.model.job import JobSpec, Together
from hanse.model.messages import TaskPlace
from hanse.model.messages.group_layout import hosts_text
from hanse.sim.backend import SimulatedAttempt
from hanse.sim.checkers.actual_node import ActualNode
from hanse.sim.checkers.actual_tasks import ActualTasks
from hanse.sim.checkers.launches import launch_violation
from hanse.sim.workload import part_of_node


class GangChecker:
    """Live tasks of gangs with the places that they were told."""

    def __init__(self, truth: ActualTasks) -> None:
        self._truth = truth
        self._live: dict[int, dict[TaskId, tuple[ActualNode, TaskPlace]]] = {}
        """Job -> live task -> node and place."""

    def on_launched(self, spec: JobSpec, group: int, node: ActualNode, attempt: SimulatedAttempt) -> None:
        """Check the rank that every task is told, and the places of a gang."""
        part, place = spec.groups[group], attempt.place
        index = index_of(attempt.task) - sum([other.count for other in spec.groups[:group]])
        if place is None:
            if part.count > 1 or part.name != "main":
                raise launch_violation("ranks", node.cluster, attempt, "it was told no rank")
            return
        if not spec.gang:
            if (place.group, place.rank, place.world_size, place.local_size) != (
                part.name, index, part.count, 0
            ):  # fmt: skip
                raise launch_violation("ranks", node.cluster, attempt, f"it was told {place}")
            return
        self._check_gang(spec, node, attempt, place)
        self._live.setdefault(job_of(attempt.task), {})[attempt.task] = (node, place)

    def on_ended(self, attempt: SimulatedAttempt) -> None:
        """Note that a task no longer runs."""
        self._live.get(job_of(attempt.task), {}).pop(attempt.task, None)

    def _check_gang(
        self, spec: JobSpec, node: ActualNode, attempt: SimulatedAttempt, place: TaskPlace
    ) -> None:
        """Compare a gang's task with those that run already. Tasks of an earlier start of the gang, which
        may still run behind a partition, have another layout."""
        why = _place_problem(node, place)
        live = self._live.get(job_of(attempt.task), {}).items()
        mates = [
            (other, mate, told) for other, (mate, told) in live
            if _is_same_start(place, told) and mate.cluster == node.cluster
        ]  # fmt: skip
        for other, mate, told in mates:
            why = why or _pair_problem((attempt.task, node, place), (other, mate, told))
        if why:
            raise launch_violation("a gang's layout", node.cluster, attempt, why)
        away = [mate.index for _, mate, _ in mates if _part(spec, mate) != _part(spec, node)]
        if away or _part(spec, node) is None:
            why = f"others of its gang are on nodes {away}"
            raise launch_violation(f"a gang on one {spec.together}", node.cluster, attempt, why)
        if spec.spread:
            value = node.attributes.get(spec.spread)
            count = 1 + sum([mate.attributes.get(spec.spread) == value for _, mate, _ in mates])
            if value is None or count > (spec.spread_max or count):
                why = f"{count} of its gang where '{spec.spread}' is {value}"
                raise launch_violation("a gang is spread", node.cluster, attempt, why)
        self._check_port(node, attempt, place)

    def _check_port(self, node: ActualNode, attempt: SimulatedAttempt, place: TaskPlace) -> None:
        """Check that no other gang with its rank 0 on this host was given the same port."""
        if place.rank:
            return
        for job, tasks in self._live.items():
            for other, (its_node, its_place) in tasks.items() if job != job_of(attempt.task) else ():
                same = (its_node.cluster, its_place.address) == (node.cluster, place.address)
                if same and its_place.rank == 0 and its_place.port == place.port:
                    why = f"{task_text(other)} has port {place.port} on {place.address}, too"
                    raise launch_violation("ports of gangs", node.cluster, attempt, why)


def _place_problem(node: ActualNode, place: TaskPlace) -> str:
    """Return what is wrong with a place by itself."""
    if not (0 <= place.rank < place.world_size and 0 <= place.local_rank < place.local_size):
        return f"ranks out of range in {place}"
    if sum([int(entry.rpartition(":")[2]) for entry in place.hosts.split(",")]) != place.world_size:
        return f"{place.hosts} is not a world of {place.world_size}"
    if _host_of_rank(place) != hosts_text([(0, node.host, 1)]).rpartition(":")[0]:
        return f"it runs on {node.host}, and its rank is elsewhere in {place.hosts}"
    return ""


Told = tuple[TaskId, ActualNode, TaskPlace]
"""Task of a gang, its node, and the place that it was told."""


def _pair_problem(one: Told, other: Told) -> str:
    """Return what two tasks of a gang were told that does not fit together."""
    (task, node, place), (mate, its_node, its_place) = one, other
    if its_place.rank == place.rank or (mate < task) != (its_place.rank < place.rank):
        return f"{task_text(mate)} has rank {its_place.rank}, and it has {place.rank}"
    if (its_place.node_rank == place.node_rank) != (its_node is node):
        return f"{task_text(mate)} has node rank {its_place.node_rank} on node {its_node.index}"
    if its_node is node and its_place.local_rank == place.local_rank:
        return f"{task_text(mate)} has the same local rank {place.local_rank}"
    if its_node is node and its_place.rank - its_place.local_rank != place.rank - place.local_rank:
        return f"{task_text(mate)} is on the same node, and their ranks are no neighbours"
    return ""


def _is_same_start(one: TaskPlace, other: TaskPlace) -> bool:
    """True if two tasks of a gang were started together, as far as their layouts tell."""
    return (one.hosts, one.port, one.world_size) == (other.hosts, other.port, other.world_size)


def _host_of_rank(place: TaskPlace) -> str:
    before = 0
    for entry in place.hosts.split(","):
        host, _, count = entry.rpartition(":")
        before += int(count)
        if place.rank < before:
            return host
    return ""


def _part(spec: JobSpec, node: ActualNode) -> object:
    return "" if spec.together is Together.CLUSTER else part_of_node(spec, node.index, node.attributes)
