"""The feed of the read model: whoever was answered finds what it did."""

import asyncio
from pathlib import Path

import pytest

from hanse.live import feed as feed_module
from hanse.live.feed import ENOUGH_EVENTS, QUIET_MAX, Feed
from hanse.live.reads.reads import Reads
from hanse.model.commands import Accepted, Send, WakeAt
from hanse.model.events import Submitted, Tick
from hanse.model.ids import JobId
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import Envelope, Gossip


def test_who_was_promised_a_job_waits_until_it_can_be_read(tmp_path: Path) -> None:
    """The submitter heard of its job before the event that says so was on disk, and asks at once."""

    async def story() -> None:
        failed: list[BaseException] = []
        feed = Feed(Reads(tmp_path / "reads.sqlite", "b1"), failed.append)
        feed.told(1, Submitted(1_000_000, "me", 7, JobSpec((TaskGroup(),))), [])
        feed.promised(3)
        reader = asyncio.create_task(feed.caught_up())
        written = asyncio.Event()
        feed.heard.append(lambda _: written.set())
        await written.wait()
        assert feed.applied == 1
        later = asyncio.create_task(feed.caught_up())
        await asyncio.sleep(0)
        assert not reader.done(), "what was promised is not there yet"
        assert not later.done()
        feed.told(2, Tick(2_000_000), [])
        feed.told(3, Tick(3_000_000), [Accepted("me", 7, JobId(1))])
        await asyncio.wait_for(asyncio.gather(reader, later), 30)
        assert feed.applied == 3
        await asyncio.wait_for(feed.caught_up(), 30)  # nothing is owed any more
        assert failed == []
        feed.close()

    asyncio.run(story())


class Stage:
    """A feed over a real file; notes what was written when."""

    def __init__(self, path: Path) -> None:
        self.failed: list[BaseException] = []
        self.feed = Feed(Reads(path / "reads.sqlite", "b1"), self.failed.append)
        self.writes: list[int] = []
        self.feed.heard.append(lambda batch: self.writes.append(len(batch)))
        self.position = 0

    def tick(self, count: int = 1) -> None:
        """Some events that say nothing about any job."""
        gossip = Send(Envelope("b1", "b2", 1, 0, 0, Gossip(())))
        for _ in range(count):
            self.position += 1
            self.feed.told(self.position, Tick(self.position), [gossip, WakeAt(self.position + 1)])

    def submit(self) -> None:
        """One that does."""
        self.position += 1
        spec = JobSpec((TaskGroup(),))
        self.feed.told(self.position, Submitted(self.position, "me", self.position, spec), [])

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
    monkeypatch.setattr(feed_module, "LAZY_SECONDS", 0.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.tick(5)
        await stage.turns()
        assert stage.writes == []
        assert stage.feed.lag == 0
        await asyncio.wait_for(stage.feed.caught_up(), 30)  # nothing that anybody could read is missing
        stage.submit()
        assert stage.feed.lag > 0
        while not stage.writes:
            await stage.turns()
        assert stage.writes == [6]
        stage.tick(QUIET_MAX - 1)
        await stage.turns()
        assert stage.writes == [6]
        stage.tick()
        while len(stage.writes) < 2:
            await stage.turns()
        assert stage.writes == [6, QUIET_MAX]
        stage.close()

    asyncio.run(story())


def test_it_is_written_when_somebody_asks_or_watches_or_there_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "LAZY_SECONDS", 3_600.0)
    monkeypatch.setattr(feed_module, "LINGER_SECONDS", 0.0)

    async def story() -> None:
        stage = Stage(tmp_path)
        stage.submit()
        await stage.turns()
        assert stage.writes == []
        await asyncio.wait_for(stage.feed.caught_up(), 30)
        assert stage.writes == [1]
        for _ in range(ENOUGH_EVENTS - 1):
            stage.submit()
        await stage.turns()
        assert stage.writes == [1]
        stage.submit()
        while len(stage.writes) < 2:
            await stage.turns()
        assert stage.writes == [1, ENOUGH_EVENTS]
        stage.feed.watchers += 1
        stage.tick()  # a cluster's beat, which a watcher of clusters waits for
        while len(stage.writes) < 3:
            await stage.turns()
        stage.feed.watchers -= 1
        with stage.feed.watching(JobId(1)):
            stage.submit()
            while len(stage.writes) < 4:
                await stage.turns()
        assert stage.writes == [1, ENOUGH_EVENTS, 1, 1]
        stage.close()

    asyncio.run(story())
