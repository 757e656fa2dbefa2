"""Gangs: all tasks of a job get their places at once, in one cluster, rack or node.

A domain (a cluster, a rack or a node) can hold a gang if enough of its tasks fit on what is really free
there; all tasks of a job ask for the same, so counting them is exact. The policy is shown only such domains
when it chooses for the first task, and only the domain of that choice for the others. The order of the queue
reserves nothing: a wide gang may wait while smaller jobs go by."""

from hanse.sim.worlds.policy_view import NOWHERE, CentralPolicy, PolicyView


def _slots(view: PolicyView, job: int, node: int) -> int:
    """Return how many tasks of a job fit on a node."""
    physics = view.physics
    if not physics.has_place(job, node):
        return 0
    count = int(view.work.job_offset[job + 1] - view.work.job_offset[job])
    fits = [
        free[node] // need[job]
        for free, need in zip(physics.free, physics.need, strict=True)
        if need[job] > 0
    ]
    slots: int = min([count, *fits])
    return slots


def gang_domains(view: PolicyView, gang: int) -> list[int]:
    """Return the domain of each node for a kind of gang."""
    if gang == 3:
        return list(range(view.node_count))
    column = view.world.node_cluster if gang == 1 else view.world.node_rack
    domains: list[int] = column.tolist()
    return domains


def choose_gang(view: PolicyView, policy: CentralPolicy, job: int) -> list[int] | int:
    """Return a node for each task of a gang; ``NOWHERE`` or ``WAIT`` if it does not start now."""
    tasks = range(int(view.work.job_offset[job]), int(view.work.job_offset[job + 1]))
    domains = gang_domains(view, int(view.work.job_gang[job]))
    slots: dict[int, int] = {}
    for node, domain in enumerate(domains):
        slots[domain] = slots.get(domain, 0) + _slots(view, job, node)
    if max(slots.values()) < len(tasks):
        return NOWHERE
    kept, view.room = view.room, [list(free) for free in view.physics.free]
    try:
        for node, domain in enumerate(domains):
            if view.physics.outages[node] or slots[domain] < len(tasks):
                view.close(node)
        return _choose_nodes(view, policy, job, tasks, domains)
    finally:
        view.room = kept


def _choose_nodes(
    view: PolicyView, policy: CentralPolicy, job: int, tasks: range, domains: list[int]
) -> list[int] | int:
    policy.begin(view, job)
    nodes: list[int] = []
    for task in tasks:
        node = policy.choose(view, job, task)
        if node < 0:
            return node
        assert view.fits(job, node), "a policy chose a node without room for a gang"
        if not nodes:
            for other, domain in enumerate(domains):
                if domain != domains[node]:
                    view.close(other)
        view.debit(job, node)
        nodes.append(node)
    return nodes
