"""Nodes on which equal tasks finish first, in NumPy: the reference for ``finish_cost.c``, and the fallback.

The cost of a node, in seconds::

    transfer[rack] + alone[class] * (1 + sensitivity * bend(to)) + charge * exposure * (bend(to) - bend(from))

with ``from`` and ``to`` the pressure on the node before and after the task came, over the node's strength.
``bend`` rises piecewise: ``sum(slopes[j] * max(pressure - KNOTS[j], 0))``. The last term is what the tasks
that run there lose. Slopes, sensitivities, pressures and exposures are never negative.

Ties go to the lowest node. Operations stand in the order in which C does them: both are equal to the bit.
"""

import numpy as np
from numpy.typing import NDArray

from hanse.policy.kernels.finish_columns import KNOTS, FinishColumns, FinishJob, Floats, check_job

Nodes = NDArray[np.int64]


def finish_choose(columns: FinishColumns, job: FinishJob) -> tuple[list[int], list[float]]:
    """Choose nodes for up to ``count`` tasks; return them, and their costs, in the order chosen.

    Each task takes the cheapest node that has room and lets it finish within ``finish_max``; tasks that the
    job got in this call already count in room, pressure and exposure."""
    check_job(columns, job)
    given = np.zeros(columns.nodes, dtype=np.int64)
    every = np.arange(columns.nodes)
    finish, costs = _costs(columns, job, every, given)
    costs[~_has_room(columns, job, every, given) | (costs < 0.0) | (finish > job.finish_max)] = np.inf
    chosen: list[int] = []
    paid: list[float] = []
    while len(chosen) < job.count and columns.nodes:
        node = int(costs.argmin())
        if costs[node] == np.inf:
            break
        chosen.append(node)
        paid.append(float(costs[node]))
        given[node] += 1
        one = every[node : node + 1]
        again, cost = _costs(columns, job, one, given)
        suits = _has_room(columns, job, one, given)[0] and again[0] <= job.finish_max
        costs[node] = cost[0] if suits else np.inf
    if job.is_debited:
        for node in chosen:
            columns.free[0, node] -= job.cpu
            columns.free[1, node] -= job.memory
            columns.free[2, node] -= job.gpu
            columns.pressure[node] += job.own_pressure
            columns.exposure[node] += job.own_exposure
    return chosen, paid


def finish_ideal(columns: FinishColumns, job: FinishJob) -> float:
    """Return the least cost of one task alone in an empty league; -1.0: it is allowed nowhere."""
    check_job(columns, job)
    if not columns.nodes:
        return -1.0
    alone, transfer = _parts(columns, job)
    pressure = job.own_pressure * columns.room[columns.stretch_from[:-1]]
    costs = transfer + alone * (1.0 + job.sensitivity * bend(job.slopes, pressure))
    allowed = (alone >= 0.0) & (transfer >= 0.0)
    return float(costs[allowed].min()) if allowed.any() else -1.0


def finish_costs(columns: FinishColumns, job: FinishJob) -> Floats:
    """Return the cost of the next task on each node, room or not; -1.0 where it is not allowed."""
    check_job(columns, job)
    none = np.zeros(columns.nodes, dtype=np.int64)
    return _costs(columns, job, np.arange(columns.nodes), none)[1]


def bend(slopes: Floats, pressure: Floats) -> Floats:
    """Return the slow-down, less 1, for sensitivity 1 at each pressure."""
    total = np.zeros_like(pressure)
    for slope, knot in zip(slopes, KNOTS, strict=True):
        total = total + slope * np.maximum(pressure - knot, 0.0)
    return total


def _parts(columns: FinishColumns, job: FinishJob) -> tuple[Floats, Floats]:
    """Return the seconds alone and of transfer of each stretch."""
    return job.class_seconds[columns.stretch_class], job.rack_seconds[columns.stretch_rack]


def _costs(columns: FinishColumns, job: FinishJob, nodes: Nodes, given: Nodes) -> tuple[Floats, Floats]:
    """Return the finish and the cost of one more task on each of these nodes, which were ``given`` tasks
    already."""
    stretch = np.searchsorted(columns.stretch_from, nodes, side="right") - 1
    alone, transfer = (part[stretch] for part in _parts(columns, job))
    before = columns.pressure[nodes] + given[nodes] * job.own_pressure
    start = bend(job.slopes, before * columns.room[nodes])
    end = bend(job.slopes, (before + job.own_pressure) * columns.room[nodes])
    exposed = columns.exposure[nodes] + given[nodes] * job.own_exposure
    finish = transfer + alone * (1.0 + job.sensitivity * end)
    costs = finish + job.charge * (exposed * (end - start))
    return finish, np.where((alone < 0.0) | (transfer < 0.0), -1.0, costs)


def _has_room(columns: FinishColumns, job: FinishJob, nodes: Nodes, given: Nodes) -> NDArray[np.bool_]:
    """Return one flag for each of these nodes: True if one more task fits."""
    tasks = given[nodes] + 1
    flags = np.ones(len(nodes), dtype=np.bool_)
    for free, ask in zip(columns.free, (job.cpu, job.memory, job.gpu), strict=True):
        flags &= free[nodes] >= tasks * ask
    return flags & (given[nodes] < job.each_max) if job.each_max else flags
