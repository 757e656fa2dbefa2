"""Who hears what a backend says, in tests: every start and end can be awaited."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hanse.live.backends.interface import Backend, ReconcileResult, Stream
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import TaskId, job_id, task_id
from hanse.model.messages import AttemptEnd
from hanse.model.resources import Resources

WAIT_SECONDS_MAX = 60.0
"""Longer than anything here takes on a busy machine; reached only by a failure."""
SECOND = 1_000_000
HOUR = 3_600 * SECOND
SIZE = Resources(cpu=1_000, memory=64 << 20)
ESTATE = "amber#1"


def task(index: int) -> TaskId:
    """A task of the one job of these tests."""
    return task_id(job_id(1, 7), index)


def launch(
    payload: bytes, index: int = 0, *, attempt: int = 1, size: Resources = SIZE, moves: bool = True
) -> LaunchAttempt:
    """The order to start an attempt."""
    return LaunchAttempt(task(index), attempt, 0, size, ESTATE, moves, payload)


def now() -> int:
    """The clock that ``guard`` is told in."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000


class Desk:
    """Collects reports. A report from inside a call to the backend, or a second one, fails the test."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.found = ReconcileResult((), ())
        self.order: list[tuple[str, TaskId, int]] = []
        self.ends: dict[tuple[TaskId, int], AttemptEnd] = {}
        self.starts: set[tuple[TaskId, int]] = set()
        self.room: dict[int, Resources] = {}
        """Node -> what of it is not for us."""
        self._calling = False
        self._changed = asyncio.Event()
        self._complaints: list[str] = []

    def on_attempt_started(self, task: TaskId, attempt: int) -> None:
        key = (task, attempt)
        self._note(key in self.starts or key in self.ends, f"{key} started twice, or after its end")
        self.starts.add(key)
        self._heard("started", *key)

    def on_attempt_ended(self, end: AttemptEnd) -> None:
        key = (end.task, end.attempt)
        self._note(key in self.ends, f"{key} ended twice")
        self.ends[key] = end
        self._heard("exited", *key)

    def on_capacity_withheld(self, node: int, amount: Resources) -> None:
        self.room[node] = amount
        self._changed.set()

    def _heard(self, what: str, task: TaskId, attempt: int) -> None:
        self._note(self._calling, f"{what} {task} was reported from inside a call")
        self.order.append((what, task, attempt))
        self._changed.set()

    def _note(self, wrong: bool, complaint: str) -> None:
        if wrong:
            self._complaints.append(complaint)

    def _call(self, call: Callable[[], None]) -> None:
        self._calling = True
        try:
            call()
        finally:
            self._calling = False

    def start(self, order: LaunchAttempt) -> None:
        self._call(lambda: self.backend.start(order))

    def stop(self, index: int = 0, grace: int = HOUR, *, attempt: int = 1) -> None:
        self._call(lambda: self.backend.stop(task(index), attempt, grace))

    def guard(self, until: int) -> None:
        self._call(lambda: self.backend.extend_watchdog(until))

    def forget(self, index: int = 0, *, attempt: int = 1) -> None:
        self._call(lambda: self.backend.forget(task(index), attempt))

    async def start_of(self, index: int = 0, *, attempt: int = 1) -> None:
        """Wait for the start of an attempt."""
        await self._until(lambda: (task(index), attempt) in self.starts)

    async def end_of(self, index: int = 0, *, attempt: int = 1) -> AttemptEnd:
        """Wait for the end of an attempt."""
        key = (task(index), attempt)
        await self._until(lambda: key in self.ends)
        return self.ends[key]

    async def run(self, order: LaunchAttempt) -> AttemptEnd:
        """Start an attempt and wait for its end."""
        self.start(order)
        key = (order.task, order.attempt)
        await self._until(lambda: key in self.ends)
        return self.ends[key]

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
        self.check()

    def check(self) -> None:
        """Nothing was said that should not have been."""
        assert self._complaints == []


@asynccontextmanager
async def at_desk(backend: Backend) -> AsyncIterator[Desk]:
    """A backend in use, closed at the end."""
    desk = Desk(backend)
    try:
        desk.found = await backend.reconcile(desk)
        yield desk
        desk.check()
    finally:
        await backend.close()


def with_desk(backend: Callable[[], Backend], story: Callable[[Desk], Awaitable[None]]) -> None:
    """Tell a story of one backend, from its start to its end."""

    async def whole() -> None:
        async with at_desk(backend()) as desk:
            await story(desk)

    asyncio.run(whole())


async def read(backend: Backend, index: int = 0, stream: Stream = Stream.STDOUT, *, offset: int = 0) -> bytes:
    """All of an output that is there now."""
    return b"".join([piece async for piece in backend.output(task(index), 1, stream, offset)])


async def read_until(backend: Backend, text: bytes, index: int = 0) -> bytes:
    """Follow an attempt's stdout until it has said this."""
    heard = b""
    pieces = backend.output(task(index), 1, Stream.STDOUT, follow=True)
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            async for piece in pieces:
                heard += piece
                if text in heard:
                    return heard
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]  # every backend's is a generator
    raise AssertionError(f"it ended and never said {text!r}, but {heard!r}")
