"""The memory of tasks that asked for none: a limit all the same, so that one task cannot take a node from the
others."""

from typing import Final

import msgspec

from hanse.core.config import NodeConfig
from hanse.model.messages import AttemptEnd
from hanse.model.resources import Resources

LEAST: Final = 256 << 20
"""Bytes that the share of a task is at least, though it asked for a hundredth of a CPU; a smaller node is its
own limit."""
OUT_OF_MEMORY: Final = "out of memory"


class MemoryDefault(msgspec.Struct, frozen=True):
    """A cluster's rule. ``setting`` is a limit in bytes on all of its nodes; 0: a share of the node."""

    nodes: tuple[NodeConfig, ...]
    setting: int = 0

    def limit(self, node: int, size: Resources) -> int:
        """Bytes for a task of this size on this node, if it asked for none; 0: it asked for some.

        It is the part of the node's memory that its CPUs are of the node's, or all of it if it asked for no
        CPU either.
        """
        if size.memory or node >= len(self.nodes):
            return 0
        if self.setting:
            return self.setting
        whole = self.nodes[node].capacity
        if not size.cpu or size.cpu >= whole.cpu:
            return whole.memory
        return min(whole.memory, max(LEAST, whole.memory * size.cpu // whole.cpu))


def explained(end: AttemptEnd, limit: int) -> AttemptEnd:
    """The end of an attempt that had this limit without asking (0: it had none), with a word on that if it
    was too little."""
    if not limit or not end.note.startswith(OUT_OF_MEMORY):
        return end
    more = f"{OUT_OF_MEMORY} ({limit >> 20} MiB, as it asked for none: --mem)"
    return msgspec.structs.replace(end, note=end.note.replace(OUT_OF_MEMORY, more, 1))
