"""Queue orders: which waiting job goes first. Keys are tuples of integers, smaller first; ties by job number.

Keys of different brokers meet at the wardens, so an order must be the same in the whole league. Times are
on the accepting broker's clock: skew between brokers shifts their places a little and harms nothing else.
"""

from typing import Final

from hanse.model.ids import SECOND
from hanse.model.messages import QueueKey
from hanse.policy.interface import JobFacts, QueueOrder

AGEING_SECONDS: Final = 60
"""One step of priority is worth this much waiting."""
SHORT_CUTOFF: Final = 90_581_100
"""Jobs whose tasks take less than this (microseconds) are short: the cut-off of the Yahoo trace in the
literature."""


class Fifo:
    """First come, first served."""

    name = "fifo"
    follows_progress = False

    def key(self, facts: JobFacts) -> QueueKey:
        """Arrival."""
        return (facts.accepted_at,)


class FewestRemaining:
    """The job with the fewest unfinished tasks first, then arrival: near the shortest mean delay, hard on
    big jobs."""

    name = "fewest-remaining"
    follows_progress = True

    def key(self, facts: JobFacts) -> QueueKey:
        """Tasks left, arrival."""
        return (facts.remaining, facts.accepted_at)


class ShortFirst:
    """Latency-class and short jobs first, each class in order of arrival. A job without an estimate counts
    as long."""

    name = "short-first"
    follows_progress = False

    def __init__(self, cutoff: int = SHORT_CUTOFF) -> None:
        self.cutoff = cutoff

    def key(self, facts: JobFacts) -> QueueKey:
        """Class, arrival."""
        short = facts.latency or 0 < facts.duration < self.cutoff
        return (0 if short else 1, facts.accepted_at)


class PriorityWithAgeing:
    """Higher priority first, and everybody's rises with waiting, so nobody waits for ever.

    Effective priority is ``priority + waited / ageing``. All jobs age at the same rate, so comparing
    ``arrival - priority * ageing`` gives the same order at any time, and keys never have to be computed
    again.
    """

    name = "priority"
    follows_progress = False

    def __init__(self, ageing: int = AGEING_SECONDS * SECOND) -> None:
        self.ageing = ageing

    def key(self, facts: JobFacts) -> QueueKey:
        """Arrival, brought forward by priority."""
        return (facts.accepted_at - facts.priority * self.ageing,)


QUEUE_ORDERS: Final[dict[str, type[QueueOrder]]] = {
    order.name: order for order in (Fifo, FewestRemaining, ShortFirst, PriorityWithAgeing)
}
"""Every queue order by its name."""
