"""Memory limit of tasks that asked for no memory, so that one task cannot take a node from the others."""

from typing import Final

import msgspec

from hanse.core.config import NodeConfig
from hanse.model.messages import AttemptEnd
from hanse.model.resources import Resources

LIMIT_BYTES_MIN: Final = 256 << 20
"""Least share of a task in bytes, even for a hundredth of a CPU; a smaller node is its own limit."""
OUT_OF_MEMORY: Final = "out of memory"


class MemoryDefault(msgspec.Struct, frozen=True):
    """A cluster's rule. ``setting`` is a limit in bytes on all of its nodes; 0: a share of the node."""

    nodes: tuple[NodeConfig, ...]
    setting: int = 0

    def limit(self, node: int, size: Resources) -> int:
        """Return the bytes for a task of this size on this node; 0: it asked for memory.

        The share of the node's memory is the task's share of the node's CPUs, or all of it if the task asked
        for no CPU either.
        """
        if size.memory or node >= len(self.nodes):
            return 0
        if self.setting:
            return self.setting
        whole = self.nodes[node].capacity
        if not size.cpu or size.cpu >= whole.cpu:
            return whole.memory
        return min(whole.memory, max(LIMIT_BYTES_MIN, whole.memory * size.cpu // whole.cpu))


def explain_out_of_memory(end: AttemptEnd, limit: int) -> AttemptEnd:
    """Return the end, with an explanation if the attempt exceeded this ``limit``, for which it had not asked
    (0: it had none)."""
    if not limit or not end.note.startswith(OUT_OF_MEMORY):
        return end
    explanation = f"{OUT_OF_MEMORY} ({limit >> 20} MiB, the limit without --mem)"
    return msgspec.structs.replace(end, note=end.note.replace(OUT_OF_MEMORY, explanation, 1))
