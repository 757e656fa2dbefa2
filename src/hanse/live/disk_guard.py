"""A warden whose disk is nearly full closes its nodes to new work, and opens them when there is room."""

import asyncio
from typing import Final

from hanse.core.warden.warden import Warden
from hanse.live.disk_space import DiskSpace
from hanse.live.shell import JournalledShell
from hanse.model.drains import Drain
from hanse.model.events import DrainRequested

LOOK_SECONDS: Final = 1.0
REASON: Final = "the disk of the warden is nearly full"
"""In the record of a drain, by which a warden knows its own."""


class DiskGuard:
    """Drains for want of room. What an operator has drained stays the operator's."""

    def __init__(self, machine: Warden, shell: JournalledShell, space: DiskSpace) -> None:
        self._machine = machine
        self._shell = shell
        self._space = space

    async def keep(self) -> None:
        """Look at the disk for as long as the daemon lives."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._shell.full:
                self.look()

    def look(self) -> None:
        """Close what is open, or open what was closed here."""
        own = [drain for drain in self._machine.drains.active if self._is_own(drain)]
        is_low = self._space.is_low()
        if not is_low and not own:
            return
        every = range(len(self._machine.states()))
        if is_low:
            drained = {node for drain in self._machine.drains.active for node in drain.nodes or every}
            self._ask(tuple(node for node in every if node not in drained), True)
        else:
            self._ask(tuple(node for drain in own for node in drain.nodes or every), False)

    def _is_own(self, drain: Drain) -> bool:
        return drain.requested_by == self._machine.config.name and drain.reason == REASON

    def _ask(self, nodes: tuple[int, ...], drain: bool) -> None:
        if nodes:
            name = self._machine.config.name
            self._shell.take(DrainRequested(self._shell.clock.now(), nodes, drain, name, REASON))
