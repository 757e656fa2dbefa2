"""Constants of one experiment: the clusters, the load, the rules of time, and variants of real clusters."""

from typing import Final

import msgspec

from hanse.learning.edge.env import speeds
from hanse.learning.edge.env.speeds import SpeedTable

WINDOW: Final = 10
"""Pending slots per cluster in source 002."""

TASKS_PER_CLUSTER: Final = 64
"""Tasks in an episode, per cluster, in source 002."""


class Variants(msgspec.Struct, frozen=True):
    """Features of real clusters that source 002 leaves out. All off by default."""

    interference: float = 0.0
    """Gains are divided by ``1 + interference * share``; the share is that of the GPUs neighbours hold."""
    locality_steps: int = 0
    """Steps a task loses when it starts away from the cluster that holds its data."""
    checkpoint_loss: float = 0.0
    """Progress a task loses when it is preempted or its node fails (never below 0)."""
    failure_rate: float = 0.0
    """Probability per cluster and step that a node fails."""
    failure_share: float = 0.25
    """Share of the cluster's capacity that one node is."""
    repair_steps: int = 5
    """Steps until a failed node is back."""
    speed_scale: tuple[float, ...] = ()
    """Factor on the gain of tasks per cluster, for clusters of different generations; empty: all 1."""
    deadline_slack: float = 0.0
    """A task's deadline is its best noise-free duration times this after its arrival; 0: no deadlines."""


class Setting(msgspec.Struct, frozen=True, eq=False):
    """Environment, complete but for the stream of arrivals."""

    name: str
    capacity: tuple[tuple[int, int], ...]
    """CPUs and GPUs per cluster."""
    arrival_rate: float
    """Mean tasks per step in the whole league."""
    speed_table: SpeedTable
    multi: bool = True
    """True: clusters start tasks until none wants to, then time advances. False: after every round."""
    noise: float = 0.0
    """Width of the uniform noise on a step's gain."""
    switch_weight: float = 1.0
    """Factor on the gain of a step in which a preemptive policy changed the task's allocation."""
    window: int = WINDOW
    tasks_per_cluster: int = TASKS_PER_CLUSTER
    corrected: bool = False
    """True: queued tasks go before new arrivals, slots refill at once, and rounding does not cost a step."""
    sticky_pass: bool = False
    """True: a cluster that passed stays out until time advances (cheaper than source 002)."""
    bayes: bool = True
    """True: conflicts go by the Bayes rule. False: the lower index wins (source 002's baselines)."""
    variants: Variants = Variants()

    @property
    def clusters(self) -> int:
        """Number of clusters."""
        return len(self.capacity)

    @property
    def task_count(self) -> int:
        """Number of tasks in an episode."""
        return self.tasks_per_cluster * len(self.capacity)


EQUAL: Final = ((16, 16),) * 3
SIX_EQUAL: Final = ((16, 16),) * 6
SIX_UNEQUAL: Final = ((4, 4), (8, 8), (12, 12), (16, 16), (24, 24), (32, 32))


def single3() -> Setting:
    """Return source 002, figure 5 a/b: three clusters, one start per step, noise, costly reallocation."""
    return Setting(
        name="single3",
        capacity=EQUAL,
        arrival_rate=2.0,
        speed_table=speeds.synthetic_speeds(),
        multi=False,
        noise=0.2,
        switch_weight=0.5,
    )


def single6() -> Setting:
    """Return source 002, figure 5 c/d: as ``single3`` with six clusters."""
    return msgspec.structs.replace(single3(), name="single6", capacity=SIX_EQUAL, arrival_rate=4.0)


def syn3() -> Setting:
    """Return source 002, figure 11: three clusters, any number of starts per step, no noise."""
    return Setting(name="syn3", capacity=EQUAL, arrival_rate=3.0, speed_table=speeds.synthetic_speeds())


def hetero6() -> Setting:
    """Return source 002, figure 12: six unequal clusters, otherwise as ``syn3``."""
    return Setting(
        name="hetero6", capacity=SIX_UNEQUAL, arrival_rate=6.0, speed_table=speeds.synthetic_speeds()
    )


def order3() -> Setting:
    """Return source 002, figure 14: nothing to gain from size, all from order; more tasks than room."""
    return Setting(
        name="order3", capacity=EQUAL, arrival_rate=3.0, speed_table=speeds.short_and_long_speeds()
    )


def testbed3() -> Setting:
    """Return three clusters of (16, 8) with kinds of the test-bed's shape, in the corrected mode."""
    return Setting(
        name="testbed3",
        capacity=((16, 8),) * 3,
        arrival_rate=0.8,
        speed_table=speeds.bench_speeds(),
        noise=0.02,
        corrected=True,
    )
