"""What the tests of the Slurm backend share: clusters, directories, payloads."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hanse.core.config import NodeConfig
from hanse.live.backends.slurm.backend import SlurmBackend
from hanse.live.backends.slurm.capacity import NODE_ATTRIBUTE
from hanse.live.backends.slurm.driver import SlurmJob
from hanse.live.backends.slurm.factory import make_slurm_backend
from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.model.resources import Resources
from tests.live.backends.desk import WAIT_SECONDS_MAX
from tests.live.backends.places import shell
from tests.live.backends.slurm.fixture import NODE_CPUS, NODE_MEMORY_MIB, Slurm

CLUSTER = "north"
POLL = 200_000
"""Microseconds between looks at Slurm: tests are in a hurry."""

ALL = Resources(NODE_CPUS * 1_000, NODE_MEMORY_MIB << 20)
"""All of a node."""


@contextmanager
def place_on(slurm: Slurm) -> Iterator[Path]:
    """A directory that jobs, who are nobody, may enter. Afterwards nothing of ours is left in Slurm, and all
    of it runs."""
    place = Path(tempfile.mkdtemp(prefix="hanse-tasks-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        names = our_names(slurm)
        for name in dict.fromkeys(names):
            slurm.tried("scancel", "--name", name)
        slurm.restore()
        shutil.rmtree(place)


def our_names(slurm: Slurm) -> list[str]:
    """The names of our jobs that are not over."""
    lines = slurm.tried("squeue", "-h", "-o", "%j").stdout.split()
    return [line for line in lines if line.startswith("hanse:")]


def settings_of(slurm: Slurm, driver: str = "cli", **changes: object) -> SlurmSettings:
    """How to reach this cluster."""
    if driver == "cli":
        chosen = SlurmSettings(conf=str(slurm.conf), poll=POLL)
    else:
        token = slurm.base / "token"
        if not token.exists():
            slurm.start_rest()
            token.write_text(slurm.token(), encoding="ascii")
        chosen = SlurmSettings(
            driver="rest", url=f"unix:{slurm.rest_socket}", token_file=str(token), poll=POLL
        )
    return msgspec.structs.replace(chosen, **changes)


def backend_on(
    slurm: Slurm, place: Path, nodes: tuple[NodeConfig, ...] = (), driver: str = "cli", **changes: object
) -> SlurmBackend:
    """A backend over this cluster."""
    return make_slurm_backend(place, CLUSTER, nodes, settings_of(slurm, driver, **changes), "")


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for the outside world, of which there is nothing to await."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.05)
    assert condition(), what


class Log:
    """A file in which tasks say that they live; see ``execution_log``."""

    def __init__(self, place: Path) -> None:
        self.path = place / "log"
        self.path.touch()
        self.path.chmod(0o666)

    def task(self, last: str = "exit 0", seconds: float = 0.0) -> bytes:
        """A task that says ``begin``, waits, says ``end``, and does one thing more."""
        who = "$HANSE_TASK $HANSE_ATTEMPT"
        pause = f"sleep {seconds}; " if seconds else ""
        return shell(f'echo "begin {who}" >> {self.path}; {pause}echo "end {who}" >> {self.path}; {last}')

    def said(self, word: str, index: int = 0) -> int:
        """How often a task has said this."""
        lines = self.path.read_text(encoding="ascii").splitlines()
        return sum(line.split()[:2] == [word, str(index)] for line in lines)

    async def begun(self, index: int = 0) -> None:
        """Wait until a task has begun."""
        await until(lambda: self.said("begin", index) > 0, f"task {index} begins")


def nodes_of(slurm: Slurm) -> tuple[NodeConfig, ...]:
    """The cluster's nodes, as plain as they come."""
    return tuple(NodeConfig(ALL, ((NODE_ATTRIBUTE, name),)) for name in slurm.nodes)


async def listed(slurm: Slurm, count: int = 1) -> None:
    await until(lambda: len(our_names(slurm)) >= count, f"Slurm has {count} jobs")


def our_jobs(slurm: Slurm) -> list[str]:
    """The numbers of the jobs of one task that are not over, the first one first. A controller that answers a
    submission too late has it repeated: then there are two, of which one runs."""
    lines = [line.split() for line in slurm.run("squeue", "-h", "-o", "%i %j").splitlines()]
    numbers = [number for number, name in lines if name.startswith("hanse:")]
    assert len({name for _, name in lines if name.startswith("hanse:")}) == 1, lines
    return sorted(numbers, key=int)


def job_of_one_task(state: str, reason: str = "") -> SlurmJob:
    """A job as Slurm lists it."""
    return SlurmJob(1, -1, 1, "hanse:north:00:1-7.0#1", state, "", reason=reason)
