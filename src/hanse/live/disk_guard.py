"""Guard of a warden's disk: drains the nodes when the disk is nearly full, and opens them again."""

import asyncio
from typing import Final

from hanse.core.warden.warden import Warden
from hanse.live.disk_space import DiskSpaceCheck
from hanse.live.shell import JournalledShell
from hanse.model.drains import Drain
from hanse.model.events import DrainRequested

CHECK_SECONDS: Final = 1.0
DRAIN_REASON: Final = "the disk of the warden is nearly full"
"""Reason in the record of a drain; a warden knows its own drains by it."""


class DiskGuard:
    """Drains because of a full disk. It leaves drains that an operator has requested."""

    def __init__(self, machine: Warden, shell: JournalledShell, space: DiskSpaceCheck) -> None:
        self._machine = machine
        self._shell = shell
        self._space = space

    async def run(self) -> None:
        """Check the disk for as long as the daemon lives."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self._shell.is_full:
                self.check()

    def check(self) -> None:
        """Drain open nodes if the disk is nearly full, else end the guard's own drains."""
        own = [drain for drain in self._machine.drains.active if self._is_own(drain)]
        is_low = self._space.is_low()
        if not is_low and not own:
            return
        every = range(len(self._machine.states()))
        if is_low:
            drained = {node for drain in self._machine.drains.active for node in drain.nodes or every}
            self._request_drain(tuple(node for node in every if node not in drained), True)
        else:
            self._request_drain(tuple(node for drain in own for node in drain.nodes or every), False)

    def _is_own(self, drain: Drain) -> bool:
        return drain.requested_by == self._machine.config.name and drain.reason == DRAIN_REASON

    def _request_drain(self, nodes: tuple[int, ...], drain: bool) -> None:
        if nodes:
            name = self._machine.config.name
            self._shell.handle(DrainRequested(self._shell.clock.now(), nodes, drain, name, DRAIN_REASON))
