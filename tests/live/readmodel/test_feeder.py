"""The feed of the read model: whoever was answered finds what it did."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from hanse.live.readmodel import feeder
from hanse.live.readmodel.feeder import FLUSH_EVENTS, SILENT_EVENTS_MAX, ReadModelFeeder
from hanse.live.readmodel.read_model import ReadModel
from hanse.model.effects import JobAccepted, JobSettled, SendMessage, WakeAt
from hanse.model.events import JobSubmitted, MessageReceived, Tick
from hanse.model.history_effects import JobAdded, JobDropped, JobsTransferred
from hanse.model.ids import JobId
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import Envelope, Gossip, Outcome, OwnershipTransferred, ShardId


def test_who_was_promised_a_job_waits_until_it_can_be_read(tmp_path: Path) -> None:
    """The submitter heard of its job before the event that says so was on disk, and asks at once."""

    async def story() -> None:
        failed: list[BaseException] = []
        feed = ReadModelFeeder(ReadModel(tmp_path / "reads.sqlite", "b1"), failed.append)
        spec = JobSpec((TaskGroup(),))
        added = JobAdded(JobId(1), spec, "b1#1", 1_000_000)
        feed.on_event_durable(1, JobSubmitted(1_000_000, "me", 7, spec), [added])
        feed.require_position(3)
        reader = asyncio.create_task(feed.wait_until_caught_up())
        written = asyncio.Event()
        feed.listeners.append(lambda _: written.set())
        await written.wait()
        assert feed.applied == 1
        later = asyncio.create_task(feed.wait_until_caught_up())
        await asyncio.sleep(0)
        assert not reader.done(), "what was promised is not there yet"
        assert not later.done()
        feed.on_event_durable(2, Tick(2_000_000), [])
        feed.on_event_durable(3, Tick(3_000_000), [JobAccepted("me", 7, JobId(1))])
        await asyncio.wait_for(asyncio.gather(reader, later), 30)
        assert feed.applied == 3
        await asyncio.wait_for(feed.wait_until_caught_up(), 30)  # nothing is owed any more
        assert failed == []
        feed.close()

    asyncio.run(story())


class Stage:
    """A feed over a real file; notes what was written when."""

    def __init__(self, path: Path) -> None:
        self.failed: list[BaseException] = []
        self.feed = ReadModelFeeder(ReadModel(path / "reads.sqlite", "b1"), self.failed.append)
        self.writes: list[int] = []
        self.feed.listeners.append(lambda batch: self.writes.append(len(batch)))
        self.position = 0

    def tick(self, count: int = 1) -> None:
        """Some events that say nothing about any job."""
        gossip = SendMessage(Envelope("b1", "b2", 1, 0, 0, Gossip(())))
        for _ in range(count):
            self.position += 1
            self.feed.on_event_durable(
                self.position, Tick(self.position), [gossip, WakeAt(self.position + 1)]
            )

    def submit(self) -> None:
        """One that does: a job that is known until its number is another."""
        self.position += 1
        spec = JobSpec((TaskGroup(),))
        event = JobSubmitted(self.position, "me", self.position, spec)
        added = JobAdded(JobId(1_000_000), spec, "b1#1", self.position)
        self.feed.on_event_durable(self.position, event, [added, JobDropped(JobId(1_000_000))])

    def accept(self, job: JobId) -> None:
        """A job comes and is taken: two events."""
        self.submit()
        request = self.position
        self.position += 1
        added = JobAdded(job, JobSpec((TaskGroup(),)), "b1#1", self.position)
        reply = JobAccepted("me", request, job)
        self.feed.on_event_durable(self.position, Tick(self.position), [added, reply])

    def settle(self, job: JobId) -> None:
        """A job ends."""
        self.position += 1
        self.feed.on_event_durable(self.position, Tick(self.position), [JobSettled(job, Outcome.SUCCEEDED)])

    def take_away(self, job: JobId) -> None:
        """An heir says that it has the estate now."""
        self.position += 1
        body = OwnershipTransferred(ShardId("b1"), (job,))
        event = MessageReceived(self.position, Envelope("b2", "b1", 1, 1, 0, body))
        taken = JobsTransferred(ShardId("b1"), "b2", (job,))
        self.feed.on_event_durable(self.position, event, [taken])

    async def turns(self, count: int = 20) -> None:
        """Let the loop turn, and what it has begun on the other thread end."""
        for _ in range(count):
            await asyncio.sleep(0)
        await asyncio.get_running_loop().run_in_executor(self.feed._writer, lambda: None)
        for _ in range(count):
            await asyncio.sleep(0)

    def close(self) -> None:
        assert self.failed == []
        self.feed.close()


def test_what_says_nothing_about_jobs_goes_along_with_what_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "IDLE_LINGER_SECONDS", 0.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.tick(5)
        await stage.turns()
        assert stage.writes == []
        assert stage.feed.lag == 0
        await asyncio.wait_for(
            stage.feed.wait_until_caught_up(), 30
        )  # nothing that anybody could read is missing
        stage.submit()
        assert stage.feed.lag > 0
        while not stage.writes:
            await stage.turns()
        assert stage.writes == [6]
        stage.tick(SILENT_EVENTS_MAX - 1)
        await stage.turns()
        assert stage.writes == [6]
        stage.tick()
        while len(stage.writes) < 2:
            await stage.turns()
        assert stage.writes == [6, SILENT_EVENTS_MAX]
        stage.close()

    asyncio.run(story())


def test_it_is_written_when_somebody_asks_or_watches_or_there_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "IDLE_LINGER_SECONDS", 3_600.0)
    monkeypatch.setattr(feeder, "LINGER_SECONDS", 0.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.submit()
        await stage.turns()
        assert stage.writes == []
        await asyncio.wait_for(stage.feed.wait_until_caught_up(), 30)
        assert stage.writes == [1]
        for _ in range(FLUSH_EVENTS - 1):
            stage.submit()
        await stage.turns()
        assert stage.writes == [1]
        stage.submit()
        while len(stage.writes) < 2:
            await stage.turns()
        assert stage.writes == [1, FLUSH_EVENTS]
        stage.feed.watcher_count += 1
        stage.tick()  # a cluster's beat, which a watcher of clusters waits for
        while len(stage.writes) < 3:
            await stage.turns()
        stage.close()

    asyncio.run(story())


def test_who_waits_for_a_job_is_told_at_once_and_costs_no_write_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "IDLE_LINGER_SECONDS", 3_600.0)
    monkeypatch.setattr(feeder, "LINGER_SECONDS", 3_600.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        with stage.feed.watch_job(JobId(1)) as ended, stage.feed.watch_job(JobId(3)) as other:
            for job in (1, 2, 3):
                stage.accept(JobId(job))
            stage.settle(JobId(2))
            await stage.turns()
            assert stage.writes == [], "nobody waits for that one"
            stage.settle(JobId(1))
            stage.tick()  # nothing that anybody waits for, behind it
            await asyncio.wait_for(ended, 30)
            assert stage.writes == [9]
            assert not other.done()
            stage.settle(JobId(3))
            await asyncio.wait_for(other, 30)
            assert stage.writes == [9, 1]
        stage.close()

    asyncio.run(story())


def test_an_end_that_comes_while_a_write_is_under_way_is_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "IDLE_LINGER_SECONDS", 3_600.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.accept(JobId(1))
        with stage.feed.watch_job(JobId(1)) as ended:
            asked = asyncio.create_task(stage.feed.wait_until_caught_up())
            await asyncio.sleep(0)  # its write has begun
            stage.settle(JobId(1))
            await asyncio.wait_for(asyncio.gather(asked, ended), 30)
            assert stage.writes == [2, 1]
        stage.close()

    asyncio.run(story())


def test_jobs_that_change_hands_are_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "IDLE_LINGER_SECONDS", 3_600.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.accept(JobId(1))
        with stage.feed.watch_job(JobId(1)) as looked_at:
            stage.take_away(JobId(1))
            await asyncio.wait_for(looked_at, 30)
            assert stage.writes == [3]
        stage.close()

    asyncio.run(story())


def test_a_full_disk_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "DISK_FULL_RETRY_SECONDS", 0.001)

    async def story() -> None:
        stage = Stage(tmp_path)
        base = stage.feed.read_model._db
        (pages,) = base.execute("PRAGMA page_count").fetchone()
        base.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(1, 200):
            stage.accept(JobId(number))
        await asyncio.wait_for(stage.feed.wait_until_caught_up(), 30)
        assert (stage.feed.disk_full, stage.feed.applied) == (True, 0)

        def make_room() -> None:
            base.execute("PRAGMA max_page_count = 100000")

        await asyncio.get_running_loop().run_in_executor(stage.feed._writer, make_room)
        while stage.feed.disk_full:
            await asyncio.sleep(0.001)  # the feed tries again by itself
        assert stage.feed.applied == stage.position
        assert len(stage.feed.read_model.jobs(limit=1_000)) == 199
        stage.close()

    asyncio.run(story())


def test_nobody_waits_for_a_read_model_that_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits when the disk is found full is let go, who comes later does not wait, and all is written when
    there is room."""
    monkeypatch.setattr(feeder, "DISK_FULL_RETRY_SECONDS", 0.05)

    async def story() -> None:
        stage = Stage(tmp_path)
        feed, real = stage.feed, stage.feed.read_model.apply
        full = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorcode = sqlite3.SQLITE_FULL

        def apply(*_: object) -> None:
            raise full

        monkeypatch.setattr(feed.read_model, "apply", apply)
        stage.submit()
        await asyncio.wait_for(feed.wait_until_caught_up(), 30)
        assert (feed.disk_full, feed.applied) == (True, 0)
        await asyncio.wait_for(feed.wait_until_caught_up(), 30)
        monkeypatch.setattr(feed.read_model, "apply", real)
        while feed.disk_full:
            await asyncio.sleep(0.01)  # the feed tries again by itself
        assert feed.applied == stage.position
        feed.require_position(stage.position + 1)
        waiter = asyncio.create_task(feed.wait_until_caught_up())
        await asyncio.sleep(0)
        assert not waiter.done()
        feed.is_journal_full = lambda: True
        feed.release_waiters()
        await asyncio.wait_for(waiter, 30)
        assert stage.failed == []
        feed.close()

    asyncio.run(story())
