"""Invariants of every outcome of every policy."""

import numpy as np

from hanse.sim.replay.run_records import ReplayOutcome, ReplaySettings, ReplayWorkload


def find_problems(
    workload: ReplayWorkload, settings: ReplaySettings, outcome: ReplayOutcome, start_messages: int
) -> list[str]:
    """Return the problems of a finished run as sentences; empty if there are none."""
    duration = np.asarray(workload.duration, np.int64)
    offset = np.asarray(workload.offset, np.int64)
    counts = offset[1:] - offset[:-1]
    arrival = np.asarray(workload.arrival, np.int64)
    found = []
    if outcome.launches != workload.task_count or bool((outcome.start < 0).any()):
        ran = int((outcome.start >= 0).sum())
        found.append(f"{outcome.launches} launches and {ran} tasks that ran, of {workload.task_count} tasks")
    if bool(((outcome.node < 0) | (outcome.node >= settings.nodes)).any()):
        found.append("a task ran on a node that does not exist")
    early = outcome.start < np.repeat(arrival, counts) + start_messages * settings.delay_us
    if bool(early.any()):
        found.append(f"{int(early.sum())} tasks started before a message could reach their node")
    end = outcome.start + duration
    by_node = np.lexsort((end, outcome.start, outcome.node))
    same = np.diff(outcome.node[by_node]) == 0
    clash = same & (outcome.start[by_node][1:] < end[by_node][:-1])
    if bool(clash.any()):
        found.append(f"{int(clash.sum())} times a node ran two tasks at once")
    last = np.maximum.reduceat(end, offset[:-1])
    wrong = (outcome.job_end < last) | (outcome.job_end > last + 3 * settings.delay_us)
    if bool(wrong.any()):
        found.append(f"{int(wrong.sum())} jobs did not end with their last task")
    return found
