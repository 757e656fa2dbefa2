"""The live shell: nothing is performed before it is on disk, and a bug ends the daemon, not the journal."""

import asyncio
import errno
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import msgspec
import pytest

from hanse.live import shell as shell_module
from hanse.live.clock import Clock
from hanse.live.journal.disk import Disk
from hanse.live.journal.errors import RecordTooLarge
from hanse.live.journal.journal import Journal
from hanse.live.journal.layout import RECORD_BYTES_MAX
from hanse.live.recovery import decode_event
from hanse.live.shell import (
    INLINE_EVENTS_MAX,
    QUICK_SECONDS,
    SLOW_DISK_SCORE,
    SLOW_DISK_SCORE_MAX,
    JournalledShell,
)
from hanse.model.effects import Effect, JobAccepted, SendMessage, WakeAt
from hanse.model.events import CancelRequested, Event, JobSubmitted, MessageReceived, Tick
from hanse.model.ids import JobId
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import Ack, Envelope


class Echo:
    """A machine that acknowledges what it is asked, and breaks when it is asked for job 13. A message tells
    it that the heir has the job of some request."""

    name = "echo"

    def __init__(self) -> None:
        self.marks: dict[str, int] = {}
        self.taken: list[int] = []

    def handle(self, event: Event) -> list[Effect]:
        if isinstance(event, MessageReceived):  # an heir has the job of this request
            return [JobAccepted("me", event.envelope.ack, JobId(1)), SendMessage(event.envelope)]
        if not isinstance(event, CancelRequested):
            return [WakeAt(event.at + 1_000_000)]
        assert event.job != 13, "an unlucky number"
        self.taken.append(event.job)
        return [JobAccepted(event.client, event.request, event.job)]

    def check(self) -> None:
        assert 13 not in self.taken

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.taken)

    def restore(self, state: bytes) -> None:
        self.taken = msgspec.msgpack.decode(state)


class SmallDisk(Disk):
    """A disk that somebody else fills."""

    full = False

    def allocate(self, fd: int, begin: int, end: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no room")
        super().allocate(fd, begin, end)


class HeldDisk(Disk):
    """A disk whose writes take as long as a test wants."""

    def __init__(self) -> None:
        self.busy, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def sync(self, fd: int) -> None:
        self.busy.set()
        assert self.go_on.wait(60)
        super().sync(fd)


class Stage:
    """A shell over a real journal; notes how much was durable when each command was performed."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.journal, self.found = Journal.open(directory, disk=disk or Disk())
        self.performed: list[tuple[Effect, int]] = []
        self.told: list[int] = []
        self.failures: list[BaseException] = []
        self.clock = Clock()
        self.shell = JournalledShell(
            Echo(), self.clock, self._perform, self.journal, self.failures.append,
            lambda position, *_: self.told.append(position),
        )  # fmt: skip

    def _perform(self, command: Effect) -> None:
        self.performed.append((command, self.journal.durable))

    def ask(self, job: int) -> None:
        self.shell.handle(CancelRequested(self.clock.now(), "me", job, JobId(job)))

    def submit(self, request: int) -> None:
        self.shell.handle(JobSubmitted(self.clock.now(), "me", request, JobSpec((TaskGroup(),))))

    def acknowledge(self, request: int) -> None:
        self.shell.handle(MessageReceived(self.clock.now(), Envelope("heir", "echo", 0, 0, request, Ack())))


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


def test_commands_wait_until_their_event_is_on_disk(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        for job in range(10):
            stage.ask(job)
        assert stage.performed == []
        await stage.shell.wait_durable()
        assert [command.job for command, _ in stage.performed if isinstance(command, JobAccepted)] == [
            *range(10)
        ]
        assert all(durable >= at + 1 for at, (_, durable) in enumerate(stage.performed))
        assert stage.told == [*range(1, 11)]
        stage.shell.close()

    play(story())


def test_what_is_taken_during_a_write_waits_for_the_next_one(tmp_path: Path) -> None:
    async def story() -> None:
        disk = HeldDisk()
        stage = Stage(tmp_path, disk)
        stage.shell._slow_disk_score = SLOW_DISK_SCORE_MAX  # a slow disk: its writes are made beside
        disk.go_on.clear()
        stage.ask(1)
        while not disk.busy.is_set():
            await asyncio.sleep(0.001)
        stage.ask(2)
        disk.go_on.set()
        while len(stage.performed) < 2:
            await asyncio.sleep(0.001)
        assert [durable for _, durable in stage.performed] == [1, 2]
        stage.shell.close()

    play(story())


def test_what_nobody_is_told_of_shares_the_write_of_what_comes_next(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        stage.shell.handle(Tick(stage.clock.now()))
        assert stage.journal.durable == 0
        await stage.shell.wait_durable()
        assert stage.journal.durable == 1
        stage.shell.close()

    play(story())


def test_a_machine_is_woken_when_it_asked_to_be_and_not_after_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody is told of may be written much later; a tick that it asked for must not wait for that."""
    monkeypatch.setattr(shell_module, "LAZY_SECONDS", 3_600.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.shell.handle(Tick(stage.clock.now() - 999_000))  # to be woken in a millisecond
        while stage.journal.position < 2:
            await asyncio.sleep(0)
        assert stage.journal.durable == 0
        await stage.shell.wait_durable()
        assert stage.performed == []
        stage.shell.close()

    play(story())


def test_a_full_disk_holds_back_what_came_of_it_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shell_module, "DISK_FULL_RETRY_SECONDS", 0.001)

    async def story() -> None:
        disk = SmallDisk()
        stage = Stage(tmp_path, disk)
        disk.full = True
        asked = 0
        while not stage.shell.disk_full:
            stage.ask(asked * 100)
            asked += 1
            await asyncio.sleep(0)
        before = stage.journal.durable
        for _ in range(5):
            stage.ask(asked * 100)
            asked += 1
            await asyncio.sleep(0.002)  # some tries
        assert stage.journal.durable == before
        assert len(stage.performed) == before
        busy = [stage.shell.is_busy]
        assert stage.failures == []
        disk.full = False
        await stage.shell.wait_durable()
        assert [command.job for command, _ in stage.performed if isinstance(command, JobAccepted)] == [
            100 * request for request in range(asked)
        ]
        busy.append(stage.shell.is_busy)
        assert busy == [True, False]
        stage.shell.close()
        first, last = caplog.messages  # told once, however often it was tried
        assert first.startswith("the disk is full; waiting for free space")
        assert last == "the disk has free space again; everything goes on"

    play(story())


def test_a_bug_stops_the_shell_and_is_not_journalled(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        stage.ask(7)
        await stage.shell.wait_durable()
        with pytest.raises(AssertionError, match="unlucky"):
            stage.ask(13)
        assert len(stage.failures) == 1
        stage.ask(8)
        assert stage.shell.closed
        journal, found = Journal.open(tmp_path)
        events = [decode_event(record) for record in found.records]
        assert [event.job for event in events if isinstance(event, CancelRequested)] == [7]
        journal.close()

    play(story())


def test_a_job_that_is_safe_twice_is_accepted_before_that_is_on_disk_a_third_time(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        promises: list[int] = []
        stage.shell.on_early_acceptance = promises.append
        stage.submit(1)
        await stage.shell.wait_durable()
        stage.performed.clear()
        stage.acknowledge(1)
        assert [type(command) for command, _ in stage.performed] == [JobAccepted]
        assert stage.journal.durable == 1
        assert promises == [2]
        await stage.shell.wait_durable()
        assert [type(command) for command, _ in stage.performed] == [JobAccepted, JobAccepted, SendMessage]
        stage.shell.close()

    play(story())


def test_a_job_whose_submission_is_not_on_disk_is_not_accepted_early(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)
        stage.submit(1)
        stage.acknowledge(1)
        assert stage.performed == []
        await stage.shell.wait_durable()
        assert JobAccepted in [type(command) for command, _ in stage.performed]
        assert all(durable == 2 for _, durable in stage.performed)
        stage.shell.close()

    play(story())


def test_a_little_on_a_quick_disk_is_written_on_the_spot_and_on_a_slow_one_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_module, "QUICK_SECONDS", 10.0)
    monkeypatch.setattr(shell_module, "SLOW_DISK_SCORE_FIRST", SLOW_DISK_SCORE + 1)

    async def story() -> None:
        stage = Stage(tmp_path)
        where: list[bool] = []
        stage.journal.on_commit = lambda *_: where.append(current_thread() is main_thread())

        async def write(*jobs: int) -> None:
            for job in jobs:
                stage.ask(job)
            await stage.shell.wait_durable()

        for job in range(1, 5):
            await write(job)
        assert where == [False, False, True, True], "nothing is known of the disk at first"
        await write(*range(20, 21 + INLINE_EVENTS_MAX))
        assert where[4:] == [False], "much is written beside"
        monkeypatch.setattr(shell_module, "QUICK_SECONDS", 1e-9)  # so long every write takes
        for job in (5, 6, 7):
            await write(job)
        assert where[5:] == [True, False, False], "the disk has become slow"
        assert [command.job for command, _ in stage.performed if type(command) is JobAccepted] == [
            1, 2, 3, 4, *range(20, 21 + INLINE_EVENTS_MAX), 5, 6, 7,
        ]  # fmt: skip
        stage.shell.close()

    play(story())


def test_a_write_that_took_long_now_and_then_is_no_slow_disk_and_a_stall_is_one(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path)

        def doubted(*writes: float) -> bool:
            """Whether the next write is the other thread's, after writes of so many quick ones' time."""
            stage.shell._slow_disk_score = 0.0
            for factor in writes:
                stage.shell._update_disk_score(factor * QUICK_SECONDS)
            return stage.shell._slow_disk_score >= SLOW_DISK_SCORE

        assert not doubted(*[2.0, 0.1, 0.1, 0.1] * 50), "every fourth: somebody else had the processor"
        assert doubted(*[2.0] * 5), "all of them: it is the disk"
        assert doubted(*[0.1] * 50, 25.0), "a stall"
        assert doubted(25.0, *[0.1] * 10)
        assert not doubted(1e9, *[0.1] * int(SLOW_DISK_SCORE_MAX)), "it is believed again after a while"
        stage.shell.close()

    play(story())


def test_a_write_on_the_spot_that_fails_ends_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_module, "SLOW_DISK_SCORE_FIRST", 0.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        stage.ask(1)
        await stage.shell.wait_durable()
        os.close(stage.journal._segments._fd)
        stage.ask(2)
        ended = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(ended.set_result, None)
        await ended
        assert stage.shell.closed
        assert [command.job for command, _ in stage.performed if type(command) is JobAccepted] == [1]
        assert len(stage.failures) == 1

    play(story())


def test_what_the_journal_cannot_take_does_not_reach_the_machine(tmp_path: Path) -> None:
    """Else the machine would remember, and act on, what nobody finds again after a crash."""

    async def story() -> None:
        stage = Stage(tmp_path)
        before = stage.journal.position
        machine = stage.shell.machine
        assert isinstance(machine, Echo)
        large = CancelRequested(stage.clock.now(), "m" * RECORD_BYTES_MAX, 1, JobId(1))
        with pytest.raises(RecordTooLarge):
            stage.shell.handle(large)
        assert machine.taken == []
        assert stage.journal.position == before
        stage.ask(2)
        await stage.shell.wait_durable()
        assert machine.taken == [2]
        assert not stage.failures
        stage.shell.close()

    play(story())
