"""The process backend passes the common suite, with every way of limiting that this machine has."""

import os
from pathlib import Path

import pytest

from hanse.core.config import NodeConfig
from hanse.league.config import UserRange
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.sandbox import namespace_problem
from tests.live.backends.conformance import BackendConformance
from tests.live.backends.desk import Desk, read_until
from tests.live.backends.places import NODES, STUBBORN, shell


class TestProcessConformance(BackendConformance):
    def make(self, place: Path, nodes: tuple[NodeConfig, ...] = NODES) -> ProcessBackend:
        return ProcessBackend(place, "north", nodes)

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


class TestProcessConformanceWithRlimits(TestProcessConformance):
    """Where no control group can be written."""

    def make(self, place: Path, nodes: tuple[NodeConfig, ...] = NODES) -> ProcessBackend:
        backend = ProcessBackend(place, "north", nodes, driver="rlimit")
        assert backend.driver == "rlimit"
        return backend


class TestProcessConformanceAsTheDaemonsUser(TestProcessConformance):
    """Tasks that are whoever the daemon is."""

    def make(self, place: Path, nodes: tuple[NodeConfig, ...] = NODES) -> ProcessBackend:
        return ProcessBackend(place, "north", nodes, user=None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemons become somebody else")
class TestProcessConformanceWithIdsOfJobs(TestProcessConformance):
    """Each job as a user id of its own."""

    def make(self, place: Path, nodes: tuple[NodeConfig, ...] = NODES) -> ProcessBackend:
        return ProcessBackend(place, "north", nodes, user=UserRange())


@pytest.mark.skipif(namespace_problem() is not None, reason=str(namespace_problem()))
class TestProcessConformanceInNamespaces(TestProcessConformance):
    """Each task behind walls of its own."""

    def make(self, place: Path, nodes: tuple[NodeConfig, ...] = NODES) -> ProcessBackend:
        return ProcessBackend(place, "north", nodes, sandbox="namespace")


def test_a_driver_is_the_one_that_was_asked_for_by_name_or_none(place: Path) -> None:
    best = ProcessBackend(place, "north", NODES).driver
    assert ProcessBackend(place, "north", NODES, driver=best).driver == best
    if best == "v1":  # version 2 was tried first, and cannot be used here
        with pytest.raises(OSError, match="version 2"):
            ProcessBackend(place, "north", NODES, driver="v2")
