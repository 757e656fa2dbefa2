"""The streams of events by themselves: holes are told, slow readers are cut, rings are left and entered."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.api.records import ClusterAnswer
from hanse.live.http import event_stream
from hanse.live.http.cluster_status_stream import ClusterStatusTracker
from hanse.live.http.event_stream import SLOW, EventBroadcaster, EventStream, Subscription
from hanse.live.http.responses import RefusedError
from hanse.live.readmodel import sqlite_writer
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.readmodel.read_model import ReadModel
from tests.live.readmodel.histories import EPOCH, Step
from tests.live.readmodel.test_projection import short_history

BOTH = ("jobs", "decisions")


@pytest.fixture(scope="module")
def history() -> list[Step]:
    return short_history()


class Place:
    """A feed with its events, and what was told to those who watch them."""

    def __init__(self, path: Path) -> None:
        self.failed: list[BaseException] = []
        self.feed = ReadModelFeeder(ReadModel(path, "b1"), self.failed.append)
        watch = ClusterStatusTracker(("c1",), ClusterAnswer, lambda: None)
        self.events = EventBroadcaster("b1", self.feed, watch, self.failed.append)

    async def __aenter__(self) -> "Place":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        self.feed.close()
        assert not self.failed

    async def tell(self, steps: list[Step]) -> None:
        for step in steps:
            self.feed.on_event_durable(*step)
        await self.feed.wait_until_caught_up()

    def whole(self) -> list[int]:
        """The serials of all that is on record."""
        return [item.serial for item in self.feed.read_model.events_after(0, 10_000).items]

    async def hear(self, wanted: Subscription, last: int) -> list[int]:
        """The serials that a watcher hears, up to the last one; a gap is -1."""
        heard: list[int] = []
        pieces = self.events.open(wanted)
        async for piece in pieces:
            for block in piece.decode().split("\n\n"):
                lines = dict(line.partition(": ")[::2] for line in block.split("\n"))
                if lines.get("event") == "gap":
                    heard.append(-1)
                elif "data" in lines:
                    heard.append(int(lines["id"].rpartition("/")[2]))
            if heard and heard[-1] in (last, -1):
                break
        await pieces.aclose()  # type: ignore[attr-defined]  # it is a generator
        return heard


def played(path: Path, story: Callable[[Place], Awaitable[None]]) -> None:
    async def play() -> None:
        async with Place(path / "reads.sqlite") as place:
            async with asyncio.timeout(60):
                await story(place)

    asyncio.run(play())


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1_000])
def test_pages_together_are_the_whole(tmp_path: Path, history: list[Step], limit: int) -> None:
    reads = ReadModel(tmp_path / "reads.sqlite", "b1")
    reads.apply(history, EPOCH)
    whole = reads.events_after(0, 10_000)
    serials = [item.serial for item in whole.items]
    assert len(serials) > 10
    assert serials == sorted(set(serials))
    found, after = [], 0
    while after < whole.newest:
        page = reads.events_after(after, limit)
        assert page.missing == (False, False)
        assert page.up_to > after
        found += [item.serial for item in page.items]
        after = page.up_to
    assert found == serials
    reads.close()


def test_what_was_dropped_is_known_to_be_missing(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = ReadModel(tmp_path / "whole.sqlite", "b1")
    reads.apply(history, EPOCH)
    changes = [change.serial for change in reads.changes_since(0)]
    reads.close()
    monkeypatch.setattr(sqlite_writer, "CHANGES_MAX", 3)
    reads = ReadModel(tmp_path / "kept.sqlite", "b1")
    for step in history:
        reads.apply([step], EPOCH)
    assert [change.serial for change in reads.changes_since(0)] == changes[-3:]
    for serial in changes:
        assert reads.events_after(serial, 10).missing[0] == (serial < changes[-4]), serial
    assert reads.events_after(0, 10, from_oldest=True).missing == (False, False)
    assert reads.events_after(reads.events_after(0, 1).newest + 1, 10).missing == (True, True)
    reads.close()
    again = ReadModel(tmp_path / "kept.sqlite", "b1")
    assert again.events_after(changes[0], 10).missing[0], "forgotten over a restart"
    again.close()


def test_a_job_with_many_decisions_loses_the_oldest_and_says_so(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "DECISIONS_PER_JOB_MAX", 1)
    reads = ReadModel(tmp_path / "reads.sqlite", "b1")
    for step in history:
        reads.apply([step], EPOCH)
    page = reads.events_after(0, 10_000)
    kept = [item.serial for item in page.items if hasattr(item, "row")]
    assert kept
    assert page.missing[1]
    assert not reads.events_after(kept[-1], 10).missing[1]
    reads.close()


@pytest.mark.parametrize(("ring", "page"), [(2_000, 500), (4, 3), (1, 1)])
def test_every_watcher_hears_everything_once_and_in_order(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch, ring: int, page: int
) -> None:
    monkeypatch.setattr(event_stream, "RING_MAX", ring)
    monkeypatch.setattr(event_stream, "PAGE", page)
    reads = ReadModel(tmp_path / "other.sqlite", "b1")
    reads.apply(history, EPOCH)
    last = reads.events_after(0, 10_000).items[-1].serial
    reads.close()

    async def story(place: Place) -> None:
        third = len(history) // 3
        await place.tell(history[:third])
        early = [asyncio.create_task(place.hear(Subscription(BOTH, after_id="0"), last)) for _ in range(3)]
        now = asyncio.create_task(place.hear(Subscription(BOTH), last))
        for at in range(third, 2 * third, 5):
            await place.tell(history[at : min(at + 5, 2 * third)])
        middle = place.whole()[len(place.whole()) // 2]
        late = asyncio.create_task(place.hear(Subscription(BOTH, after_id=f"b1/{middle}"), last))
        await place.tell(history[2 * third :])
        whole = place.whole()
        assert await asyncio.gather(*early) == [whole] * 3
        assert await late == [serial for serial in whole if serial > middle]
        heard = await now
        assert heard == whole[len(whole) - len(heard) :]
        assert place.events.watchers == 0

    played(tmp_path, story)


def test_a_watcher_that_is_too_far_behind_hears_of_a_gap(
    tmp_path: Path, history: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(place: Place) -> None:
        await place.tell(history[:60])
        first = place.whole()[0]
        await place.tell(history[60:])
        assert await place.hear(Subscription(BOTH, after_id=f"b1/{first}"), 0) == [-1]
        decided = [
            item.serial
            for item in place.feed.read_model.events_after(first, 10_000).items
            if hasattr(item, "row")
        ]
        heard = await place.hear(Subscription(("decisions",), after_id=f"b1/{first}"), decided[-1])
        assert heard == decided, "of decisions nothing is missing"

    monkeypatch.setattr(sqlite_writer, "CHANGES_MAX", 2)
    played(tmp_path, story)


def test_there_are_only_so_many_watchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(place: Place) -> None:
        streams: list[Any] = [place.events.open(Subscription(BOTH)) for _ in range(2)]
        for stream in streams:
            await anext(stream)
        with pytest.raises(RefusedError) as refused:
            place.events.open(Subscription(BOTH))
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "1")
        await streams[0].aclose()
        third: Any = place.events.open(Subscription(BOTH))
        await anext(third)
        for stream in (streams[1], third):
            await stream.aclose()
        assert place.events.watchers == 0

    monkeypatch.setattr(event_stream, "WATCHERS_MAX", 2)
    played(tmp_path, story)


async def endless(ended: list[bool]) -> AsyncIterator[bytes]:
    try:
        while True:
            yield b"data: 1\n\n"
            await asyncio.sleep(0)
    finally:
        ended.append(True)


class Reader:
    """Whoever reads a stream: takes so many pieces, then nothing for a while."""

    def __init__(self, takes: int, again: bool) -> None:
        self.taken: list[bytes] = []
        self.aborted = False
        self._takes = takes
        self._again = again
        self.gone = asyncio.Event()
        self.scope = {"state": {"abort": self._abort, "closing": asyncio.Event()}}

    def _abort(self) -> None:
        self.aborted = True

    async def send(self, message: Any) -> None:
        body = message.get("body", b"")
        if len(self.taken) >= self._takes and not (self._again and body == SLOW):
            await asyncio.Event().wait()
        if body:
            self.taken.append(body)

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}


@pytest.mark.parametrize("again", [True, False])
def test_who_takes_nothing_is_cut_and_told_if_possible(monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    async def play() -> None:
        ended: list[bool] = []
        reader = Reader(3, again)
        async with asyncio.timeout(60):
            await EventStream(endless(ended), 0.01)(reader.scope, reader.receive, reader.send)
        assert (reader.aborted, ended) == (True, [True])
        assert (reader.taken[-1] == SLOW) == again

    monkeypatch.setattr(event_stream, "FAREWELL_SECONDS", 0.01)
    asyncio.run(play())


def test_who_leaves_is_not_sent_more() -> None:
    async def play() -> None:
        ended: list[bool] = []
        reader = Reader(10**9, again=False)
        stream = asyncio.create_task(EventStream(endless(ended))(reader.scope, reader.receive, reader.send))
        while len(reader.taken) < 5:
            await asyncio.sleep(0)
        reader.gone.set()
        async with asyncio.timeout(60):
            await stream
        assert (reader.aborted, ended) == (False, [True])

    asyncio.run(play())


def test_clusters_are_told_when_they_change_and_to_late_comers_at_once() -> None:
    async def play() -> None:
        now = {"c1": ClusterAnswer("c1", seen_seconds=1.0), "c2": ClusterAnswer("c2")}
        told = []
        watch = ClusterStatusTracker(("c1", "c2"), now.__getitem__, lambda: None)
        watch.on_change = lambda: told.append(1)
        watch.add_watcher()
        seen: dict[str, int] = {}
        assert [answer.name for answer in watch.changes_since(seen)] == ["c1", "c2"]
        assert watch.changes_since(seen) == []
        now["c1"] = msgspec.structs.replace(now["c1"], seen_seconds=2.0)
        watch._on_timer()
        assert watch.changes_since(seen) == [], "that it is seen later and later is no news"
        now["c1"] = msgspec.structs.replace(now["c1"], reachable=True)
        watch._on_timer()
        assert [answer.reachable for answer in watch.changes_since(seen)] == [True]
        assert len(watch.changes_since({})) == 2
        assert len(told) == 2
        watch.remove_watcher()
        assert watch._timer is None

    asyncio.run(play())
