"""Arrays by commands: submitted as one, cancelled one by one. By REST there are none."""

import asyncio
import time
from collections.abc import Iterator

import msgspec
import pytest

from hanse.live.backends.process.launch_requests import find_task_user
from hanse.live.backends.slurm.cli import CliDriver
from hanse.live.backends.slurm.driver import SlurmDriver, SlurmJob, SlurmSubmission
from tests.live.backends.slurm.fixture import NODE_CPUS, Slurm
from tests.live.backends.slurm.places import settings_of, until

NAME = "hanse:north:abc:1-0.0..5#1"
COUNT = 6
ARRAY = SlurmSubmission(NAME, "six", "#!/bin/sh\nexec sleep 600\n", COUNT, 1, 16, (), "")


@pytest.fixture
def driver(slurm: Slurm) -> Iterator[SlurmDriver]:
    """The way to talk to it; afterwards nothing is left there."""
    yield CliDriver(settings_of(slurm, "cli"), find_task_user("nobody"))
    slurm.tried("scancel", "--name", NAME)
    slurm.tried("scancel", "--name", "other")
    slurm.wait_ready()


def left(slurm: Slurm, number: int, state: str) -> list[int]:
    """The elements of an array that are in this state."""
    listed = slurm.run("squeue", "-h", "-r", "-j", str(number), "-o", "%K %T").splitlines()
    return sorted(int(line.split()[0]) for line in listed if line.endswith(f" {state}"))


async def settled(slurm: Slurm, number: int, state: str, *elements: int) -> None:
    """Wait until these elements, and no others, are in a state."""
    await until(lambda: left(slurm, number, state) == list(elements), f"{elements} are {state}")


@pytest.mark.parametrize("waiting", [False, True])
def test_elements_are_cancelled_one_by_one(slurm: Slurm, driver: SlurmDriver, waiting: bool) -> None:
    """Waiting or running; also the one that has the number of the whole array; and never what has another
    name by now."""

    async def story() -> None:
        if waiting:
            for node in slurm.nodes:
                slurm.submit_foreign("sleep 600", f"-c{NODE_CPUS}", f"-w{node}", "-Jother")
            await until(lambda: set(slurm.states().values()) == {"alloc"}, "others have all")
        number = await driver.submit(ARRAY)
        state = "PENDING" if waiting else "RUNNING"
        await settled(slurm, number, state, *range(COUNT))
        listed = [SlurmJob(number, index, 0, NAME, state, "") for index in range(COUNT)]
        await driver.cancel([msgspec.structs.replace(one, name=f"{NAME}2") for one in listed])
        await driver.cancel([listed[1], listed[5]])
        await settled(slurm, number, state, 0, 2, 3, 4)
        assert left(slurm, number, state) == [0, 2, 3, 4]
        await driver.cancel([listed[index] for index in (0, 2, 3, 4)])
        await settled(slurm, number, state)
        assert left(slurm, number, state) == []

    asyncio.run(story())


def test_an_array_is_listed_by_elements(slurm: Slurm, driver: SlurmDriver) -> None:
    async def story() -> None:
        before = int(time.time())
        number = await driver.submit(ARRAY)
        await settled(slurm, number, "RUNNING", *range(COUNT))
        listed = [job for job in await driver.jobs() if job.number == number]
        assert sorted(job.element for job in listed) == list(range(COUNT))
        assert {job.name for job in listed} == {NAME}
        assert all(job.holds_resources and job.cpus == 1 for job in listed)
        assert all(before <= job.launched_at <= time.time() for job in listed)

    asyncio.run(story())
