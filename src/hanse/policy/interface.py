"""The small interfaces through which the machines ask for decisions.

Policies are pure: the same question gets the same answer. They see columns and facts, never a machine. What
they answer always passes the hard filters (room, constraints, reserve), so a policy can be poor but not
unsafe.
"""

from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from hanse.model.duration_stats import DurationStats
from hanse.model.job import SpeedUp
from hanse.model.messages import QueueKey
from hanse.model.resources import Resources, Vector
from hanse.policy.node_columns import NodeColumns

Mask = NDArray[np.uint64]


class JobFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a queue order may know of a job. Times in microseconds on the accepting broker's clock."""

    accepted_at: int
    tasks: int
    remaining: int
    """Tasks not yet ended."""
    duration: int
    """Estimated run time of one task; 0 if nobody said."""
    priority: int
    latency: bool


class QueueOrder(Protocol):
    """Gives every waiting job its key. Smaller keys go first; equal keys by job number."""

    name: str
    follows_progress: bool
    """Whether a key changes as tasks of the job end."""

    def key(self, facts: JobFacts) -> QueueKey:
        """The job's place. Must be a tuple of the same length for every job."""
        ...


class Placer(Protocol):
    """Chooses nodes for equal tasks inside one cluster."""

    name: str

    def place(
        self,
        room: NodeColumns,
        ask: Vector,
        mask: Mask,
        start: int,
        count: int,
        each_max: int,
        attributes: NDArray[np.int64],
    ) -> list[int]:
        """Up to ``count`` nodes among ``mask`` with room for ``ask``, debited from ``room``.

        ``start`` is a random position for policies that rotate; ties go to the first node in circular order
        from it. ``attributes`` is the number of attributes of each node. ``each_max`` bounds the tasks per
        node (0: no bound).
        """
        ...


class ClusterFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a cluster ranking may know of one cluster."""

    name: str
    standing: int
    """Judged by outcome: 1000 is a cluster that starts what it accepts, 0 one that never does."""
    data: int
    """Position in the job's list of clusters that hold its data; -1: not listed."""


class ClusterRanker(Protocol):
    """Orders the clusters in which a broker looks for room."""

    name: str

    def rank(self, clusters: list[ClusterFacts], start: int) -> list[int]:
        """Positions in ``clusters``, the first to be tried first; ``start`` is a random position to rotate
        by."""
        ...


class ElasticFacts(msgspec.Struct, frozen=True):
    """What a sizer may know of a group of elastic tasks. Times in microseconds."""

    least: Resources
    most: Resources
    speed_up: SpeedUp | None = None
    duration: int = 0
    """The user's estimate at the least; 0: none."""
    duration_stats: tuple[DurationStats, ...] = ()
    """What tasks of the same kind took."""
    waited_seconds: int = 0
    """Whole seconds since one of its tasks last got room, or since it came."""


class SizeChoice(msgspec.Struct, frozen=True):
    """A size, and why."""

    size: Resources
    reason: str


class Sizer(Protocol):
    """Chooses how much an elastic task gets."""

    name: str
    takes_advice: bool
    """Whether what it chooses in advance may be replaced by the advice of a policy process."""

    def sizes_to_try(self, least: Resources, most: Resources | None) -> tuple[Resources, ...]:
        """Sizes to try in turn, largest first, ending with ``least``: the first that fits all tasks is
        taken."""
        ...

    def preferred_sizes(self, facts: ElasticFacts) -> tuple[SizeChoice, ...]:
        """Sizes to ask for in advance, the best first; the first that fits some node counts. None: the ladder
        is climbed down when room is at hand."""
        ...
