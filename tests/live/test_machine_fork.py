"""Checks and dumps of a large machine in a process of its own: the loop goes on, and nothing is mixed up."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.live import checks_and_snapshots as snapshots_module
from hanse.live.clock import Clock
from hanse.live.journal.journal import Journal
from hanse.live.machine_fork import ForkError, MachineFork
from hanse.live.shell import JournalledShell
from hanse.model.effects import Effect
from hanse.model.events import Event, JobSubmitted
from hanse.model.job import JobSpec, TaskGroup

BALLAST = 8 << 20
WAIT_SECONDS = 60.0


class Machine:
    """A machine that knows in which process it was checked and dumped."""

    name = "counter"

    def __init__(self) -> None:
        self.marks: dict[str, int] = {}
        self.count = 0
        self.ballast = bytes(BALLAST)
        self.sound = True
        self.dies = False

    def handle(self, event: Event) -> list[Effect]:
        self.count += isinstance(event, JobSubmitted)
        return []

    def check(self) -> None:
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        assert self.sound, "two and two are five"

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((self.count, os.getpid(), self.ballast))

    def restore(self, state: bytes) -> None:
        self.count, _, self.ballast = msgspec.msgpack.decode(state, type=tuple[int, int, bytes])


class Member:
    """A shell whose machine counts as large from the start."""

    def __init__(self, directory: Path) -> None:
        self.journal, _ = Journal.open(directory)
        self.machine = Machine()
        self.failed = asyncio.Event()
        self.failures: list[BaseException] = []
        self.clock = Clock()
        self.shell = JournalledShell(self.machine, self.clock, lambda _: None, self.journal, self._fail)
        self.shell.snapshots._seconds = 1.0

    def _fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.failed.set()

    async def take(self, count: int) -> None:
        for request in range(count):
            spec = JobSpec((TaskGroup(payload=b"x"),))
            self.shell.handle(JobSubmitted(self.clock.now(), "me", request, spec))
            await self.shell.wait_durable()

    async def snapshot_written(self, before: int = 0) -> None:
        while max(self.journal._snapshots, default=0) <= before and not self.failures:
            await self.take(1)
            await asyncio.sleep(0)


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, WAIT_SECONDS))


def test_the_child_sees_the_machine_as_it_was() -> None:
    machine = Machine()
    machine.count = 7
    fork = MachineFork(machine, wants_state=True)
    machine.count = 8
    seconds, state = fork.read()
    count, pid, ballast = msgspec.msgpack.decode(state)
    assert (count, len(ballast)) == (7, BALLAST)
    assert pid != os.getpid()
    assert seconds > 0


def test_a_check_alone_brings_no_state() -> None:
    assert MachineFork(Machine(), wants_state=False).read()[1] == b""


def test_a_broken_invariant_is_told_with_its_sentence() -> None:
    machine = Machine()
    machine.sound = False
    with pytest.raises(AssertionError, match="two and two are five"):
        MachineFork(machine, wants_state=True).read()


def test_a_child_that_is_killed_is_no_broken_invariant() -> None:
    machine = Machine()
    machine.dies = True
    with pytest.raises(ForkError, match="ended early"):
        MachineFork(machine, wants_state=True).read()


def test_a_child_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanse.live.machine_fork.FORK_SECONDS_MAX", 0.05)
    machine = Machine()
    monkeypatch.setattr(machine, "check", signal.pause)
    fork = MachineFork(machine, wants_state=False)
    with pytest.raises(ForkError, match="took longer"):
        fork.read()
    with pytest.raises(ProcessLookupError):
        os.kill(fork._pid, 0)


def test_the_child_leaves_files_and_sockets_of_its_parent_alone() -> None:
    """A member that dies while its child works must not keep its lock and its port."""
    reader, writer = os.pipe()
    machine = Machine()
    machine.dump = lambda: b"%d" % len(list(Path("/proc/self/fd").iterdir()))  # type: ignore[method-assign]
    _, open_files = MachineFork(machine, wants_state=True).read()
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert int(open_files) <= 5  # standard files, the pipe, and the listing itself


def test_a_large_machine_gets_its_snapshot_from_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_EVENTS", 10)
    monkeypatch.setattr(snapshots_module, "INLINE_SECONDS", 0.0)

    async def story() -> None:
        member = Member(tmp_path)
        await member.snapshot_written()
        await member.snapshot_written(before=max(member.journal._snapshots))
        assert member.shell.snapshots.forks >= 2
        assert member.failures == []
        taken = member.machine.count
        member.shell.close()
        journal, found = Journal.open(tmp_path)
        again = Machine()
        assert found.snapshot is not None
        again.restore(found.snapshot)
        assert again.count + len(found.records) == taken
        assert msgspec.msgpack.decode(found.snapshot)[1] != os.getpid()
        journal.close()

    play(story())


def test_a_small_machine_gets_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_EVENTS", 10)
    monkeypatch.setattr(snapshots_module, "INLINE_SECONDS", 3600.0)

    async def story() -> None:
        member = Member(tmp_path)
        await member.snapshot_written()
        assert member.shell.snapshots.forks == 0
        member.shell.close()

    play(story())


def test_a_broken_invariant_in_the_child_stops_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_module, "CHECK_EVENTS", 3)
    monkeypatch.setattr(snapshots_module, "INLINE_SECONDS", 0.0)

    async def story() -> None:
        member = Member(tmp_path)
        member.shell.snapshots._check_due = 3
        member.machine.sound = False
        await member.take(5)
        await member.failed.wait()
        assert "two and two are five" in str(member.failures[0])
        member.shell.close()

    play(story())


def test_a_child_without_memory_costs_one_snapshot_and_not_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_EVENTS", 10)
    monkeypatch.setattr(snapshots_module, "CHECK_EVENTS", 5)
    monkeypatch.setattr(snapshots_module, "INLINE_SECONDS", 0.0)

    async def story() -> None:
        member = Member(tmp_path)
        member.machine.dies = True
        await member.take(12)
        while member.shell.snapshots._fork is not None:
            await asyncio.sleep(0)
        member.machine.dies = False
        await member.snapshot_written()
        assert member.failures == []
        member.shell.close()

    play(story())


def test_no_process_left_means_work_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_EVENTS", 10)
    monkeypatch.setattr(snapshots_module, "INLINE_SECONDS", 0.0)

    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def story() -> None:
        member = Member(tmp_path)
        monkeypatch.setattr("os.fork", refused)
        await member.snapshot_written()
        assert member.failures == []
        assert member.shell.snapshots.forks == 0
        member.shell.close()

    play(story())


def test_the_loop_goes_on_while_the_child_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child never ends by itself: what the loop handles meanwhile it handles beside the child."""
    monkeypatch.setattr(snapshots_module, "CHECK_EVENTS", 3)
    monkeypatch.setattr(snapshots_module, "INLINE_SECONDS", 0.0)
    parent = os.getpid()

    def wait_for_ever() -> None:
        assert os.getpid() != parent, "the check runs on the loop"
        signal.pause()

    async def story() -> None:
        member = Member(tmp_path)
        member.shell.snapshots._check_due = 3
        monkeypatch.setattr(member.machine, "check", wait_for_ever)
        await member.take(20)
        assert member.machine.count == 20
        assert member.shell.snapshots.forks == 1
        member.shell.close()
        assert member.failures == []

    play(story())
