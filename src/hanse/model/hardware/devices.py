"""Devices of a node: whole GPUs, FPGAs, licences, each assigned to at most one attempt at a time."""

from typing import Final

import msgspec

GPU: Final = "gpu"
"""Kind of the devices that the resource ``gpu`` counts. Any other kind is counted by the custom resource of
its name."""
DEVICES_PER_NODE_MAX: Final = 256
"""Devices of one node: more is a mistake, and their names must fit a start request."""
DEVICE_TEXT_CHARACTERS_MAX: Final = 255
"""Characters of a device's model, uuid, or path."""
PATHS_PER_DEVICE_MAX: Final = 8
"""Files of one device: an AMD GPU has two."""
NVIDIA: Final = "nvidia"
AMD: Final = "amd"


class Device(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Device of a node."""

    kind: str = GPU
    index: int = 0
    """Number among the devices of its kind: of a GPU the number that its driver uses."""
    paths: tuple[str, ...] = ()
    """Its own device files; empty: it has none (a licence), or they are unknown."""
    model: str = ""
    memory: int = 0
    """Bytes of its own memory; 0: unknown, or none."""
    uuid: str = ""
    vendor: str = ""
    """``nvidia`` or ``amd``, which decides by which variables a task learns of a GPU; empty: as NVIDIA."""

    def identity(self, node: int) -> str:
        """Return a name that no other device of the runner has. Files and uuids are the machine's; a device
        without them is known by its place in its node."""
        if self.paths:
            return self.paths[0]
        return self.uuid or f"{node}/{self.kind}{self.index}"
