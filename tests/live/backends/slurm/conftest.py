"""One real Slurm cluster for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.backends.slurm.fixture import Slurm, missing, slurm_clusters
from tests.live.backends.slurm.places import place_on


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A cluster of three nodes."""
    if why := missing():
        pytest.skip(why)
    with slurm_clusters("baltic") as (cluster,):
        yield cluster


@pytest.fixture
def place(slurm: Slurm) -> Iterator[Path]:
    """A directory for tasks on that cluster."""
    with place_on(slurm) as directory:
        yield directory


@pytest.fixture
def drained(slurm: Slurm, place: Path) -> None:
    """No node starts anything until it is resumed."""
    slurm.drain()
