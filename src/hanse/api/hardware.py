"""Hardware and devices, as answers of the HTTP interface. What is unknown is 0 or empty."""

from collections.abc import Iterable

import msgspec

from hanse.model.hardware.devices import Device
from hanse.model.hardware.facts import HardwareFacts


class DeviceAnswer(msgspec.Struct, frozen=True):
    """A device of a node or of a machine."""

    kind: str
    index: int = 0
    paths: tuple[str, ...] = ()
    """Its device files."""
    model: str = ""
    memory: int = 0
    """Bytes."""
    uuid: str = ""
    vendor: str = ""
    task: str = ""
    """Task that has the device; empty: it is free, or another runner knows."""


class DiskAnswer(msgspec.Struct, frozen=True):
    """A disk of a machine."""

    name: str
    size: int = 0
    """Bytes."""
    rotational: bool = False
    model: str = ""


class HardwareAnswer(msgspec.Struct, frozen=True):
    """Hardware of a runner's machine, as the runner has detected it."""

    cpu_model: str = ""
    cpu_class: str = ""
    """Class of machines with equal CPUs: vendor, design, nominal rate, cores."""
    sockets: int = 0
    cores: int = 0
    threads: int = 0
    numa_nodes: int = 0
    caches: dict[str, int] = {}
    """Bytes of one cache of each level."""
    memory: int = 0
    """Bytes."""
    disks: tuple[DiskAnswer, ...] = ()
    networks: dict[str, int] = {}
    """Megabits per second of each network interface; 0: unknown."""
    gpus: tuple[DeviceAnswer, ...] = ()
    perf_event_paranoid: int | None = None
    """Level of the kernel for performance counters; null: it has none."""


def device_answer(device: Device, task: str = "") -> DeviceAnswer:
    """Return a device as an answer."""
    return DeviceAnswer(
        device.kind,
        device.index,
        device.paths,
        device.model,
        device.memory,
        device.uuid,
        device.vendor,
        task,
    )


def hardware_answer(facts: HardwareFacts) -> HardwareAnswer:
    """Return the facts of a machine as an answer."""
    return HardwareAnswer(
        cpu_model=facts.cpu.model,
        cpu_class=facts.cpu.cpu_class,
        sockets=facts.cpu.sockets,
        cores=facts.cpu.cores,
        threads=facts.cpu.threads,
        numa_nodes=facts.cpu.numa_nodes,
        caches={cache.name: cache.size for cache in facts.cpu.caches},
        memory=facts.memory,
        disks=tuple(DiskAnswer(each.name, each.size, each.rotational, each.model) for each in facts.disks),
        networks={each.name: each.speed for each in facts.networks},
        gpus=device_answers(facts.gpus),
        perf_event_paranoid=facts.perf_event_paranoid,
    )


def device_answers(devices: Iterable[Device]) -> tuple[DeviceAnswer, ...]:
    """Return devices as answers, without their tasks."""
    return tuple(device_answer(device) for device in devices)
