"""Queue orders as ranks: the position of every job in an order that does not change while the jobs wait."""

from hanse.sim.replay.queue_order import facts_at_arrival, queue_order_of
from hanse.sim.replay.run_records import ReplaySettings, ReplayWorkload


def is_short(workload: ReplayWorkload, settings: ReplaySettings) -> list[bool]:
    """Return per job whether its mean task is shorter than the cut-off."""
    cutoff = settings.short_cutoff_us
    return [estimate < cutoff for estimate in workload.estimate]


def static_rank(workload: ReplayWorkload, settings: ReplaySettings) -> list[int]:
    """Return the position of each job under an order whose keys never change; ties by position in the trace,
    which is by arrival."""
    order = queue_order_of(workload, settings)
    is_static = not order.follows_progress and not order.follows_usage
    assert is_static, settings.order
    keys = [order.key(facts_at_arrival(workload, job)) for job in range(workload.job_count)]
    ordered = sorted(range(workload.job_count), key=keys.__getitem__)
    rank = [0] * workload.job_count
    for place, job in enumerate(ordered):
        rank[job] = place
    return rank
