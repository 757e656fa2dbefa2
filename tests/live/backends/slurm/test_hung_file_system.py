"""A shared file system that hangs: the backend waits for it, and the daemon's event loop goes on."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import pytest

from hanse.core.config import NodeConfig
from hanse.live.backends.interface import Stream
from hanse.live.backends.process import output_reader
from hanse.live.backends.process.launch_requests import TaskUser
from hanse.live.backends.slurm import backend as slurm_backend
from hanse.live.backends.slurm.backend import SlurmBackend
from hanse.live.backends.slurm.driver import SlurmJob, SlurmNode, SlurmPartition, SlurmSubmission
from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.model.resources import Resources
from tests.live.backends.desk import WAIT_SECONDS_MAX, Desk, task
from tests.live.backends.slurm.places import until

NODES = (NodeConfig(Resources(16_000, 4_000 << 20)),)
KEY = f"{task(0)}.1"
HANGING = (
    (SharedDirectory, "make_directories"),
    (os, "scandir"),
    (SharedDirectory, "drop_output"),
    (slurm_backend, "make_inotify"),
)
"""Functions of the reconciliation that look at the shared directory."""


class EmptySlurm:
    """Slurm without jobs."""

    has_arrays = False

    async def submit(self, submission: SlurmSubmission) -> int:
        raise AssertionError(submission)

    async def cancel(self, jobs: Sequence[SlurmJob]) -> None:
        raise AssertionError(jobs)

    async def jobs(self) -> list[SlurmJob]:
        return []

    async def nodes(self) -> list[SlurmNode]:
        return []

    async def partitions(self) -> list[SlurmPartition]:
        return []

    async def close(self) -> None:
        pass


class HungFileSystem:
    """Calls that wait until the event loop, which must be free for that, lets them go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.hangs = asyncio.Event()
        self._monkeypatch = monkeypatch
        self._loop = asyncio.get_running_loop()
        self._goes_on = Event()

    def hang(self, owner: object, name: str) -> None:
        """Make a function wait when it is called."""
        original: Callable[..., Any] = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            assert current_thread() is not main_thread(), f"{name} is called on the event loop"
            self.calls.append(name)
            self._loop.call_soon_threadsafe(self.hangs.set)
            assert self._goes_on.wait(WAIT_SECONDS_MAX), "the event loop stands still"
            return original(*arguments, **options)

        self._monkeypatch.setattr(owner, name, call)

    async def recover(self) -> None:
        """Wait until a call hangs, show that the loop goes on, and let all calls go."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self.hangs.wait()
        self._goes_on.set()


def open_files() -> int:
    """The number of this process's open files."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmBackend:
    """A backend that keeps one forgotten output of the two that are there."""
    monkeypatch.setattr(SlurmBackend, "kept_count_max", 1)
    output = tmp_path / "shared" / "output"
    output.mkdir(parents=True)
    for number, name in enumerate((f"{task(1)}.1.stdout", f"{KEY}.stdout")):
        (output / name).write_bytes(b"text\n")
        os.utime(output / name, (number, number))
    return SlurmBackend(tmp_path, "north", NODES, EmptySlurm(), SlurmSettings(), TaskUser())


def test_reconciliation_waits_in_threads(
    backend: SlurmBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        file_system = HungFileSystem(monkeypatch)
        for owner, name in HANGING:
            file_system.hang(owner, name)
        recovering = asyncio.create_task(file_system.recover())
        found = await backend.reconcile(Desk(backend))
        await recovering
        assert not found.running
        assert not found.ended
        assert {name for _, name in HANGING} <= set(file_system.calls)
        await backend.close()

    asyncio.run(story())
    assert [path.name for path in (tmp_path / "shared" / "output").iterdir()] == [f"{KEY}.stdout"]


@pytest.mark.parametrize("follow", [False, True])
def test_outputs_are_read_in_threads(
    backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    async def story() -> None:
        file_system = HungFileSystem(monkeypatch)
        await backend.reconcile(Desk(backend))
        file_system.hang(os, "pread")
        file_system.hang(output_reader, "_add_watch")
        recovering = asyncio.create_task(file_system.recover())
        chunks = [chunk async for chunk in backend.output(task(0), 1, Stream.STDOUT, follow=follow)]
        await recovering
        assert chunks == [b"text\n"]
        assert "pread" in file_system.calls
        assert ("_add_watch" in file_system.calls) is follow
        await backend.close()

    asyncio.run(story())


@pytest.mark.parametrize("name", ["pread", "_add_watch"])
def test_a_reader_that_gives_up_leaves_nothing_open(
    backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def read() -> None:
        async for _ in backend.output(task(0), 1, Stream.STDOUT, follow=True):
            pass

    async def story() -> None:
        file_system = HungFileSystem(monkeypatch)
        await backend.reconcile(Desk(backend))
        before = open_files()
        file_system.hang(os if name == "pread" else output_reader, name)
        reading = asyncio.create_task(read())
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await file_system.hangs.wait()
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        await file_system.recover()
        await until(lambda: open_files() <= before, "the reader's files are closed")
        await backend.close()

    asyncio.run(story())
