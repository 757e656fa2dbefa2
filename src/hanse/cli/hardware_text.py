"""Machines and devices in words, for ``hanse nodes``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from hanse.cli.formatting import memory_text

if TYPE_CHECKING:
    from hanse.api.hardware import DeviceAnswer, HardwareAnswer
    from hanse.api.records import NodeAnswer

COUNTERS_LEVEL_MAX: Final = 2
"""Level of ``perf_event_paranoid`` up to which users may count what their own processes do."""


def device_lines(nodes: "Iterable[NodeAnswer]") -> Iterator[str]:
    """Yield a line for each device: its node, its name, its model and its task."""
    for node in nodes:
        for device in node.devices:
            yield f"{node.cluster}/{node.node}: {device_text(device)}, {_use_text(device)}"


def _use_text(device: "DeviceAnswer") -> str:
    return f"task {device.task}" if device.task else "no task"


def device_text(device: "DeviceAnswer") -> str:
    """Return a device with all that is known of it."""
    facts = [device.model, memory_text(device.memory) if device.memory else "", *device.paths[:1]]
    known = ", ".join(fact for fact in facts if fact)
    return f"{device.kind} {device.index}" + (f" ({known})" if known else "")


def hardware_lines(machines: "Mapping[str, HardwareAnswer]") -> Iterator[str]:
    """Yield the lines that describe the runners' machines."""
    for runner, machine in machines.items():
        yield f"{runner}: {machine.cpu_model or 'unknown CPU'}, class {machine.cpu_class or 'unknown'}"
        counts = {
            "sockets": machine.sockets,
            "cores": machine.cores,
            "threads": machine.threads,
            "NUMA nodes": machine.numa_nodes,
        }
        caches = [f"{name} {memory_text(size)}" for name, size in machine.caches.items()]
        parts = {
            "CPUs": ", ".join(f"{count} {name}" for name, count in counts.items()),
            "caches": ", ".join(caches),
            "memory": memory_text(machine.memory),
            "disks": ", ".join(
                f"{disk.name} {memory_text(disk.size)}{' (rotational)' if disk.rotational else ''}"
                for disk in machine.disks
            ),
            "networks": ", ".join(
                f"{name} {speed} Mbit/s" if speed else name for name, speed in machine.networks.items()
            ),
            "GPUs": ", ".join(device_text(gpu) for gpu in machine.gpus),
            "performance counters": _counters_text(machine.perf_event_paranoid),
        }
        for name, text in parts.items():
            yield f"  {name}: {text or 'none found'}"


def _counters_text(level: int | None) -> str:
    if level is None:
        return ""
    return "users, of their own processes" if level <= COUNTERS_LEVEL_MAX else "root"
