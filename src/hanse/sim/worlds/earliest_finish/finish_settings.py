"""Settings of the policy earliest-finish, and the variants that leave one part out."""

from typing import Final

import msgspec

from hanse.policy.finish_time.crowding import CROWDING_HALF_LIFE_JOBS, SOLVE_JOBS
from hanse.policy.finish_time.duration_table import (
    FIRST_SECONDS,
    HALF_LIFE_JOBS,
    OFF_MAX,
    SECONDS_MIN,
    SIZE_UNIT,
    SPREADS,
    decay_of,
)
from hanse.policy.finish_time.waiting import WAIT_RATIO, WAIT_SHARE
from hanse.policy.queue_orders import WORK_AGEING

PASS_US: Final = 1_000_000
"""Time between two passes over the jobs that wait for a better place: ``PASS_US`` of
``compiled/finish.h``."""
NEIGHBOUR_CHARGE: Final = 0.5
"""Part of its neighbours' loss that a task is charged: not each of them is the last one of its job."""
SAME: Final = 1e-6
"""Spread that lets no row deviate from the level above."""


class FinishSettings(msgspec.Struct, frozen=True):
    """Parts of the estimate, and what is done with it."""

    constants: str = ""
    """Published speeds of the classes: empty, they are not known; ``prior``, kinds of work start from them;
    ``only``, nothing else is believed about classes."""
    uses_data: bool = True
    """Transfers count."""
    uses_sizes: bool = True
    """Run times are learned by the size of the input, too."""
    learns_crowding: bool = True
    """The slow-down by neighbours is learned, and counts."""
    charge: float = NEIGHBOUR_CHARGE
    """Weight of the neighbours' loss."""
    wait_ratio: float = WAIT_RATIO
    """0: no task waits for a better place."""
    wait_share: float = WAIT_SHARE
    is_shortest_first: bool = True
    """Order shortest-work by expected work left; else by arrival."""
    ageing: int = WORK_AGEING
    explores: float = 0.0
    """Share of jobs that are placed at random, to learn from."""

    @property
    def spreads(self) -> tuple[float, float, float]:
        """Standard deviations of contrasts between rows of the table, by level."""
        return (SPREADS[0], SAME, SAME) if self.constants == "only" else SPREADS

    def numbers(self, works: int) -> list[float]:
        """Return ``finish_options_t`` of ``compiled/finish.h``."""
        return [
            *(float(works), float(bool(self.constants))),
            *(float(self.uses_data), self.charge, float(self.learns_crowding), float(self.uses_sizes)),
            *(self.wait_ratio, self.wait_share, float(self.is_shortest_first), float(self.ageing)),
            *(self.explores, *self.spreads),
            *(
                decay_of(HALF_LIFE_JOBS),
                decay_of(CROWDING_HALF_LIFE_JOBS),
                CROWDING_VARIANCE,
                float(SOLVE_JOBS),
            ),
            *(FIRST_SECONDS, OFF_MAX, SECONDS_MIN, float(SIZE_UNIT)),
        ]


CROWDING_VARIANCE: Final = 0.1
"""Variance of the logarithm of a task's run time within its job, as the ridges of crowding take it."""
