"""Looks at Slurm again and again: Slurm tells nothing by itself.

One look is one list of partitions, one of nodes and one of our jobs. While something of ours is there looks
follow each other at the interval that was set, otherwise five times more slowly; whoever waits for an answer
asks for one sooner.
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
"""Between two looks, however urgent."""
NAMES_MAX: Final = 10_000
"""Names of jobs that are kept as they were read."""

log = logging.getLogger(__name__)


class Look(msgspec.Struct, frozen=True):
    """What Slurm said at once."""

    at: int
    """When it was asked: what was submitted before must be in it (CLOCK_BOOTTIME, microseconds)."""
    nodes: list[SlurmNode]
    jobs: list[SlurmJob]
    """Of our instance alone, every element of an array by itself."""
    by_key: dict[Key, list[SlurmJob]]
    partitions: tuple[SlurmPartition, ...] = ()


class Lookout:
    """Calls ``seen`` with every look, and ``away`` when Slurm does not answer."""

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
        """Look as soon as it is decent."""
        self._wanted.set()

    async def run(self) -> None:
        """Look, and look again."""
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
                # Not the end of looking: without it a cluster that is withheld would stay so for ever.
                log.exception("what Slurm says is not understood")
                self._away(f"what it says is not understood: {error!r}")
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
        """The tasks of a job of ours; none for somebody else's."""
        if not name.startswith(self._prefix):
            return ()
        keys = self._names.get(name)
        if keys is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            keys = self._names[name] = read_tasks(name.removeprefix(self._prefix)) or ()
        return keys
