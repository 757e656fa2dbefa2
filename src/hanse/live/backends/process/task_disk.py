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
from hanse.live.backends.interface import Reports
from hanse.live.backends.process.disk_quota import LOOK_SECONDS, Crowding, DiskWatch, Offender
from hanse.live.backends.process.output_files import KeptOutputs, Key
from hanse.live.disk_space import Room
from hanse.model.resources import Resources

KEPT_BYTES_MAX: Final = 1 << 30
"""Output of forgotten attempts that is kept, oldest dropped first."""
KEPT_DISK_SHARE: Final = 8
"""At most one part in so many of the disk: several runners, and journals, may share a small one."""
LOOK_IDLE_SECONDS: Final = 10.0
"""Seconds between two looks while no task runs and the disk has plenty of room: a look costs a thread's wake-up."""
PLENTY: Final = 8.0
"""Free room, as a multiple of that below which nothing is started, with which nobody need hurry."""
KEPT_COUNT_MAX: Final = 10_000
"""Forgotten attempts whose output is kept; also the number of remembered dropped outputs."""
CLOSED: Final = "the disk of its tasks is nearly full"
"""Reason of a withheld node, as a clause."""
_NOTHING: Final = Resources()

log = logging.getLogger(__name__)


class Attempts(Protocol):
    """The operations of a backend on its attempts that the disk needs."""

    def running(self) -> list[Key]:
        """Return the attempts that have started and not ended."""
        ...

    def ended(self) -> dict[Key, int]:
        """Return the attempts that have ended and are not forgotten, oldest first, with output bytes."""
        ...

    def drop(self, key: Key) -> None:
        """Remove an output."""
        ...

    def judge(self, key: Key, why: str) -> None:
        """End an attempt as failed."""
        ...


class TaskDisk:
    """Manager of disk pressure. ``monitor`` measures; ``kept_outputs`` is the output that may be dropped."""

    def __init__(
        self, watch: DiskWatch, kept: KeptOutputs, nodes: tuple[NodeConfig, ...], attempts: Attempts
    ) -> None:
        self._watch = watch
        self._kept = kept
        self._nodes = nodes
        self._attempts = attempts
        self._closed = False

    @property
    def room(self) -> Room | None:
        """The disk as of the latest measurement; None: there was none."""
        return self._watch.room

    def closures(self) -> Mapping[int, str]:
        """Return the nodes that the league may not use; see ``interface.Backend.closed_nodes``."""
        return dict.fromkeys(range(len(self._nodes)), CLOSED) if self._closed else {}

    async def keep(self, directory: Path, reports: Reports) -> None:
        """Check the disk for as long as the daemon lives."""
        idle_seconds = LOOK_IDLE_SECONDS
        while True:
            if idle_seconds >= LOOK_IDLE_SECONDS or self._is_urgent():
                idle_seconds = 0.0
                try:
                    await self._look(reports)
                except OSError as error:
                    log.warning("the disk usage of the tasks in %s is unknown: %s", directory, error)
            await asyncio.sleep(LOOK_SECONDS)
            idle_seconds += LOOK_SECONDS

    def _is_urgent(self) -> bool:
        """Return whether the disk may fill before the next look of an idle runner."""
        room = self._watch.room
        return room is None or room.ratio < PLENTY or bool(self._attempts.running())

    async def _look(self, reports: Reports) -> None:
        missing = await asyncio.to_thread(self._watch.look)
        room = self._watch.room
        assert room is not None
        self._tell(reports, room.low)
        for key in self._kept.bound(room.bytes_total // KEPT_DISK_SHARE):
            self._attempts.drop(key)
        missing = self._relieve(missing)
        running = self._attempts.running()
        if running:
            for offender in await asyncio.to_thread(self._watch.offenders, running, missing):
                self._end(offender)

    def _tell(self, reports: Reports, low: bool) -> None:
        """Withhold all nodes while there is no space to start anything, and only then."""
        if low is not self._closed:
            self._closed = low
            log.warning("%s: %s", CLOSED, "nothing is started here" if low else "space is free again")
            for number, node in enumerate(self._nodes):
                reports.withheld(number, node.capacity if low else _NOTHING)

    def _relieve(self, missing: Crowding) -> Crowding:
        """Drop as much output of ended attempts as is short; return the remaining shortage."""
        if not any(missing):
            return missing
        dropped = self._kept.relieve(missing.bytes, missing.files)
        for key, size in self._attempts.ended().items():
            if size and (missing.bytes > sum(dropped.values()) or missing.files > len(dropped)):
                self._kept.note_dropped(key)
                dropped[key] = size
        for key in dropped:
            self._attempts.drop(key)
        if dropped:
            log.warning("the disk is nearly full: removed the output of %d ended attempts", len(dropped))
        return Crowding(max(missing.bytes - sum(dropped.values()), 0), max(missing.files - len(dropped), 0))

    def _end(self, offender: Offender) -> None:
        self._attempts.judge(*offender)
