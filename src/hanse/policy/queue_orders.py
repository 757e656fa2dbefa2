"""Queue orders: order of waiting jobs. Keys are tuples of integers, smaller first; ties by job number.

Wardens compare keys of different brokers, so an order must be the same in the whole league. Times are on the
accepting broker's clock: skew between brokers shifts their places a little and harms nothing else.
"""

from typing import Final

from hanse.model.ids import SECOND
from hanse.model.messages import QueueKey
from hanse.policy.interface import JobFacts

AGEING_SECONDS: Final = 60
"""Seconds of waiting that one step of priority is worth."""
SHORT_CUTOFF: Final = 90_581_100
"""Mean task duration below which a job is short, in microseconds: the cut-off of the Yahoo trace in the
literature."""

UNKNOWN_SECONDS: Final = 60
"""Duration that ``ShortestWork`` takes for a task without an estimate."""
WORK_SECONDS_MAX: Final = 6 * 3600
"""Task-seconds from which on ``ShortestWork`` takes all jobs for equally long."""
WORK_AGEING: Final = 4
"""Task-seconds of expected work that one second of waiting makes up for."""


class Fifo:
    """Order of arrival."""

    name = "fifo"
    follows_progress = False
    follows_usage = False

    def key(self, facts: JobFacts) -> QueueKey:
        """Return the arrival."""
        return (facts.accepted_at,)


class FewestRemaining:
    """Order by unfinished tasks, then arrival: near the shortest mean delay, hard on big jobs."""

    name = "fewest-remaining"
    follows_progress = True
    follows_usage = False

    def key(self, facts: JobFacts) -> QueueKey:
        """Return the unfinished tasks and the arrival."""
        return (facts.remaining, facts.accepted_at)


class ShortFirst:
    """Order with latency-class and short jobs first, each class by arrival. A job without an estimate is
    long."""

    name = "short-first"
    follows_progress = False
    follows_usage = False

    def __init__(self, cutoff: int = SHORT_CUTOFF) -> None:
        self.cutoff = cutoff

    def key(self, facts: JobFacts) -> QueueKey:
        """Return the class and the arrival."""
        short = facts.latency or 0 < facts.duration < self.cutoff
        return (0 if short else 1, facts.accepted_at)


class PriorityWithAgeing:
    """Order by priority, which rises with waiting, so that no job waits for ever.

    Effective priority is ``priority + waited / ageing``. All jobs age at the same rate, so comparing
    ``arrival - priority * ageing`` gives the same order at any time, and keys never have to be computed
    again.
    """

    name = "priority"
    follows_progress = False
    follows_usage = False

    def __init__(self, ageing: int = AGEING_SECONDS * SECOND) -> None:
        self.ageing = ageing

    def key(self, facts: JobFacts) -> QueueKey:
        """Return the arrival, brought forward by priority."""
        return (facts.accepted_at - facts.priority * self.ageing,)


class ShortestWork:
    """Order by expected work (tasks times their duration), less what waiting makes up for.

    A job falls behind later ones by its work only: none that arrives more than WORK_SECONDS_MAX / WORK_AGEING
    (an hour and a half) after it goes before it. As all age at the same rate, ``work + arrival * ageing``
    gives the same order at any time, and keys never have to be computed again.
    """

    name = "shortest-work"
    follows_progress = False
    follows_usage = False

    def __init__(self, ageing: int = WORK_AGEING) -> None:
        assert ageing > 0, "without ageing a large job starves"
        self.ageing = ageing

    def key(self, facts: JobFacts) -> QueueKey:
        """Return the expected work in task-microseconds, put back by the arrival; then the arrival."""
        work = facts.tasks * (facts.duration or UNKNOWN_SECONDS * SECOND)
        return (min(work, WORK_SECONDS_MAX * SECOND) + facts.accepted_at * self.ageing, facts.accepted_at)
