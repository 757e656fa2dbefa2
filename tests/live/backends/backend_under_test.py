"""What a backend says of itself, so that the conformance suite can run over it."""

from abc import ABC, abstractmethod
from pathlib import Path

from hanse.core.config import NodeConfig
from hanse.live.backends.interface import Backend
from tests.live.backends.desk import Desk
from tests.live.backends.places import NODES


class BackendUnderTest(ABC):
    """A backend, its payloads and its flags. ``place`` is a fixture of the subclass: a directory that is the
    runner's own."""

    outlives_daemons = True
    """Whether attempts go on, and ends are kept, without the process that started them."""
    keeps_output = True
    """Whether what tasks print can be read."""
    refuses_payloads = True
    """Whether there are payloads that it cannot run."""
    kill_code = -9
    """The code of a task that was ended by force."""
    queues = False
    """Whether attempts may wait in a queue that is not the league's."""
    many = 40
    """Attempts at once that any machine for tests can stand."""

    @abstractmethod
    def make(self, place: Path, nodes: tuple[NodeConfig, ...] = NODES) -> Backend:
        """A backend on this directory."""

    @abstractmethod
    def exits(self, code: int) -> bytes:
        """A task that ends at once with this code."""

    @abstractmethod
    def lasts(self, seconds: float) -> bytes:
        """A task that succeeds after so long, and ends when it is asked to."""

    @abstractmethod
    def stubborn(self) -> bytes:
        """A task that lasts for an hour and does not end when it is asked to."""

    @abstractmethod
    def prints(self, text: str) -> bytes:
        """A task that prints this and succeeds."""

    async def is_set(self, desk: Desk, index: int = 0) -> None:
        """Wait until a stubborn task is one; a backend with programs waits until it has said ``set``."""
        await desk.start_of(index)
