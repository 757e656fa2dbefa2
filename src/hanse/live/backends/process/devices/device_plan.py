"""Plan of the devices of one runner: which devices each of its nodes may assign, and which are missing.

Devices that the league file lists come first. A node that only has a number of GPUs gets so many of those
that were detected, lowest index first, in the order of the nodes. Where none was detected, GPUs are counted
and not assigned; where too few were, those that lack are withheld from the league.
"""

import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from hanse.core.config import NodeConfig
from hanse.league.config import LeagueError
from hanse.model.hardware.devices import GPU, Device
from hanse.model.resources import Resources


class DevicePlan(msgspec.Struct, frozen=True):
    """Devices of one runner."""

    by_node: Mapping[int, tuple[Device, ...]] = {}
    """Devices that each node assigns, by kind and index."""
    missing: Mapping[int, tuple[Device, ...]] = {}
    """Devices that each node has in the league file and the machine does not have now."""
    fenced: tuple[str, ...] = ()
    """Files of all devices: a task may open its own of them only."""
    warnings: tuple[str, ...] = ()

    @property
    def has_devices(self) -> bool:
        """True if anything is assigned or missing here."""
        return bool(self.by_node or self.missing)


class SharedDeviceError(LeagueError):
    """Two devices of the league file are one device of this machine."""


def plan_devices(
    nodes: tuple[NodeConfig, ...],
    gpus: tuple[Device, ...] = (),
    runner: str | None = None,
    exists: Callable[[str], bool] = lambda path: Path(path).exists(),
) -> DevicePlan:
    """Return the plan for the nodes of a runner (None: of all) on a machine with these GPUs."""
    own = {number: node for number, node in enumerate(nodes) if runner is None or node.runner == runner}
    listed = {number: _complete(node.devices, gpus) for number, node in own.items()}
    taken = dict.fromkeys(name for devices in listed.values() for each in devices for name in _names(each))
    free = [gpu for gpu in gpus if not any(name in taken for name in _names(gpu))]
    by_node: dict[int, tuple[Device, ...]] = {}
    missing: dict[int, tuple[Device, ...]] = {}
    warnings: list[str] = []
    for number, node in own.items():
        here = [device for device in listed[number] if all(map(exists, device.paths))]
        absent = [device for device in listed[number] if device not in here]
        warnings += [
            f"{device.kind} {device.index} of node {number} is withheld: "
            f"{_first_missing(device, exists)} is missing"
            for device in absent
        ]
        wanted = node.capacity.gpu if not any(device.kind == GPU for device in node.devices) else 0
        if wanted and gpus:
            found, free = free[:wanted], free[wanted:]
            here += found
            absent += [Device(index=index) for index in range(len(found), wanted)]
            if len(found) < wanted:
                warnings.append(
                    f"node {number} has {wanted} GPUs in the league file, and {len(found)} were found for it:"
                    f" the others are withheld"
                )
        elif wanted:
            warnings.append(
                f"the GPUs of node {number} are counted and not assigned: none was found on this machine"
            )
        if here:
            by_node[number] = tuple(sorted(here, key=lambda device: (device.kind, device.index)))
        if absent:
            missing[number] = tuple(absent)
    _check_distinct(by_node)
    return DevicePlan(by_node, missing, _fenced(own.values(), by_node, gpus), tuple(warnings))


def amount_of(devices: Iterable[Device]) -> Resources:
    """Return devices as an amount of resources."""
    numbers: dict[str, int] = {}
    for device in devices:
        numbers[device.kind] = numbers.get(device.kind, 0) + 1
    gpus = numbers.pop(GPU, 0)
    return Resources(gpu=gpus, custom=tuple(sorted(numbers.items())))


def _names(device: Device) -> tuple[str, ...]:
    return (*device.paths, device.uuid) if device.uuid else device.paths


def _complete(listed: tuple[Device, ...], gpus: tuple[Device, ...]) -> tuple[Device, ...]:
    """Add what was detected of the GPUs that are listed; what the league file says stands."""
    return tuple(_complete_gpu(device, gpus) if device.kind == GPU else device for device in listed)


def _complete_gpu(device: Device, gpus: tuple[Device, ...]) -> Device:
    for gpu in gpus:
        is_named = bool(_names(device))
        is_same = any(name in _names(gpu) for name in _names(device))
        if is_same or (not is_named and device.index == gpu.index):
            return Device(
                device.kind,
                gpu.index,
                gpu.paths,
                device.model or gpu.model,
                device.memory or gpu.memory,
                device.uuid or gpu.uuid,
                device.vendor or gpu.vendor,
            )
    return device


def _first_missing(device: Device, exists: Callable[[str], bool]) -> str:
    return next(path for path in device.paths if not exists(path))


def _fenced(
    nodes: Iterable[NodeConfig], by_node: Mapping[int, tuple[Device, ...]], gpus: tuple[Device, ...]
) -> tuple[str, ...]:
    """Return the files of devices that tasks must not open unless they have them. A runner that has no GPU
    for the league leaves those of the machine alone."""
    others = gpus if any(node.capacity.gpu for node in nodes) else ()
    devices = [*(device for devices in by_node.values() for device in devices), *others]
    return tuple(dict.fromkeys(path for device in devices for path in device.paths))


def _check_distinct(by_node: Mapping[int, tuple[Device, ...]]) -> None:
    """Raise ``SharedDeviceError`` if two devices are one: two names of a file, or two files of a device."""
    owners: dict[object, str] = {}
    for number, devices in by_node.items():
        for device in devices:
            name = f"{device.kind} {device.index} of node {number}"
            for path in device.paths:
                for identity in _real_identities(Path(path)):
                    first = owners.setdefault(identity, name)
                    if first != name:
                        raise SharedDeviceError(
                            f"{first} and {name} are the same device ({path}): list it once in the "
                            f"league file"
                        )


def _real_identities(path: Path) -> list[object]:
    try:
        status = path.stat()
    except OSError:
        return [str(path)]
    kind = stat.S_IFMT(status.st_mode)
    is_device = kind in (stat.S_IFCHR, stat.S_IFBLK)
    return [(status.st_dev, status.st_ino), *([(kind, status.st_rdev, "device")] if is_device else [])]
