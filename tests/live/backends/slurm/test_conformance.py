"""The Slurm backend passes the common suite, by commands and by REST."""

from pathlib import Path

import pytest

from hanse.core.config import NodeConfig
from hanse.live.backends.slurm.backend import SlurmBackend
from tests.live.backends.conformance import BackendConformance
from tests.live.backends.desk import Desk, read_until
from tests.live.backends.places import NODES, STUBBORN, shell
from tests.live.backends.slurm.fixture import Slurm
from tests.live.backends.slurm.places import backend_on


class TestSlurmConformanceByCommands(BackendConformance):
    driver = "cli"
    queues = True

    @pytest.fixture(autouse=True)
    def _on(self, slurm: Slurm) -> None:
        self.slurm = slurm

    def make(self, place: Path, nodes: tuple[NodeConfig, ...] = NODES) -> SlurmBackend:
        return backend_on(self.slurm, place, nodes, self.driver)

    def exits(self, code: int) -> bytes:
        return shell(f"exit {code}")

    def lasts(self, seconds: float) -> bytes:
        return shell(f"exec sleep {seconds}")

    def stubborn(self) -> bytes:
        return STUBBORN

    def prints(self, text: str) -> bytes:
        return shell('printf %s "$TEXT"', TEXT=text)

    async def is_set(self, desk: Desk, index: int = 0) -> None:
        await read_until(desk.backend, b"set", index)


class TestSlurmConformanceByRest(TestSlurmConformanceByCommands):
    driver = "rest"
