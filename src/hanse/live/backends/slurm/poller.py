"""Periodic poll of Slurm, which reports nothing unasked.

One poll is one list of partitions, one of nodes and one of the runner's jobs. While the runner has attempts,
polls follow each other at the configured interval, otherwise five times more slowly; ``poll_soon`` requests
one sooner.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from hanse.live.backends.slurm.driver import (
    SlurmAwayError,
    SlurmDriver,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmRefusedError,
)
from hanse.live.backends.slurm.job_names import Key, read_tasks

IDLE_FACTOR: Final = 5
LOOK_SECONDS_MIN: Final = 0.1
"""Time between two polls, however urgent."""
NAMES_MAX: Final = 10_000
"""Parsed names of jobs that are kept."""

log = logging.getLogger(__name__)


class Look(msgspec.Struct, frozen=True):
    """Result of one poll of Slurm."""

    at: int
    """Start of the poll: earlier submissions must be in it (CLOCK_BOOTTIME, microseconds)."""
    nodes: list[SlurmNode]
    jobs: list[SlurmJob]
    """Jobs of this runner alone, with one entry for every element of an array."""
    by_key: dict[Key, list[SlurmJob]]
    partitions: tuple[SlurmPartition, ...] = ()


class Lookout:
    """Poller that calls ``on_result`` after every poll, and ``on_unavailable`` when Slurm does not answer."""

    def __init__(
        self,
        driver: SlurmDriver,
        prefix: str,
        interval: Callable[[], float],
        seen: Callable[[Look], None],
        away: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._prefix = prefix
        self._interval = interval
        self._seen = seen
        self._away = away
        self._wanted = asyncio.Event()
        self._names: dict[str, tuple[Key, ...]] = {}

    def soon(self) -> None:
        """Poll as soon as ``POLL_SECONDS_MIN`` allows."""
        self._wanted.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self._wanted.clear()
            at = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
            look = None
            try:
                partitions = await self._driver.partitions()
                nodes = await self._driver.nodes()
                look = self._look(at, nodes, await self._driver.jobs(), tuple(partitions))
            except (SlurmAwayError, SlurmRefusedError) as error:
                self._away(str(error))
            except (ValueError, TypeError, LookupError) as error:
                # Polling must go on: without it a cluster that is withheld would stay withheld for ever.
                log.exception("Slurm's answer cannot be parsed")
                self._away(f"its answer cannot be parsed: {error!r}")
            if look is not None:
                self._seen(look)
            await asyncio.sleep(LOOK_SECONDS_MIN)
            try:
                async with asyncio.timeout(self._interval()):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    def _look(
        self, at: int, nodes: list[SlurmNode], jobs: list[SlurmJob], partitions: tuple[SlurmPartition, ...]
    ) -> Look:
        ours: list[SlurmJob] = []
        by_key: dict[Key, list[SlurmJob]] = {}
        listed: dict[int, set[int]] = {}
        for job in jobs:
            listed.setdefault(job.number, set()).add(job.element)
        for job in jobs:
            keys = self._tasks(job.name)
            if not keys:
                continue
            elements = [max(job.element, 0)]
            if job.element == -2:
                elements = [each for each in range(len(keys)) if each not in listed[job.number]]
            for element in elements:
                if element >= len(keys):
                    continue
                one = job if job.element != -2 else msgspec.structs.replace(job, element=element)
                ours.append(one)
                by_key.setdefault(keys[element], []).append(one)
        return Look(at, nodes, ours, by_key, partitions)

    def _tasks(self, name: str) -> tuple[Key, ...]:
        """Return the tasks of a job of this runner; none for a job of others."""
        if not name.startswith(self._prefix):
            return ()
        keys = self._names.get(name)
        if keys is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            keys = self._names[name] = read_tasks(name.removeprefix(self._prefix)) or ()
        return keys
