"""The simple central policies. They see everything fresh and estimate nothing.

Every tie goes to the lowest number. A *load* is the share of a node's milli-CPU that is not free.
``compiled/policies.c`` is the same in C.
"""

from collections.abc import Iterable, Sequence

from hanse.policy.hashing import hash_numbers
from hanse.sim.worlds.policy_view import NOWHERE, CentralPolicy, PolicyView


def cluster_ranges(view: PolicyView) -> list[range]:
    """Return the nodes of each cluster."""
    clusters = view.world.node_cluster.tolist()
    count = len(view.world.cluster_names)
    return [range(clusters.index(each), clusters.index(each) + clusters.count(each)) for each in range(count)]


def free_share(view: PolicyView, node: int) -> float:
    """Return the share of a node's milli-CPU that is free."""
    share: float = view.room[0][node] / int(view.world.node_cpu[node])
    return share


def best_fit(view: PolicyView, job: int, nodes: Iterable[int]) -> int:
    """Return the node that has the least left: GPUs first, then milli-CPU, then memory."""
    fitting = [node for node in nodes if view.fits(job, node)]
    cpu, memory, gpu = view.room
    return min(fitting, key=lambda node: (gpu[node], cpu[node], memory[node], node), default=NOWHERE)


def least_loaded(view: PolicyView, job: int, nodes: Iterable[int]) -> int:
    """Return the node with the smallest load."""
    fitting = [node for node in nodes if view.fits(job, node)]
    return min(fitting, key=lambda node: (-free_share(view, node), node), default=NOWHERE)


class IndependentClusters(CentralPolicy):
    """Every job stays in the cluster in which it was submitted, on the least loaded node there.

    ``job_cluster``: that cluster; or, for a job that it could not hold even when empty, the first that could.
    """

    def __init__(self, view: PolicyView, job_cluster: Sequence[int]) -> None:
        self._nodes, self._job_cluster = cluster_ranges(view), job_cluster

    def choose(self, view: PolicyView, job: int, _task: int) -> int:
        """Return the least loaded node of the job's cluster."""
        return least_loaded(view, job, self._nodes[self._job_cluster[job]])


class GreedyCentral(CentralPolicy):
    """Clusters with a replica of the job's input first, then its home, then the one with most free milli-CPU;
    the best fitting node of the first that has room.

    Among clusters with a replica the home comes first, then the one with most free milli-CPU.
    """

    def __init__(self, view: PolicyView) -> None:
        self._nodes = cluster_ranges(view)

    def choose(self, view: PolicyView, job: int, _task: int) -> int:
        """Return the best fitting node of the first cluster that has room."""
        racks = [rack for rack in view.work.replica_rack[job].tolist() if rack >= 0]
        near = [int(view.world.rack_cluster[rack]) for rack in racks]
        home = int(view.work.job_home[job])
        free = [sum(max(view.room[0][node], 0) for node in nodes) for nodes in self._nodes]
        order = sorted(
            range(len(self._nodes)), key=lambda each: (each not in near, each != home, -free[each], each)
        )
        found = (best_fit(view, job, self._nodes[cluster]) for cluster in order)
        return next((node for node in found if node != NOWHERE), NOWHERE)


class BestFitCentral(CentralPolicy):
    """The best fitting node of all."""

    def choose(self, view: PolicyView, job: int, _task: int) -> int:
        """Return the best fitting node."""
        return best_fit(view, job, range(view.node_count))


class LeastLoadedCentral(CentralPolicy):
    """The least loaded node of all."""

    def choose(self, view: PolicyView, job: int, _task: int) -> int:
        """Return the least loaded node."""
        return least_loaded(view, job, range(view.node_count))


class PowerOfTwo(CentralPolicy):
    """The less loaded of two different nodes, drawn from those that fit by the seed and the task's number."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def choose(self, view: PolicyView, job: int, task: int) -> int:
        """Return the less loaded of two nodes."""
        fitting = [node for node in range(view.node_count) if view.fits(job, node)]
        if len(fitting) < 2:
            return fitting[0] if fitting else NOWHERE
        one = hash_numbers(self._seed, task, 0) * len(fitting) >> 64
        other = hash_numbers(self._seed, task, 1) * (len(fitting) - 1) >> 64
        other += other >= one
        low, high = fitting[min(one, other)], fitting[max(one, other)]
        return high if free_share(view, high) > free_share(view, low) else low
