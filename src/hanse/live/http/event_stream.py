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
from hanse.api.row_records import JobStateChange
from hanse.live.http.cluster_status_stream import ClusterStatusTracker
from hanse.live.http.operation_record import EVENT_STREAM
from hanse.live.http.responses import retry_later
from hanse.live.readmodel.event_log import EventPage
from hanse.live.readmodel.feeder import FeedItem, ReadModelFeeder
from hanse.live.readmodel.projector import SERIAL_BITS
from hanse.live.shell import FailureHandler

WATCHERS_MAX: Final = 500
"""Watchers of one broker."""
RING_MAX: Final = 2_000
"""Events kept in memory for up-to-date watchers."""
PAGE: Final = 500
"""Events read from the file at once."""
KEEPALIVE_SECONDS: Final = 15.0
"""Seconds that a stream may be silent; then a comment with the watcher's position is sent."""
STALL_SECONDS_MAX: Final = 30.0
"""Seconds that a watcher may read nothing of what was sent."""
FAREWELL_SECONDS: Final = 1.0
"""Seconds that a watcher has to read why it is disconnected."""
SLOW: Final = b": too slow: you are cut off; come back with Last-Event-ID\n\n"
CLOSING: Final = b": this broker stops; come back with Last-Event-ID\n\n"
OPENING: Final = b"retry: 1000\n"
_encode: Final = msgspec.json.Encoder().encode


class StreamEvent(NamedTuple):
    """An encoded event."""

    serial: int
    topic: str
    job: str
    tenant: str
    text: bytes


class Subscription(NamedTuple):
    """The filter of a watcher."""

    topics: tuple[str, ...]
    job: str = ""
    tenant: str = ""
    after_id: str = ""
    """The id after which to begin; empty: now; ``0``: with the oldest on record."""

    def matches(self, event: StreamEvent) -> bool:
        """Return whether an event passes the filter."""
        return (
            event.topic in self.topics and self.job in ("", event.job) and self.tenant in ("", event.tenant)
        )


class EventBroadcaster:
    """The events of one broker, for all watchers."""

    def __init__(
        self, broker: str, feeder: ReadModelFeeder, clusters: ClusterStatusTracker, fail: FailureHandler
    ) -> None:
        self._broker = broker
        self._feeder = feeder
        self._clusters = clusters
        self._fail = fail
        self.watchers = 0
        self._ring: deque[StreamEvent] = deque(maxlen=RING_MAX)
        self._ring_from = 0
        """The ring buffer has everything between this serial and ``_ring_upto``."""
        self._ring_upto = 0
        self._changed = asyncio.Event()
        self._pull: asyncio.Task[None] | None = None
        self._pull_again = False
        feeder.listeners.append(self._on_events_applied)
        clusters.on_change = self.wake

    def open(self, subscription: Subscription) -> AsyncIterator[bytes]:
        """Return a watcher's stream; it must be run to its end or closed."""
        if self.watchers >= WATCHERS_MAX:
            raise retry_later(503, "too_many_watchers", f"this broker has {WATCHERS_MAX} watchers already")
        return self._stream(subscription)

    def wake(self) -> None:
        """Wake all watchers: there are new events."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- the ring -------------------------------------------------------------------------------------------

    def _on_events_applied(self, batch: list[FeedItem]) -> None:
        if not self.watchers:
            return
        self._clusters.on_events(batch)
        self._pull_again = True
        if self._pull is None:
            self._pull = asyncio.get_running_loop().create_task(self._pull_all())
            self._pull.add_done_callback(self._on_pull_done)

    async def _pull_all(self) -> None:
        """Read new events from the file, once for all watchers."""
        while self._pull_again and self.watchers:
            self._pull_again = False
            after = self._ring_upto
            page = await self._feeder.query_stale(partial(self._feeder.read_model.events_after, after, PAGE))
            if self._ring_upto != after:  # all watchers left and a new one came: restart at its position
                self._pull_again = True
                continue
            if any(page.missing):
                self._ring.clear()  # more events than are kept: each watcher reads the gap from the file
                self._ring_from = self._ring_upto = page.newest
            else:
                self._add(page)
            self.wake()

    def _add(self, page: EventPage) -> None:
        for event in self._encode_page(page):
            if len(self._ring) == RING_MAX:
                self._ring_from = self._ring[0].serial
            self._ring.append(event)
        self._ring_upto = page.up_to
        if page.up_to < page.newest:
            self._pull_again = True

    def _on_pull_done(self, task: "asyncio.Task[None]") -> None:
        self._pull = None
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._fail(error)
        elif self._pull_again:
            self._on_events_applied([])

    def _encode_page(self, page: EventPage) -> list[StreamEvent]:
        """Return the items of a page as encoded events."""
        events = []
        for item in page.items:
            data: JobEvent | DecisionEvent
            if isinstance(item, JobStateChange):
                topic, kind = "jobs", "job"
                data = JobEvent(item.job, item.name, item.tenant, item.state, item.owner, item.at)
            else:
                topic, kind = "decisions", "decision"
                data = DecisionEvent(item.job, item.tenant, item.row)
            text = self._encode_event(kind, data, self._id(item.serial))
            events.append(StreamEvent(item.serial, topic, item.job, item.tenant, text))
        return events

    def _id(self, serial: int) -> str:
        return f"{self._broker}/{serial}"

    @staticmethod
    def _encode_event(kind: str, data: Any, number: str = "") -> bytes:
        head = f"id: {number}\n" if number else ""
        return f"{head}event: {kind}\ndata: ".encode() + _encode(data) + b"\n\n"

    # --- one watcher ----------------------------------------------------------------------------------------

    async def _stream(self, subscription: Subscription) -> AsyncIterator[bytes]:
        self._add_watcher(subscription)
        try:
            seen: dict[str, int] = {}
            position, opening = self._start_position(subscription)
            yield opening
            while True:
                changed = self._changed
                position, texts = await self._next_events(position, subscription)
                if "clusters" in subscription.topics and not subscription.job:
                    texts += [
                        self._encode_event("cluster", answer) for answer in self._clusters.changes_since(seen)
                    ]
                if texts:
                    yield b"".join(texts)
                if position >= self._ring_upto:
                    try:
                        await asyncio.wait_for(changed.wait(), KEEPALIVE_SECONDS)
                    except TimeoutError:
                        yield f":\nid: {self._id(position)}\n\n".encode()
        finally:
            self._remove_watcher(subscription)

    def _add_watcher(self, subscription: Subscription) -> None:
        self.watchers += 1
        self._feeder.watcher_count += 1
        if self.watchers == 1:
            self._ring.clear()
            self._ring_from = self._ring_upto = self._latest_serial()
        if "clusters" in subscription.topics:
            self._clusters.add_watcher()

    def _remove_watcher(self, subscription: Subscription) -> None:
        self.watchers -= 1
        self._feeder.watcher_count -= 1
        if "clusters" in subscription.topics:
            self._clusters.remove_watcher()

    def _latest_serial(self) -> int:
        """Return the serial at or below which all readable events are."""
        return ((self._feeder.applied + 1) << SERIAL_BITS) - 1

    def _start_position(self, subscription: Subscription) -> tuple[int, bytes]:
        """Return a watcher's start position, and the first bytes to send."""
        broker, _, serial = subscription.after_id.rpartition("/")
        now = self._latest_serial()
        if broker == self._broker and int(serial) <= now:
            return int(serial), OPENING + b"\n"
        if subscription.after_id in ("", "0"):
            position = 0 if subscription.after_id else now
            return position, OPENING + f"id: {self._id(position)}\n\n".encode()
        # an id of another broker, or of a lost history: nothing here can follow it
        return now, OPENING + b"\n" + self._gap(subscription.after_id, now)

    def _gap(self, after_id: str, position: int) -> bytes:
        return self._encode_event("gap", GapEvent(after_id, self._id(position)), self._id(position))

    async def _next_events(self, position: int, subscription: Subscription) -> tuple[int, list[bytes]]:
        """Return the events after a position, and the new position."""
        if position >= self._ring_from:
            texts: list[bytes] = []
            for event in reversed(self._ring):
                if event.serial <= position:
                    break
                if subscription.matches(event):
                    texts.append(event.text)
            return max(position, self._ring_upto), texts[::-1]
        oldest = position == 0
        page = await self._feeder.query_stale(
            partial(self._feeder.read_model.events_after, position, PAGE, oldest)
        )
        lost = [topic for topic, missing in zip(("jobs", "decisions"), page.missing, strict=True) if missing]
        if any(topic in subscription.topics for topic in lost):
            return page.newest, [self._gap(self._id(position), page.newest)]
        return page.up_to, [event.text for event in self._encode_page(page) if subscription.matches(event)]


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
        others = [
            loop.create_task(_wait_for_disconnect(receive)),
            loop.create_task(scope["state"]["closing"].wait()),
        ]
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
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await send({"type": "http.response.body", "body": SLOW, "more_body": False})
            except TimeoutError:
                pass
            scope["state"]["abort"]()  # else the unsent bytes would be kept for ever
        finally:
            aclose = getattr(self._pieces, "aclose", None)
            if aclose is not None:
                await aclose()


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the reader has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
