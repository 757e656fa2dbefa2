"""Properties of tasks that several messages carry: shape and template of a group."""

import msgspec

from hanse.model.constraints import Constraint
from hanse.model.ids import ShardId
from hanse.model.job import Affinity, Proximity, Together, UnreachablePolicy
from hanse.model.messages.group_layout import DEFAULT_GROUP
from hanse.model.resources import Resources


class Shape(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """Properties that decide where a task fits. Tasks of one shape are interchangeable to a warden."""

    ask: Resources
    ask_max: Resources | None = None
    where: Constraint | None = None
    affinity: tuple[Affinity, ...] = ()
    labels: tuple[str, ...] = ()  # the job's own labels, which affinities of others name
    latency: bool = False
    gang: int = 0  # number of tasks that must start together; 0: each alone
    priority: int = 0
    preemptible: bool = False
    clusters_allowed: tuple[str, ...] = ()
    clusters_forbidden: tuple[str, ...] = ()
    together: Together = Together.CLUSTER  # of a gang, as ``spread`` and ``spread_max``
    spread: str = ""
    spread_max: int = 0
    kind: int = 0
    """Number of the kind of work and of the places of its data, where estimates tell kinds apart; 0: none."""

    @property
    def max_per_node(self) -> int:
        """Number of these that one node may hold: 1 if they keep apart from their own label, else 0: any."""
        return int(any(wish.apart and wish.label in self.labels for wish in self.affinity))

    @property
    def is_single_per_cluster(self) -> bool:
        """True if a whole cluster may hold only one of these."""
        return any(
            w.apart and w.proximity is Proximity.CLUSTER and w.label in self.labels for w in self.affinity
        )

    def allows_cluster(self, cluster: str) -> bool:
        """True if the job's own rules let it run in this cluster."""
        allowed = self.clusters_allowed
        return cluster not in self.clusters_forbidden and (not allowed or cluster in allowed)


class TaskTemplate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Facts that a warden needs to run a group's tasks; all batches of the group share one object."""

    shape: Shape
    shard: ShardId
    payload: bytes = b""
    grace: int = 0
    unreachable: UnreachablePolicy = UnreachablePolicy.MOVE
    duration: int | None = None
    group: str = DEFAULT_GROUP
    first: int = 0
    """Index of the group's first task in the job."""
    count: int = 0
    """Number of tasks of the group; 0: not known."""

    @property
    def has_ranks(self) -> bool:
        """True if its tasks must be told their ranks: others are rank 0 of 1 in the group ``main``."""
        return self.count > 1 or (self.count == 1 and self.group != DEFAULT_GROUP)
