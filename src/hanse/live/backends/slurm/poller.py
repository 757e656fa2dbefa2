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
    SlurmDriver,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmRefusedError,
    SlurmUnavailableError,
)
from hanse.live.backends.slurm.job_names import AttemptId, parse_tasks

IDLE_FACTOR: Final = 5
POLL_SECONDS_MIN: Final = 0.1
"""Time between two polls, however urgent."""
NAMES_MAX: Final = 10_000
"""Parsed names of jobs that are kept."""

log = logging.getLogger(__name__)


class PollResult(msgspec.Struct, frozen=True):
    """Result of one poll of Slurm."""

    at: int
    """Start of the poll: earlier submissions must be in it (CLOCK_BOOTTIME, microseconds)."""
    nodes: list[SlurmNode]
    jobs: list[SlurmJob]
    """Jobs of this runner alone, with one entry for every element of an array."""
    by_key: dict[AttemptId, list[SlurmJob]]
    partitions: tuple[SlurmPartition, ...] = ()


class SlurmPoller:
    """Poller that calls ``on_result`` after every poll, and ``on_unavailable`` when Slurm does not answer."""

    def __init__(
        self,
        driver: SlurmDriver,
        prefix: str,
        interval: Callable[[], float],
        on_result: Callable[[PollResult], None],
        on_unavailable: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._prefix = prefix
        self._interval = interval
        self._on_result = on_result
        self._on_unavailable = on_unavailable
        self._wanted = asyncio.Event()
        self._names: dict[str, tuple[AttemptId, ...]] = {}

    def poll_soon(self) -> None:
        """Poll as soon as ``POLL_SECONDS_MIN`` allows."""
        self._wanted.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self._wanted.clear()
            at = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
            result = None
            try:
                partitions = await self._driver.partitions()
                nodes = await self._driver.nodes()
                result = self._build_result(at, nodes, await self._driver.jobs(), tuple(partitions))
            except (SlurmUnavailableError, SlurmRefusedError) as error:
                self._on_unavailable(str(error))
            except (ValueError, TypeError, LookupError) as error:
                # Polling must go on: without it a cluster that is withheld would stay withheld for ever.
                log.exception("Slurm's answer cannot be parsed")
                self._on_unavailable(f"its answer cannot be parsed: {error!r}")
            if result is not None:
                self._on_result(result)
            await asyncio.sleep(POLL_SECONDS_MIN)
            try:
                async with asyncio.timeout(self._interval()):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    def _build_result(
        self, at: int, nodes: list[SlurmNode], jobs: list[SlurmJob], partitions: tuple[SlurmPartition, ...]
    ) -> PollResult:
        own_jobs: list[SlurmJob] = []
        by_key: dict[AttemptId, list[SlurmJob]] = {}
        listed: dict[int, set[int]] = {}
        for job in jobs:
            listed.setdefault(job.number, set()).add(job.element)
        for job in jobs:
            keys = self._read_name(job.name)
            if not keys:
                continue
            elements = [max(job.element, 0)]
            if job.element == -2:
                elements = [index for index in range(len(keys)) if index not in listed[job.number]]
            for element in elements:
                if element >= len(keys):
                    continue
                element_job = job if job.element != -2 else msgspec.structs.replace(job, element=element)
                own_jobs.append(element_job)
                by_key.setdefault(keys[element], []).append(element_job)
        return PollResult(at, nodes, own_jobs, by_key, partitions)

    def _read_name(self, name: str) -> tuple[AttemptId, ...]:
        """Return the tasks of a job of this runner; none for a job of others."""
        if not name.startswith(self._prefix):
            return ()
        keys = self._names.get(name)
        if keys is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            keys = self._names[name] = parse_tasks(name.removeprefix(self._prefix)) or ()
        return keys
