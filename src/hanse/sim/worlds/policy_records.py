"""Records of the registry of policies in worlds."""

from collections.abc import Callable, Sequence

import msgspec

from hanse.sim.worlds.columns import WorkColumns, WorldColumns, WorldOutcome
from hanse.sim.worlds.earliest_finish.finish_history import FinishHistory

JobsEnded = Callable[[int], bool]
"""Progress: is told the jobs that have ended, returns False to stop."""


class WorldRunSettings(msgspec.Struct, frozen=True):
    """Settings of a run in a world."""

    order: str = "fifo"
    """One of ``ORDERS``; policies with an order of their own ignore it."""
    seed: int = 0
    compiled: bool = True
    """Use the compiled world if there is one."""
    history: FinishHistory | None = None
    """Earlier lessons of a policy that learns; None: none. A run leaves them as they are."""
    brokers: int = 4
    """Brokers of a league; the other policies are central."""
    delay_us: int = 500
    """One-way delay of every message of a league, in microseconds."""


class WorldPolicy(msgspec.Struct, frozen=True):
    """One policy of the registry."""

    name: str
    about: str
    """One sentence, without a period, on what it does."""
    run: Callable[[WorldColumns, WorkColumns, WorldRunSettings, JobsEnded | None], WorldOutcome]
    own_order: str = ""
    """Name of its own order; empty: it follows the settings."""
    warm_up: Callable[[WorldColumns, Sequence[WorkColumns]], FinishHistory] | None = None
    """Runs of other work from which it learns; None: it learns nothing."""
    is_variant: bool = False
    """Left out unless it is named."""
    is_computed: bool = False
    """Computed without nodes that fill up: its outcome is no possible one."""

    def order(self, settings: WorldRunSettings) -> str:
        """Return the order of the queue of a run with these settings."""
        return self.own_order or settings.order


class WorldRefusalError(ValueError):
    """Work, world or settings with which no run is possible; the text says why and what to do."""
