"""Queue orders as ranks: the position of every job in an order that does not change while the jobs wait."""

from hanse.sim.replay.records import ReplaySettings, ReplayWorkload


def is_short(workload: ReplayWorkload, settings: ReplaySettings) -> list[bool]:
    """Return per job whether its mean task is shorter than the cut-off."""
    cutoff = settings.short_cutoff_us
    return [estimate < cutoff for estimate in workload.estimate]


def static_rank(workload: ReplayWorkload, settings: ReplaySettings) -> list[int]:
    """Return the position of each job under ``fifo``, ``short-first`` or ``priority``; ties by arrival, then
    by position in the trace."""
    jobs = range(workload.jobs)
    if settings.order == "fifo":
        return list(jobs)
    if settings.order == "short-first":
        short = is_short(workload, settings)
        ordered = sorted(jobs, key=lambda job: not short[job])
    else:
        assert settings.order == "priority", settings.order
        ordered = sorted(jobs, key=lambda job: -workload.priority[job])
    rank = [0] * workload.jobs
    for place, job in enumerate(ordered):
        rank[job] = place
    return rank
