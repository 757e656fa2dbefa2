"""Server-sent events: the events of a broker, pushed to watchers.

State changes of jobs and decisions are one sequence (``readmodel.event_log``); its serials come from journal
positions, so an id stays valid after a disconnect, after a restart, and in a rebuilt read model. Each watcher
gets everything after its id, in order, at least once; events that are no longer stored are replaced by one
event ``gap``. A watcher costs only its position: up-to-date watchers are served from one shared ring buffer,
the others from the file. A watcher that reads nothing for too long is disconnected.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hanse.api.records import DecisionEvent, GapEvent, JobEvent
from hanse.api.rows import Change
from hanse.live.http.cluster_status_stream import ClusterWatch
from hanse.live.http.operations import EVENT_STREAM
from hanse.live.http.responses import later
from hanse.live.readmodel.event_log import Happened
from hanse.live.readmodel.feeder import Feed, Item
from hanse.live.readmodel.projector import SERIAL_BITS
from hanse.live.shell import Fail

WATCHERS_MAX: Final = 500
"""Watchers of one broker."""
RING_MAX: Final = 2_000
"""Events kept in memory for up-to-date watchers."""
PAGE: Final = 500
"""Events read from the file at once."""
BEAT_SECONDS: Final = 15.0
"""Seconds that a stream may be silent; then a comment with the watcher's position is sent."""
STALL_SECONDS_MAX: Final = 30.0
"""Seconds that a watcher may read nothing of what was sent."""
LAST_WORD_SECONDS: Final = 1.0
"""Seconds that a watcher has to read why it is disconnected."""
SLOW: Final = b": too slow: you are cut off; come back with Last-Event-ID\n\n"
CLOSING: Final = b": this broker stops; come back with Last-Event-ID\n\n"
OPENING: Final = b"retry: 1000\n"
_encode: Final = msgspec.json.Encoder().encode


class Event(NamedTuple):
    """An encoded event."""

    serial: int
    topic: str
    job: str
    tenant: str
    text: bytes


class Wanted(NamedTuple):
    """The filter of a watcher."""

    topics: tuple[str, ...]
    job: str = ""
    tenant: str = ""
    asked: str = ""
    """The id after which to begin; empty: now; ``0``: with the oldest on record."""

    def takes(self, event: Event) -> bool:
        """Return whether an event passes the filter."""
        return (
            event.topic in self.topics and self.job in ("", event.job) and self.tenant in ("", event.tenant)
        )


class Events:
    """The events of one broker, for all watchers."""

    def __init__(self, broker: str, feed: Feed, clusters: ClusterWatch, fail: Fail) -> None:
        self._broker = broker
        self._feed = feed
        self._clusters = clusters
        self._fail = fail
        self.watchers = 0
        self._ring: deque[Event] = deque(maxlen=RING_MAX)
        self._ring_from = 0
        """The ring buffer has everything between this serial and ``_ring_upto``."""
        self._upto = 0
        self._changed = asyncio.Event()
        self._pull: asyncio.Task[None] | None = None
        self._again = False
        feed.heard.append(self._hear)
        clusters.changed = self.wake

    def open(self, wanted: Wanted) -> AsyncIterator[bytes]:
        """Return a watcher's stream; it must be run to its end or closed."""
        if self.watchers >= WATCHERS_MAX:
            raise later(503, "too_many_watchers", f"this broker has {WATCHERS_MAX} watchers already")
        return self._stream(wanted)

    def wake(self) -> None:
        """Wake all watchers: there are new events."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- the ring -------------------------------------------------------------------------------------------

    def _hear(self, batch: list[Item]) -> None:
        if not self.watchers:
            return
        self._clusters.hear(batch)
        self._again = True
        if self._pull is None:
            self._pull = asyncio.get_running_loop().create_task(self._pull_all())
            self._pull.add_done_callback(self._pulled)

    async def _pull_all(self) -> None:
        """Read new events from the file, once for all watchers."""
        while self._again and self.watchers:
            self._again = False
            after = self._upto
            page = await self._feed.peek(partial(self._feed.reads.happened, after, PAGE))
            if self._upto != after:  # all watchers left and a new one came: restart at its position
                self._again = True
                continue
            if any(page.missing):
                self._ring.clear()  # more events than are kept: each watcher reads the gap from the file
                self._ring_from = self._upto = page.newest
            else:
                self._add(page)
            self.wake()

    def _add(self, page: Happened) -> None:
        for event in self._events(page):
            if len(self._ring) == RING_MAX:
                self._ring_from = self._ring[0].serial
            self._ring.append(event)
        self._upto = page.upto
        if page.upto < page.newest:
            self._again = True

    def _pulled(self, task: "asyncio.Task[None]") -> None:
        self._pull = None
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._fail(error)
        elif self._again:
            self._hear([])

    def _events(self, page: Happened) -> list[Event]:
        """Return the items of a page as encoded events."""
        found = []
        for item in page.items:
            data: JobEvent | DecisionEvent
            if isinstance(item, Change):
                topic, kind = "jobs", "job"
                data = JobEvent(item.job, item.name, item.tenant, item.state, item.owner, item.at)
            else:
                topic, kind = "decisions", "decision"
                data = DecisionEvent(item.job, item.tenant, item.row)
            text = self._text(kind, data, self._id(item.serial))
            found.append(Event(item.serial, topic, item.job, item.tenant, text))
        return found

    def _id(self, serial: int) -> str:
        return f"{self._broker}/{serial}"

    @staticmethod
    def _text(kind: str, data: Any, number: str = "") -> bytes:
        head = f"id: {number}\n" if number else ""
        return f"{head}event: {kind}\ndata: ".encode() + _encode(data) + b"\n\n"

    # --- one watcher ----------------------------------------------------------------------------------------

    async def _stream(self, wanted: Wanted) -> AsyncIterator[bytes]:
        self._begin(wanted)
        try:
            seen: dict[str, int] = {}
            place, opening = self._place(wanted)
            yield opening
            while True:
                changed = self._changed
                place, texts = await self._next(place, wanted)
                if "clusters" in wanted.topics and not wanted.job:
                    texts += [self._text("cluster", answer) for answer in self._clusters.since(seen)]
                if texts:
                    yield b"".join(texts)
                if place >= self._upto:
                    try:
                        await asyncio.wait_for(changed.wait(), BEAT_SECONDS)
                    except TimeoutError:
                        yield f":\nid: {self._id(place)}\n\n".encode()
        finally:
            self._end(wanted)

    def _begin(self, wanted: Wanted) -> None:
        self.watchers += 1
        self._feed.watchers += 1
        if self.watchers == 1:
            self._ring.clear()
            self._ring_from = self._upto = self._now()
        if "clusters" in wanted.topics:
            self._clusters.watch()

    def _end(self, wanted: Wanted) -> None:
        self.watchers -= 1
        self._feed.watchers -= 1
        if "clusters" in wanted.topics:
            self._clusters.leave()

    def _now(self) -> int:
        """Return the serial at or below which all readable events are."""
        return ((self._feed.applied + 1) << SERIAL_BITS) - 1

    def _place(self, wanted: Wanted) -> tuple[int, bytes]:
        """Return a watcher's start position, and the first bytes to send."""
        broker, _, serial = wanted.asked.rpartition("/")
        now = self._now()
        if broker == self._broker and int(serial) <= now:
            return int(serial), OPENING + b"\n"
        if wanted.asked in ("", "0"):
            place = 0 if wanted.asked else now
            return place, OPENING + f"id: {self._id(place)}\n\n".encode()
        # an id of another broker, or of a lost history: nothing here can follow it
        return now, OPENING + b"\n" + self._gap(wanted.asked, now)

    def _gap(self, asked: str, place: int) -> bytes:
        return self._text("gap", GapEvent(asked, self._id(place)), self._id(place))

    async def _next(self, place: int, wanted: Wanted) -> tuple[int, list[bytes]]:
        """Return the events after a position, and the new position."""
        if place >= self._ring_from:
            fresh: list[bytes] = []
            for event in reversed(self._ring):
                if event.serial <= place:
                    break
                if wanted.takes(event):
                    fresh.append(event.text)
            return max(place, self._upto), fresh[::-1]
        oldest = place == 0
        page = await self._feed.peek(partial(self._feed.reads.happened, place, PAGE, oldest))
        lost = [topic for topic, gone in zip(("jobs", "decisions"), page.missing, strict=True) if gone]
        if any(topic in wanted.topics for topic in lost):
            return page.newest, [self._gap(self._id(place), page.newest)]
        return page.upto, [event.text for event in self._events(page) if wanted.takes(event)]


class EventStream(StreamingResponse):
    """A streaming response that runs until its reader leaves or is too slow."""

    media_type = EVENT_STREAM

    def __init__(self, pieces: AsyncIterator[bytes], stall_seconds: float = STALL_SECONDS_MAX) -> None:
        super().__init__(pieces, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._pieces = pieces
        self._stall = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the reader leaves, the stream ends, or the server closes."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        loop = asyncio.get_running_loop()
        pump = loop.create_task(self._pump(scope, send))
        others = [loop.create_task(_left(receive)), loop.create_task(scope["state"]["closing"].wait())]
        try:
            await asyncio.wait((pump, *others), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, *others):
                task.cancel()
            await asyncio.gather(pump, *others, return_exceptions=True)
        if not pump.cancelled() and pump.exception() is not None:
            raise pump.exception() or AssertionError("there was one")
        if scope["state"]["closing"].is_set():
            await send({"type": "http.response.body", "body": CLOSING, "more_body": False})

    async def _pump(self, scope: Scope, send: Send) -> None:
        try:
            async for piece in self._pieces:
                async with asyncio.timeout(self._stall):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            try:
                async with asyncio.timeout(LAST_WORD_SECONDS):
                    await send({"type": "http.response.body", "body": SLOW, "more_body": False})
            except TimeoutError:
                pass
            scope["state"]["abort"]()  # else the unsent bytes would be kept for ever
        finally:
            aclose = getattr(self._pieces, "aclose", None)
            if aclose is not None:
                await aclose()


async def _left(receive: Receive) -> None:
    """Wait until the reader has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
