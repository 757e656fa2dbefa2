"""Devices of one runner and the attempts that have them: no device has two.

The daemon assigns devices before it asks the launcher to start an attempt, the lowest free index first. The
launcher's record of the attempt, which exists before the task does, contains their names, so another daemon
finds them. A device is free again when none of the attempt's processes is left. Of an attempt with processes
that cannot be killed the devices stay taken and are withheld from the league.
"""

import logging
from collections.abc import Callable

from hanse.live.backends.process.devices.device_plan import DevicePlan, amount_of
from hanse.live.backends.process.kept_outputs import AttemptId
from hanse.model.hardware.devices import GPU, Device
from hanse.model.ids import TaskId, task_text
from hanse.model.resources import Resources

log = logging.getLogger(__name__)


class DeviceTable:
    """Devices of one runner. ``on_withheld`` hears the amount of a node that the league may not use, whenever
    that changes."""

    def __init__(self, plan: DevicePlan, on_withheld: Callable[[int, Resources], None]) -> None:
        self._plan = plan
        self._on_withheld = on_withheld
        self._holders: dict[str, AttemptId] = {}
        """Attempt that has a device, by the device's identity."""
        self._names: dict[AttemptId, tuple[str, ...]] = {}
        """Identities of the devices of each attempt that has any."""
        self._lost: dict[str, None] = {}
        """Devices of attempts that cannot be killed."""

    def assign(self, key: AttemptId, node: int, size: Resources) -> tuple[Device, ...] | None:
        """Return the devices for an attempt of this size, now its own; None: too few are free. Kinds without
        devices on the node are counted by the league alone."""
        devices = self._plan.by_node.get(node, ())
        if not devices:
            return ()
        wanted = {GPU: size.gpu, **dict(size.custom)}
        chosen: list[Device] = []
        for kind in dict.fromkeys(device.kind for device in devices):
            count = wanted.get(kind, 0)
            free = [
                device
                for device in devices
                if device.kind == kind and device.identity(node) not in self._holders
            ]
            if len(free) < count:
                return None
            chosen += free[:count]
        if chosen:
            self.restore(key, tuple(device.identity(node) for device in chosen))
        return tuple(chosen)

    def restore(self, key: AttemptId, names: tuple[str, ...]) -> None:
        """Note the devices of an attempt that was found alive, by their identities."""
        if not names:
            return
        self._names[key] = names
        for name in names:
            other = self._holders.setdefault(name, key)
            assert other == key, f"{name} is assigned to {other} and {key}"

    def names_of(self, key: AttemptId) -> tuple[str, ...]:
        """Return the identities of the devices of an attempt."""
        return self._names.get(key, ())

    def release(self, key: AttemptId, is_gone: bool = True) -> None:
        """Free the devices of an attempt that has ended; keep them taken if not ``is_gone``: some of its
        processes could not be killed."""
        names = self._names.pop(key, ())
        if is_gone:
            for name in names:
                del self._holders[name]
        elif names:
            log.warning(
                "%s attempt %d cannot be killed: its devices (%s) are withheld until this daemon restarts",
                task_text(key[0]),
                key[1],
                ", ".join(names),
            )
            self._lost.update(dict.fromkeys(names))
            self.report_withheld()

    def report_withheld(self) -> None:
        """Tell the amounts that the league may not use."""
        for node in dict.fromkeys((*self._plan.by_node, *self._plan.missing)):
            devices = self._plan.by_node.get(node, ())
            lost = [device for device in devices if device.identity(node) in self._lost]
            amount = amount_of((*lost, *self._plan.missing.get(node, ())))
            if amount != Resources():
                self._on_withheld(node, amount)

    def uses(self, node: int) -> tuple[tuple[Device, TaskId | None], ...]:
        """Return the devices of a node, each with the task that has it."""
        return tuple(
            (device, holder[0] if (holder := self._holders.get(device.identity(node))) else None)
            for device in self._plan.by_node.get(node, ())
        )
