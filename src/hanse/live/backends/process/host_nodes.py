"""This machine as nodes: its CPUs and memory in equal slices."""

import os
import platform
import re
from pathlib import Path
from typing import Final

from hanse.core.config import NodeConfig
from hanse.model.resources import Resources

MEMORY_RESERVED_PERCENT: Final = 10
"""Share of the memory that no node gets: the system and the daemons need some."""
_MEMINFO: Final = Path("/proc/meminfo")


def default_nodes(
    count: int = 1, *, cpu: int | None = None, memory: int | None = None, runner: str = ""
) -> tuple[NodeConfig, ...]:
    """Return ``count`` equal nodes from this machine, or from the given part of it.

    ``cpu`` is in thousandths of a core (default: all that this process may use), ``memory`` in bytes
    (default: all but ``MEMORY_RESERVED_PERCENT``).
    """
    assert count > 0, f"{count} nodes"
    cpu = len(os.sched_getaffinity(0)) * 1_000 if cpu is None else cpu
    memory = _memory_total() * (100 - MEMORY_RESERVED_PERCENT) // 100 if memory is None else memory
    attributes = (("arch", platform.machine()), ("host", platform.node()))
    slice_ = Resources(cpu=cpu // count, memory=memory // count)
    return (NodeConfig(slice_, attributes, runner),) * count


def _memory_total() -> int:
    """Return the bytes of memory of this machine."""
    found = re.search(r"^MemTotal:\s+(\d+) kB$", _MEMINFO.read_text(encoding="ascii"), flags=re.MULTILINE)
    assert found is not None, "the kernel does not say how much memory there is"
    return int(found[1]) * 1_024
