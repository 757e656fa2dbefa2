"""A backend that runs nothing, for measurements of everything else.

An attempt lasts as long as its payload (``NullTask``) or the backend's ``duration`` says. All state is in
this process: after a restart no attempt runs or has ended here. The league then finds that the attempts it
had placed here are gone, counts them as lost and starts them anew, so only time is lost.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from heapq import heappop, heappush
from typing import Final

import msgspec

from hanse.core.config import NodeConfig
from hanse.live.backends.interface import Found, Reports, Stream, Wait
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import JobId, TaskId, task_text
from hanse.model.messages import AttemptEnd, Outcome, ResourceUsage

Key = tuple[TaskId, int]
FOLLOWERS_MAX: Final = 64
"""Followers of outputs at once; further ones are refused."""


class NullTask(msgspec.Struct, frozen=True, array_like=True, tag="null"):
    """Behaviour of a null task."""

    duration: int = 0
    """Run time in microseconds."""
    code: int = 0
    """Exit code."""
    stubborn: bool = False
    """True if it ignores SIGTERM and ends only when the grace is over."""


_decoder = msgspec.msgpack.Decoder(NullTask)


def null_payload(task: NullTask) -> bytes:
    """Return a payload for this backend."""
    return msgspec.msgpack.encode(task)


class _Live(msgspec.Struct):
    """An attempt that runs."""

    task: NullTask
    began: int
    due: int
    outcome: Outcome
    code: int
    note: str = ""


class NullBackend:
    """Runner of the tasks of one runner that does nothing; see ``interface.Backend``."""

    def __init__(self, nodes: tuple[NodeConfig, ...], *, duration: int = 0) -> None:
        self._nodes = nodes
        self._usual = NullTask(duration)
        self._reports: Reports | None = None
        self._live: dict[Key, _Live] = {}
        self._ended: dict[Key, AttemptEnd] = {}
        self._fresh: deque[Key] = deque()
        self._due: list[tuple[int, Key]] = []
        self._until = 0
        self._turn: asyncio.Handle | None = None
        self._turn_at: int | None = None
        self._followers: dict[Key, list[asyncio.Event]] = {}
        self._closed = False

    async def capacity(self) -> tuple[NodeConfig, ...]:
        """Return the configured nodes."""
        return self._nodes

    async def reconcile(self, reports: Reports) -> Found:
        """Return no attempts: none survives a restart."""
        assert self._reports is None, "reconcile is called once"
        self._reports = reports
        return Found((), ())

    def start(self, launch: LaunchAttempt) -> None:
        """Pretend to start an attempt."""
        key = (launch.task, launch.attempt)
        assert key not in self._live, f"start called twice for {task_text(key[0])} attempt {key[1]}"
        task = self._usual
        if launch.payload:
            try:
                task = _decoder.decode(launch.payload)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                task = self._usual  # a real program: it lasts for the default duration
        now = _now()
        outcome = Outcome.FAILED if task.code else Outcome.SUCCEEDED
        due = now + task.duration
        self._live[key] = _Live(task, now, due, outcome, task.code)
        self._fresh.append(key)
        if due > now:
            heappush(self._due, (due, key))
        self._wake(now)

    def stop(self, task: TaskId, attempt: int, grace: int) -> None:
        """Pretend to signal an attempt."""
        live = self._live.get((task, attempt))
        if live is None:
            return
        now = _now()
        at = now + grace if live.task.stubborn else now
        if live.outcome is not Outcome.CANCELLED or at < live.due:
            live.outcome, live.code = Outcome.CANCELLED, -9 if live.task.stubborn else -15
            live.due = min(at, live.due)
            heappush(self._due, (live.due, (task, attempt)))
            self._wake(live.due)

    def guard(self, until: int) -> None:
        """End all attempts at ``until``; fails while the process hangs, but so do its tasks."""
        self._until = max(self._until, until)
        if self._live:
            self._wake(self._until)

    def forget(self, task: TaskId, attempt: int) -> None:
        """Drop the end."""
        self._ended.pop((task, attempt), None)

    def waits(self, job: JobId) -> tuple[Wait, ...]:  # noqa: ARG002  no job has any
        """Return nothing: every started attempt runs at once."""
        return ()

    def closures(self) -> Mapping[int, str]:
        """Return nothing: no node is withheld."""
        return {}

    async def output(
        self, task: TaskId, attempt: int, stream: Stream, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield nothing; raise ``FileNotFoundError`` for attempts that are unknown here."""
        key = (task, attempt)
        if key not in self._live and key not in self._ended:
            raise FileNotFoundError(f"{task_text(task)} attempt {attempt} never wrote to {stream} here")
        if follow and key in self._live and not self._closed:
            await self._follow(key)
        for nothing in (b"",)[offset:0]:
            yield nothing

    async def _follow(self, key: Key) -> None:
        """Wait for the end of an attempt."""
        if sum(map(len, self._followers.values())) >= FOLLOWERS_MAX:
            raise OSError(f"{FOLLOWERS_MAX} outputs are followed already; try again later")
        over = asyncio.Event()
        self._followers.setdefault(key, []).append(over)
        try:
            await over.wait()
        finally:
            followers = self._followers.get(key, [])
            if over in followers:
                followers.remove(over)
            if not followers:
                self._followers.pop(key, None)

    async def close(self) -> None:
        """Stop the timer and release all followers."""
        self._closed = True
        if self._turn is not None:
            self._turn.cancel()
        for followers in self._followers.values():
            for follower in followers:
                follower.set()

    def _wake(self, at: int) -> None:
        """Call ``_on_timer`` at this time, by one timer for all attempts."""
        if self._turn is not None:
            assert self._turn_at is not None
            if self._turn_at <= at:
                return
            self._turn.cancel()
        loop = asyncio.get_running_loop()
        wait = at - _now()
        self._turn_at = at
        self._turn = loop.call_later(wait / 1e6, self._go) if wait > 0 else loop.call_soon(self._go)

    def _go(self) -> None:
        self._turn = self._turn_at = None
        now = _now()
        for _ in range(len(self._fresh)):
            key = self._fresh.popleft()
            live = self._live.get(key)
            if live is not None and self._until and now >= self._until:
                live.outcome, live.code, live.note = Outcome.UNSTARTED, 0, "no lease to start it under"
                self._over(key, live, now)
                continue
            assert self._reports is not None, "a start before reconcile"
            self._reports.started(*key)
            live = self._live.get(key)
            if live is not None and live.due <= now:
                self._over(key, live, now)
        while self._due and self._due[0][0] <= now:
            due, key = heappop(self._due)
            live = self._live.get(key)
            if live is not None and live.due == due:
                self._over(key, live, now)
        if self._until and now >= self._until:
            for key, live in list(self._live.items()):
                live.outcome, live.code, live.note = Outcome.LOST, -9, "the lease it ran under is over"
                self._over(key, live, now)
        self._rest()

    def _rest(self) -> None:
        """Set the timer for the next due time."""
        if self._fresh:
            self._wake(0)
        elif self._live:
            due = self._due[0][0] if self._due else self._until
            self._wake(min(due, self._until) if self._until else due)

    def _over(self, key: Key, live: _Live, now: int) -> None:
        del self._live[key]
        end = AttemptEnd(*key, live.outcome, live.code, ResourceUsage(run_time=now - live.began), live.note)
        self._ended[key] = end
        for follower in self._followers.pop(key, ()):
            follower.set()
        assert self._reports is not None, "an end before reconcile"
        self._reports.exited(end)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
