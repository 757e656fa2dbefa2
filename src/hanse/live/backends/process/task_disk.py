"""The disk under a runner's tasks, kept from being full: old output goes first, then whoever has most, and
while it is nearly full nothing is started.

All of this is done by the daemon, once a second: while it is halted or dead nobody looks.
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
"""And one part in so many of the disk at most: several runners, and journals, may share a small one."""
LOOK_IDLE_SECONDS: Final = 10.0
"""Seconds between two looks while no task runs and the disk has plenty of room: a look costs a thread's wake-up."""
PLENTY: Final = 8.0
"""Free room, as a multiple of that below which nothing is started, with which nobody need hurry."""
KEPT_COUNT_MAX: Final = 10_000
"""Forgotten attempts whose output is kept; and as many names of those whose output was dropped."""
CLOSED: Final = "the disk of its tasks is nearly full"
"""Why a node is withheld, in a clause."""
_NOTHING: Final = Resources()

log = logging.getLogger(__name__)


class Attempts(Protocol):
    """What a backend knows of its attempts, and does to them."""

    def running(self) -> list[Key]:
        """Those that have started and not ended."""
        ...

    def ended(self) -> dict[Key, int]:
        """Those that have ended and are not forgotten, the oldest first, with the bytes of their output."""
        ...

    def drop(self, key: Key) -> None:
        """Remove an output."""
        ...

    def judge(self, key: Key, why: str) -> None:
        """End an attempt, which has failed."""
        ...


class TaskDisk:
    """Looks at the disk, and acts on what it sees. ``watch`` measures; ``kept`` is the output that may go."""

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
        """As of the latest look; None: there was none."""
        return self._watch.room

    def closures(self) -> Mapping[int, str]:
        """Why nothing of a node is for the league; see ``interface.Backend.closures``."""
        return dict.fromkeys(range(len(self._nodes)), CLOSED) if self._closed else {}

    async def keep(self, directory: Path, reports: Reports) -> None:
        """Look at the disk for as long as the daemon lives."""
        idle_seconds = LOOK_IDLE_SECONDS
        while True:
            if idle_seconds >= LOOK_IDLE_SECONDS or self._is_urgent():
                idle_seconds = 0.0
                try:
                    await self._look(reports)
                except OSError as error:
                    log.warning("the room that tasks take in %s is not known: %s", directory, error)
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
        """Withhold all nodes while there is no room to start anything, and only then."""
        if low is not self._closed:
            self._closed = low
            log.warning("%s: %s", CLOSED, "nothing is started here" if low else "no longer so")
            for number, node in enumerate(self._nodes):
                reports.withheld(number, node.capacity if low else _NOTHING)

    def _relieve(self, missing: Crowding) -> Crowding:
        """Drop as much output of ended attempts as is missing; what is missing then."""
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
            log.warning("the disk is nearly full: dropped the output of %d ended attempts", len(dropped))
        return Crowding(max(missing.bytes - sum(dropped.values()), 0), max(missing.files - len(dropped), 0))

    def _end(self, offender: Offender) -> None:
        self._attempts.judge(*offender)
