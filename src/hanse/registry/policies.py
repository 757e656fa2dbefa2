"""Registries of the policies of brokers and wardens: classes by name, made without arguments.

To add one of ours: the class in ``hanse.policy``, its entry in ``pyproject.toml``, its name here.
"""

from typing import TYPE_CHECKING, Final

from hanse.registry.registry import Registry

if TYPE_CHECKING:
    from hanse.policy.interface import ClusterRanker, NodeRanker, Placer, QueueOrder, Sizer

QUEUE_ORDERS: "Final[Registry[type[QueueOrder]]]" = Registry(
    "queue order",
    "hanse.queue_orders",
    ("fifo", "fewest-remaining", "short-first", "priority", "shortest-work"),
    ("name", "follows_progress", "follows_usage", "key"),
)
PLACERS: "Final[Registry[type[Placer]]]" = Registry(
    "placer",
    "hanse.placers",
    ("best-fit", "spread", "random", "fewest-attributes"),
    ("name", "place"),
)
CLUSTER_RANKERS: "Final[Registry[type[ClusterRanker]]]" = Registry(
    "cluster ranker",
    "hanse.cluster_rankers",
    ("rotate", "best-standing", "earliest-finish"),
    ("name", "follows_estimates", "rank"),
)
NODE_RANKERS: "Final[Registry[type[NodeRanker]]]" = Registry(
    "node ranker",
    "hanse.node_rankers",
    ("first", "best-fit", "spread"),
    ("name", "choose"),
)
SIZERS: "Final[Registry[type[Sizer]]]" = Registry(
    "sizer",
    "hanse.sizers",
    ("least", "generous", "priced", "network"),
    ("name", "takes_advice", "model", "sizes_to_try", "preferred_sizes"),
)


def make_policies(
    order: str, placer: str, rank: str, sizer: str
) -> "tuple[QueueOrder, Placer, ClusterRanker, Sizer]":
    """Return the policies of these names, as a broker takes them; raise ``RegistryError`` if one cannot be
    used."""
    return (
        QUEUE_ORDERS.get(order)(),
        PLACERS.get(placer)(),
        CLUSTER_RANKERS.get(rank)(),
        SIZERS.get(sizer)(),
    )
