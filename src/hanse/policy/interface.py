"""Interfaces through which the machines ask for decisions.

Policies are pure: the same question gets the same answer. They get columns and facts, never a machine. Their
answers always pass the hard filters (room, constraints, reserve), so a policy can be poor but not unsafe.
"""

from collections.abc import Sequence
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
    """Facts about a job for a queue order. Times in microseconds on the accepting broker's clock."""

    accepted_at: int
    tasks: int
    remaining: int
    """Tasks that have not ended."""
    duration: int
    """Estimated run time of one task; 0 if there is no estimate."""
    priority: int
    latency: bool
    tenant: str = ""
    """Tenant for whom the job runs."""
    tenant_usage: int = 0
    """Share of the league that the broker's own tasks of this tenant use, from the claim to the end, in
    thousandths: the largest of the shares of each resource. 0 for an order that does not follow usage."""


class QueueOrder(Protocol):
    """Order of waiting jobs by key. Smaller keys go first; equal keys by job number."""

    name: str
    follows_progress: bool
    """True if a key changes as tasks of the job end."""
    follows_usage: bool
    """True if a key changes with ``JobFacts.tenant_usage``, which is computed for such orders only."""

    def key(self, facts: JobFacts) -> QueueKey:
        """Return the job's key: a tuple of the same length for every job."""
        ...


class Placer(Protocol):
    """Choice of nodes for equal tasks inside one cluster."""

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
        """Return up to ``count`` nodes among ``mask`` with room for ``ask``, debited from ``room``.

        ``start`` is a random position for policies that rotate; ties go to the first node in circular order
        from it. ``attributes`` is the number of attributes of each node. ``each_max`` bounds the tasks per
        node (0: no bound).
        """
        ...


class NodeRanker(Protocol):
    """Choice of nodes at a warden, for equal tasks whose node the warden decides.

    A warden asks it for substitutes, for the nodes of a gang, and for the room of demand that it can serve
    from what is free. A node that comes free is offered without it, in the order of keys; holds and
    preemption have rules of their own.

    Both methods debit ``room``. They find a node for as many tasks as the room in ``mask`` allows: a warden
    remembers a search that found too little. ``start`` is a random position; ties go to the first node in
    circular order from it. ``each_max`` bounds the tasks per node in one call (0: no bound).
    """

    name: str

    def choose(
        self, room: NodeColumns, ask: Vector, mask: Mask, start: int, count: int, each_max: int
    ) -> list[int]:
        """Return up to ``count`` nodes among ``mask`` with room for ``ask``."""
        ...

    def settle(
        self, room: NodeColumns, ask: Vector, mask: Mask, proposed: Sequence[int], start: int, each_max: int
    ) -> list[int]:
        """Return the node of each task of a claim: the proposed one, if it is in ``mask`` and has room, or a
        substitute; -1: there is no room.

        Proposals that all suit are taken as they are. Outside the cluster, or -1, proposes nothing.
        """
        ...


class ClusterFacts(msgspec.Struct, frozen=True, array_like=True):
    """Facts about one cluster for a cluster ranking."""

    name: str
    standing: int
    """Score by outcome: 1000 is a cluster that starts what it accepts, 0 one that never does."""
    data: int
    """Position in the job's list of clusters that hold its data; -1: not listed."""
    finish: int = 0
    """Estimated milliseconds from the start of a task to its end, with the transfer of its data; 0 for a
    ranker that does not follow estimates."""
    node_class: str = ""
    """Node class that ``finish`` is about; a ranker that follows estimates gets an entry for each."""


class ClusterRanker(Protocol):
    """Order of the clusters in which a broker looks for room."""

    name: str
    follows_estimates: bool
    """True if it ranks the node classes of each cluster by ``ClusterFacts.finish``, which is computed for
    such rankers only."""

    def rank(self, clusters: list[ClusterFacts], start: int) -> list[int]:
        """Return positions in ``clusters``, the first to be tried first; ``start`` is a random position to
        rotate by."""
        ...


class ElasticFacts(msgspec.Struct, frozen=True):
    """Facts about a group of elastic tasks for a sizer. Times in microseconds."""

    least: Resources
    most: Resources
    speed_up: SpeedUp | None = None
    duration: int = 0
    """User's estimate at the least size; 0: none."""
    duration_stats: tuple[DurationStats, ...] = ()
    """Durations of tasks of the same kind."""
    waited_seconds: int = 0
    """Whole seconds since one of its tasks last got room, or since the group arrived."""


class SizeChoice(msgspec.Struct, frozen=True):
    """Size with its reason."""

    size: Resources
    reason: str


class Sizer(Protocol):
    """Choice of the size of elastic tasks."""

    name: str
    takes_advice: bool
    """True if the advice of a policy process may replace a size chosen in advance."""
    model: str
    """Name of the learned model that the policy process loads (``hanse.models``); empty: it takes no
    advice."""

    def sizes_to_try(self, least: Resources, most: Resources | None) -> tuple[Resources, ...]:
        """Return sizes to try in turn, largest first, ending with ``least``; the first that fits all tasks is
        taken."""
        ...

    def preferred_sizes(self, facts: ElasticFacts) -> tuple[SizeChoice, ...]:
        """Return sizes to ask for in advance, the best first; the first that fits some node counts. Empty:
        the sizes of ``sizes_to_try`` are tried when there is room."""
        ...
