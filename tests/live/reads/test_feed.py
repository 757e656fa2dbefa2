"""The feed of the read model: whoever was answered finds what it did."""

import asyncio
from pathlib import Path

from hanse.live.feed import Feed
from hanse.live.reads.reads import Reads
from hanse.model.commands import Accepted
from hanse.model.events import Submitted, Tick
from hanse.model.ids import JobId
from hanse.model.job import JobSpec, TaskGroup


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
