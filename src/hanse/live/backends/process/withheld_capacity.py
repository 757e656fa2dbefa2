"""Capacity that a runner withholds for two reasons: a full disk (all of a node), and devices that cannot be
used."""

from hanse.live.backends.interface import BackendListener
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd
from hanse.model.resources import Resources

_NOTHING = Resources()


class WithheldCapacity:
    """Listener between the disk's checks and the runner: a node with room on the disk still lacks the devices
    that are withheld."""

    def __init__(self) -> None:
        self.listener: BackendListener | None = None
        """The runner; None: it does not listen yet."""
        self._by_disk: dict[int, Resources] = {}
        self._by_devices: dict[int, Resources] = {}

    def on_attempt_started(self, task: TaskId, attempt: int) -> None:
        """Pass it on."""
        assert self.listener is not None, "news before reconcile"
        self.listener.on_attempt_started(task, attempt)

    def on_attempt_ended(self, end: AttemptEnd) -> None:
        """Pass it on."""
        assert self.listener is not None, "news before reconcile"
        self.listener.on_attempt_ended(end)

    def on_capacity_withheld(self, node: int, amount: Resources) -> None:
        """Note what the disk withholds of a node: all, or nothing."""
        self._by_disk[node] = amount
        self._report(node)

    def on_devices_withheld(self, node: int, amount: Resources) -> None:
        """Note the devices of a node that cannot be used."""
        if self._by_devices.get(node) != amount:
            self._by_devices[node] = amount
            self._report(node)

    def _report(self, node: int) -> None:
        assert self.listener is not None, "news before reconcile"
        by_disk = self._by_disk.get(node, _NOTHING)
        amount = by_disk if by_disk != _NOTHING else self._by_devices.get(node, _NOTHING)
        self.listener.on_capacity_withheld(node, amount)
