"""Attributes that nodes get from the hardware of their machines."""

from collections.abc import Mapping

import msgspec

from hanse.core.config import NodeConfig
from hanse.league.backend_kinds import BACKENDS
from hanse.league.config import ClusterEntry
from hanse.model.hardware.devices import GPU
from hanse.model.hardware.facts import HardwareFacts


def with_detected_attributes(entry: ClusterEntry, facts: Mapping[str, HardwareFacts]) -> ClusterEntry:
    """Return a cluster whose nodes have the attributes of their machines, by the names of their runners. An
    attribute of the league file stands. A cluster whose tasks run on other machines than its runner's is
    returned unchanged."""
    if not BACKENDS.get(entry.backend.kind).runs_on_its_machine:
        return entry
    nodes = tuple([_add_attributes(node, facts.get(node.runner)) for node in entry.nodes])
    return entry if nodes == entry.nodes else msgspec.structs.replace(entry, nodes=nodes)


def _add_attributes(node: NodeConfig, facts: HardwareFacts | None) -> NodeConfig:
    found: dict[str, str] = {} if facts is None else facts.attributes()
    if not node.capacity.gpu:
        found.pop("gpu_model", None)
    models = dict.fromkeys(device.model for device in node.devices if device.kind == GPU)
    if len(models) == 1 and (model := next(iter(models))):
        found["gpu_model"] = model
    if not found:
        return node
    attributes = found | dict(node.attributes)
    return msgspec.structs.replace(node, attributes=tuple(sorted(attributes.items())))
