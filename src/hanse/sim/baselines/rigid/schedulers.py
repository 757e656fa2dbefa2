"""Schedulers by name, each ``(RigidWorkload, RigidSettings) -> RigidOutcome``."""

from collections.abc import Callable
from typing import Final

from hanse.sim.baselines.rigid.conservative import ConservativePlanner
from hanse.sim.baselines.rigid.engine import run_machine
from hanse.sim.baselines.rigid.planners import BlockingPlanner, EasyPlanner
from hanse.sim.baselines.rigid.queue_order import ORDERS
from hanse.sim.baselines.rigid.workload import RigidOutcome, RigidSettings, RigidWorkload

RigidScheduler = Callable[[RigidWorkload, RigidSettings], RigidOutcome]


def fcfs(workload: RigidWorkload, settings: RigidSettings) -> RigidOutcome:
    """Run with a head of the queue (by ``settings.order``, arrival by default) that blocks all behind it."""
    return run_machine(workload, settings, BlockingPlanner(workload, ORDERS[settings.order]))


def sjf(workload: RigidWorkload, settings: RigidSettings) -> RigidOutcome:
    """Run shortest requested time first, not preemptive; the head blocks."""
    return run_machine(workload, settings, BlockingPlanner(workload, ORDERS["shortest"]))


def easy(workload: RigidWorkload, settings: RigidSettings) -> RigidOutcome:
    """Run EASY backfilling: the head has a reservation, and jobs that do not delay it may pass."""
    return run_machine(workload, settings, EasyPlanner(workload, ORDERS[settings.order]))


def conservative(workload: RigidWorkload, settings: RigidSettings) -> RigidOutcome:
    """Run conservative backfilling: every waiting job has a reservation that is never delayed."""
    return run_machine(
        workload, settings, ConservativePlanner(workload, ORDERS[settings.order], settings.processors)
    )


RIGID_SCHEDULERS: Final[dict[str, RigidScheduler]] = {
    "fcfs": fcfs,
    "sjf": sjf,
    "easy": easy,
    "conservative": conservative,
}
