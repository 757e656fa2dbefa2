"""Invariants of every outcome in a world, checked from the outcome alone, by other code than the physics."""

from typing import Final

import numpy as np

from hanse.sim.worlds.attempt_table import (
    AttemptTable,
    attempts_of,
    job_ends,
    node_steps,
    ready_times,
    task_jobs,
)
from hanse.sim.worlds.columns import Floats, Ints, WorkColumns, WorldColumns, WorldOutcome

WORK_TOLERANCE: Final = 1e-4
"""Seconds of work by which the integral of a task's rates may miss its work: ends are whole microseconds."""
SHARE_TOLERANCE: Final = 1e-9
"""Relative difference of sums of bytes that rounding explains."""


def find_outcome_problems(world: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> list[str]:
    """Return the problems of a complete outcome as sentences; empty if there are none."""
    table = attempts_of(work, outcome)
    found = _find_attempt_problems(world, work, outcome, table)
    if found:
        return found  # what follows would only say so again, or fail
    found = _find_overcommitment(world, work, table)
    found += _find_order_problems(world, work, outcome)
    found += _find_outage_problems(work, outcome, table)
    found += _find_work_problems(world, work, table)
    return found + _find_byte_problems(world, work, outcome, table)


def _find_attempt_problems(
    world: WorldColumns, work: WorkColumns, outcome: WorldOutcome, table: AttemptTable
) -> list[str]:
    found = []
    if not outcome.complete or bool((outcome.end < 0).any()):
        found.append(f"{int((outcome.end < 0).sum())} tasks have no end")
    if outcome.launches != len(table.task):
        found.append(f"{outcome.launches} launches, but {len(table.task)} attempts ended or were undone")
    if bool(((table.node < 0) | (table.node >= len(world.node_cpu))).any()):
        return [*found, "a task ran on a node that does not exist"]
    classes = world.node_class[table.node].astype(np.uint64)
    forbidden = (work.job_classes[table.job] >> classes & np.uint64(1)) == 0
    if bool(forbidden.any()):
        found.append(f"{int(forbidden.sum())} attempts were on a node class that the job does not allow")
    ran = table.run >= 0
    disorder = (table.start > table.end) | (ran & ((table.run < table.start) | (table.run > table.end)))
    if bool(disorder.any()):
        found.append(f"{int(disorder.sum())} attempts ran before their start or ended before they ran")
    wasted = work.job_cpu[table.job] * (table.end - table.start) // 1000
    if int(wasted[len(wasted) - table.undone :].sum()) != outcome.wasted_core_us:
        found.append("the wasted work is not that of the undone attempts")
    return found


def _find_overcommitment(world: WorldColumns, work: WorkColumns, table: AttemptTable) -> list[str]:
    steps = node_steps(world, work, table)
    amounts = {"CPU": steps.free_cpu, "memory": steps.free_memory, "GPU": steps.free_gpu}
    return [
        f"node {int(steps.node[np.argmin(free)])} had more {what} taken than it has"
        for what, free in amounts.items()
        if int(free.min()) < 0
    ]


def _find_order_problems(world: WorldColumns, work: WorkColumns, outcome: WorldOutcome) -> list[str]:
    found = []
    job = task_jobs(work)
    early = outcome.start < ready_times(work, job_ends(work, outcome))[job]
    if bool(early.any()):
        found.append(f"{int(early.sum())} tasks started before their job arrived or what it needs had ended")
    domains = {
        1: world.node_cluster[outcome.node],
        2: world.node_rack[outcome.node],
        3: outcome.node,
    }
    for gang, domain in domains.items():
        member = np.nonzero(work.job_gang[job] == gang)[0]
        first = work.job_offset[:-1][job[member]]
        apart = (outcome.start[member] != outcome.start[first]) | (domain[member] != domain[first])
        if bool(apart.any()):
            found.append(f"{len(np.unique(job[member[apart]]))} gangs of kind {gang} were not together")
    return found


def _find_outage_problems(work: WorkColumns, outcome: WorldOutcome, table: AttemptTable) -> list[str]:
    during = 0
    for node, begin, end in zip(
        work.outage_node.tolist(), work.outage_from.tolist(), work.outage_until.tolist(), strict=True
    ):
        here = (table.node == node) & (table.start < end) & (table.end > begin)
        during += int((here & (begin < end)).sum())
    found = [f"{during} attempts were on a node that was down"] if during else []
    if len(outcome.lost) and not len(work.outage_node):
        found.append("attempts were undone without an outage")
    return found


def _find_work_problems(world: WorldColumns, work: WorkColumns, table: AttemptTable) -> list[str]:
    """Integrate the rates of all attempts again, node by node, and compare with their works."""
    done = integrate_rates(world, work, table)
    count = len(done) - table.undone
    missed = np.abs(done[:count] - work.task_work[table.task[:count]]) > WORK_TOLERANCE
    # undone attempts that had ended, of gangs, have done all their work, the others less
    missed_undone = done[count:] > work.task_work[table.task[count:]] + WORK_TOLERANCE
    bad = int(missed.sum()) + int(missed_undone.sum())
    return [f"{bad} attempts did another amount of work than their task has"] if bad else []


def integrate_rates(world: WorldColumns, work: WorkColumns, table: AttemptTable) -> Floats:
    """Return the seconds of work that each attempt did, by the formula of columns.py."""
    done = np.zeros(len(table.task))
    order = np.argsort(table.node, kind="stable")
    bounds = np.searchsorted(table.node[order], np.arange(len(world.node_cpu) + 1))
    for node in range(len(world.node_cpu)):
        here = order[bounds[node] : bounds[node + 1]]
        here = here[table.run[here] >= 0]
        if len(here):
            done[here] = _integrate_node(world, work, table, node, here)
    return done


def _integrate_node(
    world: WorldColumns, work: WorkColumns, table: AttemptTable, node: int, here: Ints
) -> Floats:
    times = np.unique(np.concatenate([table.run[here], table.end[here]]))
    job = table.job[here]
    begins, ends = np.searchsorted(times, table.run[here]), np.searchsorted(times, table.end[here])
    demand, pollution = np.zeros(len(times)), np.zeros(len(times))
    for sums, amounts in ((demand, work.job_demand[job]), (pollution, work.job_pollution[job])):
        np.add.at(sums, begins, amounts)
        np.add.at(sums, ends, -amounts)
    used = np.cumsum(demand)[:-1] / world.node_bandwidth[node]
    crowding: Floats = np.where(used <= 1.0, world.knee * used**3, world.knee + world.slope * (used - 1.0))
    total, seconds = np.cumsum(pollution)[:-1], np.diff(times) * 1e-6
    speed = work.template_speed[work.job_template[job], world.node_class[node]]
    cores = world.node_cpu[node] / 1000.0
    done = np.zeros(len(here))
    for each in range(len(here)):
        part = slice(begins[each], ends[each])
        slowing = 1.0 + work.job_bandwidth_sensitivity[job[each]] * crowding[part]
        slowing = (
            slowing
            + work.job_cache_sensitivity[job[each]] * (total[part] - work.job_pollution[job[each]]) / cores
        )
        done[each] = float((seconds[part] / slowing).sum()) * speed[each]
    return done


def _find_byte_problems(
    world: WorldColumns, work: WorkColumns, outcome: WorldOutcome, table: AttemptTable
) -> list[str]:
    """Compare the bytes read with those that the attempts must have read, by distance."""
    replicas = (work.replica_rack >= 0).sum(axis=1)
    size = np.where(replicas[table.job] > 0, work.task_bytes[table.task], 0.0)
    read = outcome.bytes_rack + outcome.bytes_lan + outcome.bytes_wan
    if not world.holds_cores:
        # staged data may serve a later attempt, or be staged twice: only each task's first reading is sure
        least = float(size[: len(size) - table.undone].sum())
        too_little = read < least * (1 - SHARE_TOLERANCE)
        return ["less was read than the tasks' inputs"] if too_little else []
    found = []
    distance, fastest = _sources(world, work, table)
    arrived = table.run >= 0
    too_fast = arrived & ((table.run - table.start) * 1e-6 < size / fastest - 1e-6)
    if bool(too_fast.any()):
        found.append(f"{int(too_fast.sum())} inputs arrived faster than one flow may be")
    if bool((arrived & (size == 0.0) & (table.run != table.start)).any()):
        found.append("a task without input did not run at once")
    told = (outcome.bytes_rack, outcome.bytes_lan, outcome.bytes_wan)
    for kind, (name, sum_told) in enumerate(zip(("racks", "clusters", "the WAN"), told, strict=True)):
        least = float(size[arrived & (distance == kind)].sum())
        most = float(size[distance == kind].sum())
        if not least * (1 - SHARE_TOLERANCE) - 1e-3 <= sum_told <= most * (1 + SHARE_TOLERANCE) + 1e-3:
            found.append(f"{sum_told:.0f} bytes were read within {name}, of {least:.0f} to {most:.0f}")
    return found


def _sources(world: WorldColumns, work: WorkColumns, table: AttemptTable) -> tuple[Ints, Floats]:
    """Return the distance (0 rack, 1 cluster, 2 beyond) of each attempt's nearest replica, and the most that
    one flow from there may have."""
    replicas = work.replica_rack[table.job]
    rack, cluster = world.node_rack[table.node][:, None], world.node_cluster[table.node][:, None]
    source = world.rack_cluster[np.maximum(replicas, 0)]
    distances = np.where(replicas == rack, 0, np.where(source == cluster, 1, 2))
    distance = np.where(replicas < 0, 3, distances).min(axis=1)
    beyond = np.where(replicas < 0, 0.0, world.wan_flow_max[source, cluster]).max(axis=1)
    fastest = np.select(
        [distance == 0, distance == 1], [world.rack_flow_max, world.lan_flow_max], np.maximum(beyond, 1e-9)
    )
    return distance, fastest
