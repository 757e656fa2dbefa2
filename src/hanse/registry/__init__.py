"""Registries: the things that we and other packages add by name, found through entry points."""

from hanse.registry.entry_points import Entry, RegistryError
from hanse.registry.policies import (
    CLUSTER_RANKERS,
    NODE_RANKERS,
    PLACERS,
    QUEUE_ORDERS,
    SIZERS,
    make_policies,
)
from hanse.registry.registry import Registry

__all__ = [
    "CLUSTER_RANKERS",
    "NODE_RANKERS",
    "PLACERS",
    "QUEUE_ORDERS",
    "SIZERS",
    "Entry",
    "Registry",
    "RegistryError",
    "make_policies",
]
