"""Snapshots go by a journal's bytes as well as by its events: a start replays a bounded number of both."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.live import checks_and_snapshots as snapshots_module
from hanse.live.clock import Clock
from hanse.live.journal.journal import Journal, JournalContents
from hanse.live.shell import JournalledShell
from hanse.model.effects import Effect
from hanse.model.events import Event, JobSubmitted
from hanse.model.job import JobSpec, TaskGroup

BOUND = 1 << 20
RETAIN = 2 << 20
PAYLOAD = bytes(64 << 10)
ROOM = 4
"""Events that may come while a snapshot is under way: each is awaited here, so few."""


class Counter:
    """A machine that counts what it takes; its state is of a given size."""

    name = "counter"

    def __init__(self, size: int) -> None:
        self.marks: dict[str, int] = {}
        self.count = 0
        self.ballast = bytes(size)

    def handle(self, event: Event) -> list[Effect]:
        self.count += isinstance(event, JobSubmitted)
        return []

    def check(self) -> None:
        assert self.count >= 0

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((self.count, self.ballast))

    def restore(self, state: bytes) -> None:
        self.count, self.ballast = msgspec.msgpack.decode(state, type=tuple[int, bytes])


class Member:
    """A shell over a journal that is opened as after a power cut: nothing was said at its end."""

    def __init__(self, directory: Path, size: int = 0) -> None:
        self.journal, self.found = Journal.open(directory, segment_bytes=256 << 10, retain_bytes=RETAIN)
        self.machine = Counter(size)
        if self.found.snapshot is not None:
            self.machine.restore(self.found.snapshot)
        self.machine.count += len(self.found.records)
        self.failures: list[BaseException] = []
        self.clock = Clock()
        self.shell = JournalledShell(
            self.machine, self.clock, lambda _: None, self.journal, self.failures.append
        )

    async def take(self, count: int) -> None:
        """So many large events, each on disk before the next."""
        for request in range(count):
            spec = JobSpec((TaskGroup(payload=PAYLOAD),))
            self.shell.handle(JobSubmitted(self.clock.now(), "me", request, spec))
            await self.shell.wait_durable()

    def crash(self) -> None:
        """Leave the files as they are on disk: the journal does not say that all is in order."""
        self.shell.snapshots._pool.shutdown(wait=True)
        assert self.failures == []
        self.journal._failure = RuntimeError("a power cut")  # type: ignore[assignment]
        self.shell.close()


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 120))


def replayed(found: JournalContents) -> int:
    return sum(map(len, found.records))


def test_a_start_replays_a_bounded_number_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_BYTES", BOUND)

    async def story() -> None:
        member = Member(tmp_path)
        await member.take(100)
        member.crash()
        again = Member(tmp_path)
        assert again.machine.count == 100
        assert again.found.snapshot_position >= 80, "long before 50,000 events"
        assert replayed(again.found) <= BOUND + ROOM * len(PAYLOAD)
        files = sum(path.stat().st_size for path in tmp_path.glob("*.seg"))
        assert files <= RETAIN + 2 * BOUND, "segments that a snapshot makes superfluous are dropped"
        again.crash()

    play(story())


def test_a_member_that_is_killed_again_and_again_does_not_replay_more_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_BYTES", BOUND)

    async def story() -> None:
        for life in range(12):
            member = Member(tmp_path)
            assert member.machine.count == 5 * life
            assert replayed(member.found) <= BOUND + ROOM * len(PAYLOAD)
            await member.take(5)  # of which no life has enough for a snapshot
            member.crash()

    play(story())


def test_the_events_before_a_start_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_EVENTS", 12)

    async def story() -> None:
        for life in range(8):
            member = Member(tmp_path)
            assert member.machine.count == 5 * life
            assert len(member.found.records) <= 12 + ROOM
            await member.take(5)
            member.crash()

    play(story())


def test_a_large_state_is_not_written_more_often_than_it_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state of four times the bound: it is written when as many bytes have come, not at each bound."""
    monkeypatch.setattr(snapshots_module, "SNAPSHOT_BYTES", BOUND)

    async def story() -> None:
        member = Member(tmp_path, size=4 * BOUND)
        dumped: list[int] = []
        dump = member.machine.dump

        def noted() -> bytes:
            dumped.append(member.machine.count)
            return dump()

        monkeypatch.setattr(member.machine, "dump", noted)
        await member.take(100)
        first, second = dumped[:2]
        assert first <= BOUND // len(PAYLOAD)
        assert second - first >= 4 * BOUND // len(PAYLOAD) - ROOM
        member.crash()
        again = Member(tmp_path)
        assert again.journal.snapshot_bytes >= 4 * BOUND
        assert replayed(again.found) <= 4 * BOUND + ROOM * len(PAYLOAD)
        again.crash()

    play(story())
