"""Queue order of a replay: the one that brokers of a live league use, with the parameters of the run."""

from collections.abc import Callable
from typing import Final

from hanse.policy.interface import JobFacts, QueueOrder
from hanse.policy.queue_orders import FewestRemaining, PriorityWithAgeing, ShortFirst
from hanse.registry import QUEUE_ORDERS
from hanse.sim.replay.run_records import ReplaySettings, ReplayWorkload

_WITH_PARAMETERS: Final[dict[str, Callable[[ReplayWorkload, ReplaySettings], QueueOrder]]] = {
    ShortFirst.name: lambda _, settings: ShortFirst(settings.short_cutoff_us),
    PriorityWithAgeing.name: lambda workload, _: PriorityWithAgeing(workload.span() + 1),
}
"""Orders whose parameters come from the run. ``priority`` ages so slowly that no wait outweighs a step of
priority, as in the schedulers of the literature."""


def queue_order_of(workload: ReplayWorkload, settings: ReplaySettings) -> QueueOrder:
    """Return the queue order of the settings; raise ``RegistryError`` if it cannot be used."""
    make = _WITH_PARAMETERS.get(settings.order)
    return make(workload, settings) if make is not None else QUEUE_ORDERS.get(settings.order)()


def facts_at_arrival(workload: ReplayWorkload, job: int) -> JobFacts:
    """Return the facts about a job as the schedulers of the literature know them, who have no classes."""
    tasks = workload.offset[job + 1] - workload.offset[job]
    return JobFacts(
        workload.arrival[job],
        tasks,
        tasks,
        max(1, workload.estimate[job]),  # 0 means an unknown duration
        workload.priority[job],
        False,
        tenant=workload.tenant_of(job),
    )


def find_literature_objection(settings: ReplaySettings) -> str:
    """Return the reason why the schedulers of the literature cannot follow the order of the settings; empty
    if they can: those whose keys never change, and ``fewest-remaining``."""
    problem = QUEUE_ORDERS.find_problem(settings.order)
    if problem or settings.order == FewestRemaining.name:
        return problem
    order = QUEUE_ORDERS.get(settings.order)
    if order.follows_progress or order.follows_usage:
        return (
            f"the keys of the order {settings.order} change while jobs wait, and of such orders the "
            f"schedulers of the literature know only {FewestRemaining.name}: use --policy hanse for it"
        )
    return ""
