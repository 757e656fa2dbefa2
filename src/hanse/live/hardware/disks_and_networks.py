"""Memory, disks and network interfaces of a machine."""

import re
from typing import Final

from hanse.live.hardware.host_files import HostFiles
from hanse.model.hardware.devices import DEVICE_TEXT_CHARACTERS_MAX
from hanse.model.hardware.facts import PARTS_MAX, DiskFacts, NetworkFacts

SECTOR_BYTES: Final = 512
"""Unit in which the kernel gives the size of any disk."""
_NO_DISKS: Final = re.compile(r"(?:loop|ram|zram|dm-|md|sr|fd|nbd|mtdblock)\d")
"""Names of block devices that are no disks: parts of files, memory, other disks, or drives without one."""
_MEMORY: Final = re.compile(r"^MemTotal:\s+(\d{1,15}) kB$", flags=re.MULTILINE)


def parse_memory(meminfo: str) -> int:
    """Return the bytes of memory from the text of ``/proc/meminfo``; 0: it does not say."""
    found = _MEMORY.search(meminfo)
    return int(found[1]) * 1_024 if found else 0


def detect_disks(host: HostFiles) -> tuple[DiskFacts, ...]:
    """Return the disks, in the order of their names."""
    disks = []
    for name in host.entries("sys/block"):
        size = host.read_number(f"sys/block/{name}/size") * SECTOR_BYTES
        if _NO_DISKS.match(name) or not size:
            continue
        rotational = host.read(f"sys/block/{name}/queue/rotational") == "1"
        model = " ".join(host.read(f"sys/block/{name}/device/model").split())[:DEVICE_TEXT_CHARACTERS_MAX]
        disks.append(DiskFacts(name, size, rotational, model))
    return tuple(disks[:PARTS_MAX])


def detect_networks(host: HostFiles) -> tuple[NetworkFacts, ...]:
    """Return the interfaces of real or emulated adapters, and others that have a speed (as in containers)."""
    networks = []
    for name in host.entries("sys/class/net"):
        speed = host.read_number(f"sys/class/net/{name}/speed")
        if name != "lo" and (speed or host.has(f"sys/class/net/{name}/device")):
            networks.append(NetworkFacts(name, speed))
    return tuple(networks[:PARTS_MAX])
