"""Protection of a runner's disk: old output goes first, then the largest task, and a nearly full disk stops
all starts.

The daemon does all of this, once a second: a halted or dead daemon does not.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from hanse.core.config import NodeConfig
from hanse.live.backends.interface import BackendListener
from hanse.live.backends.process.disk_monitor import MEASURE_SECONDS, DiskMonitor, DiskShortage, Eviction
from hanse.live.backends.process.kept_outputs import AttemptId, KeptOutputs
from hanse.live.disk_space import FilesystemSpace
from hanse.model.resources import Resources

KEPT_BYTES_MAX: Final = 1 << 30
"""Output of forgotten attempts that is kept, oldest dropped first."""
KEPT_DISK_SHARE: Final = 8
"""At most one part in so many of the disk: several runners, and journals, may share a small one."""
LOOK_IDLE_SECONDS: Final = 10.0
"""Seconds between two checks while no task runs and the disk has plenty of room: a check wakes a thread."""
PLENTY: Final = 8.0
"""Free room, as a multiple of that below which nothing is started, with which nobody need hurry."""
KEPT_COUNT_MAX: Final = 10_000
"""Forgotten attempts whose output is kept; also the number of remembered dropped outputs."""
CLOSED_REASON: Final = "the disk of its tasks is nearly full"
"""Reason of a withheld node, as a clause."""
_NOTHING: Final = Resources()

log = logging.getLogger(__name__)


class AttemptControl(Protocol):
    """The operations of a backend on its attempts that the disk needs."""

    def running_attempts(self) -> list[AttemptId]:
        """Return the attempts that have started and not ended."""
        ...

    def ended_attempts(self) -> dict[AttemptId, int]:
        """Return the attempts that have ended and are not forgotten, oldest first, with output bytes."""
        ...

    def drop_output(self, key: AttemptId) -> None:
        """Remove an output."""
        ...

    def evict(self, key: AttemptId, reason: str) -> None:
        """End an attempt as failed."""
        ...


class DiskPressureManager:
    """Manager of disk pressure. ``monitor`` measures; ``kept_outputs`` is the output that may be dropped."""

    def __init__(
        self,
        monitor: DiskMonitor,
        kept_outputs: KeptOutputs,
        nodes: tuple[NodeConfig, ...],
        attempts: AttemptControl,
    ) -> None:
        self._monitor = monitor
        self._kept_outputs = kept_outputs
        self._nodes = nodes
        self._attempts = attempts
        self._closed = False

    @property
    def disk_space(self) -> FilesystemSpace | None:
        """The disk as of the latest measurement; None: there was none."""
        return self._monitor.disk_space

    def closed_nodes(self) -> Mapping[int, str]:
        """Return the nodes that the league may not use; see ``interface.Backend.closed_nodes``."""
        return dict.fromkeys(range(len(self._nodes)), CLOSED_REASON) if self._closed else {}

    async def run(self, directory: Path, listener: BackendListener) -> None:
        """Check the disk for as long as the daemon lives."""
        idle_seconds = LOOK_IDLE_SECONDS
        while True:
            if idle_seconds >= LOOK_IDLE_SECONDS or self._is_urgent():
                idle_seconds = 0.0
                try:
                    await self._check(listener)
                except OSError as error:
                    log.warning("the disk usage of the tasks in %s is unknown: %s", directory, error)
            await asyncio.sleep(MEASURE_SECONDS)
            idle_seconds += MEASURE_SECONDS

    def _is_urgent(self) -> bool:
        """Return whether the disk may fill before the next look of an idle runner."""
        room = self._monitor.disk_space
        return room is None or room.ratio < PLENTY or bool(self._attempts.running_attempts())

    async def _check(self, listener: BackendListener) -> None:
        shortage = await asyncio.to_thread(self._monitor.measure_shortage)
        space = self._monitor.disk_space
        assert space is not None
        self._set_closed(listener, space.is_low)
        for key in self._kept_outputs.set_bytes_max(space.bytes_total // KEPT_DISK_SHARE):
            self._attempts.drop_output(key)
        shortage = self._free_space(shortage)
        running = self._attempts.running_attempts()
        if running:
            for eviction in await asyncio.to_thread(self._monitor.find_evictions, running, shortage):
                self._evict(eviction)

    def _set_closed(self, listener: BackendListener, low: bool) -> None:
        """Withhold all nodes while there is no space to start anything, and only then."""
        if low is not self._closed:
            self._closed = low
            log.warning("%s: %s", CLOSED_REASON, "nothing is started here" if low else "space is free again")
            for number, node in enumerate(self._nodes):
                listener.on_capacity_withheld(number, node.capacity if low else _NOTHING)

    def _free_space(self, shortage: DiskShortage) -> DiskShortage:
        """Drop as much output of ended attempts as is short; return the remaining shortage."""
        if not any(shortage):
            return shortage
        dropped = self._kept_outputs.free_space(shortage.bytes, shortage.files)
        for key, size in self._attempts.ended_attempts().items():
            if size and (shortage.bytes > sum(dropped.values()) or shortage.files > len(dropped)):
                self._kept_outputs.note_dropped(key)
                dropped[key] = size
        for key in dropped:
            self._attempts.drop_output(key)
        if dropped:
            log.warning("the disk is nearly full: removed the output of %d ended attempts", len(dropped))
        return DiskShortage(
            max(shortage.bytes - sum(dropped.values()), 0), max(shortage.files - len(dropped), 0)
        )

    def _evict(self, eviction: Eviction) -> None:
        self._attempts.evict(*eviction)
