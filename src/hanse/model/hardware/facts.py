"""Facts about one machine, as its runner detected them. What could not be read is 0, empty or None."""

from typing import Final

import msgspec

from hanse.model.hardware.devices import (
    DEVICE_TEXT_CHARACTERS_MAX,
    DEVICES_PER_NODE_MAX,
    PATHS_PER_DEVICE_MAX,
    Device,
)

PARTS_MAX: Final = 64
"""Caches, disks or network interfaces that are reported; further ones are left out."""
PARANOID_MAX: Final = 16
"""The largest level of ``perf_event_paranoid``, and minus it the least; kernels use -1 to 4."""
FACT_NUMBER_MAX: Final = 1 << 62
"""The largest number in a fact."""


class CpuCache(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Cache of a CPU: one instance of it."""

    name: str
    """``L1d``, ``L1i``, ``L2``, ``L3``."""
    size: int
    """Bytes."""


class CpuFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """CPUs of a machine."""

    model: str = ""
    cpu_class: str = ""
    """Class of machines with equal CPUs, such as ``intel-cascadelake-2.5GHz-20c``;
    ``live.hardware.cpu_class`` has the rule."""
    sockets: int = 0
    cores: int = 0
    threads: int = 0
    numa_nodes: int = 0
    caches: tuple[CpuCache, ...] = ()


class DiskFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Disk of a machine."""

    name: str
    size: int = 0
    """Bytes."""
    rotational: bool = False
    """True if it says that it turns; a virtual disk may say anything."""
    model: str = ""


class NetworkFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Network interface of a machine."""

    name: str
    speed: int = 0
    """Megabits per second; 0: unknown, as for most virtual ones."""


class HardwareFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One machine."""

    cpu: CpuFacts = CpuFacts()
    memory: int = 0
    """Bytes."""
    disks: tuple[DiskFacts, ...] = ()
    networks: tuple[NetworkFacts, ...] = ()
    gpus: tuple[Device, ...] = ()
    perf_event_paranoid: int | None = None
    """Level of the kernel for performance counters (2 or less: each process may count its own); None: it has
    none."""

    def attributes(self) -> dict[str, str]:
        """Return the attributes that a node of this machine has unless its league file sets them."""
        models = dict.fromkeys(gpu.model for gpu in self.gpus if gpu.model)
        found = {
            "cpu_class": self.cpu.cpu_class,
            "cpu_model": self.cpu.model,
            "gpu_model": next(iter(models)) if len(models) == 1 else "",
        }
        return {name: value for name, value in found.items() if value}


def facts_problem(facts: HardwareFacts) -> str | None:
    """Return why these facts are refused, in a few words; None: they are within bounds. Another member has
    sent them."""
    cpu = facts.cpu
    texts = [cpu.model, cpu.cpu_class]
    numbers = [cpu.sockets, cpu.cores, cpu.threads, cpu.numa_nodes, facts.memory]
    if max(len(cpu.caches), len(facts.disks), len(facts.networks)) > PARTS_MAX:
        return "too many parts of a machine"
    if len(facts.gpus) > DEVICES_PER_NODE_MAX:
        return "too many devices"
    for cache in cpu.caches:
        texts.append(cache.name)
        numbers.append(cache.size)
    for disk in facts.disks:
        texts += [disk.name, disk.model]
        numbers.append(disk.size)
    for network in facts.networks:
        texts.append(network.name)
        numbers.append(network.speed)
    for gpu in facts.gpus:
        if len(gpu.paths) > PATHS_PER_DEVICE_MAX:
            return "too many files of a device"
        texts += [gpu.kind, gpu.model, gpu.uuid, gpu.vendor, *gpu.paths]
        numbers += [gpu.index, gpu.memory]
    if any(len(text) > DEVICE_TEXT_CHARACTERS_MAX for text in texts):
        return "a fact that is too long"
    if facts.perf_event_paranoid is not None and abs(facts.perf_event_paranoid) > PARANOID_MAX:
        return "a level of the kernel out of range"
    if any(not 0 <= number <= FACT_NUMBER_MAX for number in numbers):
        return "a fact out of range"
    return None
