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
from hanse.league.backend_kinds import BackendKind
from hanse.live.backends.interface import BackendListener, PendingAttempt, ReconcileResult, Stream
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import JobId, TaskId, task_text
from hanse.model.messages import AttemptEnd, Outcome, ResourceUsage

AttemptId = tuple[TaskId, int]
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


class _NullAttempt(msgspec.Struct):
    """An attempt that runs."""

    program: NullTask
    started_at: int
    due_at: int
    outcome: Outcome
    code: int
    note: str = ""


class NullBackend:
    """Runner of the tasks of one runner that does nothing; see ``interface.Backend``."""

    def __init__(self, nodes: tuple[NodeConfig, ...], *, duration: int = 0) -> None:
        self._nodes = nodes
        self._default_task = NullTask(duration)
        self._listener: BackendListener | None = None
        self._live: dict[AttemptId, _NullAttempt] = {}
        self._ended: dict[AttemptId, AttemptEnd] = {}
        self._just_started: deque[AttemptId] = deque()
        self._due_times: list[tuple[int, AttemptId]] = []
        self._deadline = 0
        self._timer: asyncio.Handle | None = None
        self._timer_at: int | None = None
        self._followers: dict[AttemptId, list[asyncio.Event]] = {}
        self._closed = False

    async def capacity(self) -> tuple[NodeConfig, ...]:
        """Return the configured nodes."""
        return self._nodes

    async def reconcile(self, listener: BackendListener) -> ReconcileResult:
        """Return no attempts: none survives a restart."""
        assert self._listener is None, "reconcile is called once"
        self._listener = listener
        return ReconcileResult((), ())

    def start(self, launch: LaunchAttempt) -> None:
        """Pretend to start an attempt."""
        key = (launch.task, launch.attempt)
        assert key not in self._live, f"start called twice for {task_text(key[0])} attempt {key[1]}"
        task = self._default_task
        if launch.payload:
            try:
                task = _decoder.decode(launch.payload)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                task = self._default_task  # a real program: it lasts for the default duration
        now = _now()
        outcome = Outcome.FAILED if task.code else Outcome.SUCCEEDED
        due = now + task.duration
        self._live[key] = _NullAttempt(task, now, due, outcome, task.code)
        self._just_started.append(key)
        if due > now:
            heappush(self._due_times, (due, key))
        self._set_timer(now)

    def stop(self, task: TaskId, attempt: int, grace: int) -> None:
        """Pretend to signal an attempt."""
        live = self._live.get((task, attempt))
        if live is None:
            return
        now = _now()
        at = now + grace if live.program.stubborn else now
        if live.outcome is not Outcome.CANCELLED or at < live.due_at:
            live.outcome, live.code = Outcome.CANCELLED, -9 if live.program.stubborn else -15
            live.due_at = min(at, live.due_at)
            heappush(self._due_times, (live.due_at, (task, attempt)))
            self._set_timer(live.due_at)

    def extend_watchdog(self, until: int) -> None:
        """End all attempts at ``until``; fails while the process hangs, but so do its tasks."""
        self._deadline = max(self._deadline, until)
        if self._live:
            self._set_timer(self._deadline)

    def forget(self, task: TaskId, attempt: int) -> None:
        """Drop the end."""
        self._ended.pop((task, attempt), None)

    def pending_attempts(self, job: JobId) -> tuple[PendingAttempt, ...]:  # noqa: ARG002  no job has any
        """Return nothing: every started attempt runs at once."""
        return ()

    def closed_nodes(self) -> Mapping[int, str]:
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

    async def _follow(self, key: AttemptId) -> None:
        """Wait for the end of an attempt."""
        if sum(map(len, self._followers.values())) >= FOLLOWERS_MAX:
            raise OSError(f"{FOLLOWERS_MAX} outputs are followed already; try again later")
        ended = asyncio.Event()
        self._followers.setdefault(key, []).append(ended)
        try:
            await ended.wait()
        finally:
            followers = self._followers.get(key, [])
            if ended in followers:
                followers.remove(ended)
            if not followers:
                self._followers.pop(key, None)

    async def close(self) -> None:
        """Stop the timer and release all followers."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for followers in self._followers.values():
            for follower in followers:
                follower.set()

    def _set_timer(self, at: int) -> None:
        """Call ``_on_timer`` at this time, by one timer for all attempts."""
        if self._timer is not None:
            assert self._timer_at is not None
            if self._timer_at <= at:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        delay = at - _now()
        self._timer_at = at
        self._timer = (
            loop.call_later(delay / 1e6, self._on_timer) if delay > 0 else loop.call_soon(self._on_timer)
        )

    def _on_timer(self) -> None:
        self._timer = self._timer_at = None
        now = _now()
        for _ in range(len(self._just_started)):
            key = self._just_started.popleft()
            live = self._live.get(key)
            if live is not None and self._deadline and now >= self._deadline:
                live.outcome, live.code, live.note = Outcome.UNSTARTED, 0, "no lease to start it under"
                self._finish(key, live, now)
                continue
            assert self._listener is not None, "a start before reconcile"
            self._listener.on_attempt_started(*key)
            live = self._live.get(key)
            if live is not None and live.due_at <= now:
                self._finish(key, live, now)
        while self._due_times and self._due_times[0][0] <= now:
            due, key = heappop(self._due_times)
            live = self._live.get(key)
            if live is not None and live.due_at == due:
                self._finish(key, live, now)
        if self._deadline and now >= self._deadline:
            for key, live in list(self._live.items()):
                live.outcome, live.code, live.note = Outcome.LOST, -9, "the lease it ran under is over"
                self._finish(key, live, now)
        self._set_next_timer()

    def _set_next_timer(self) -> None:
        """Set the timer for the next due time."""
        if self._just_started:
            self._set_timer(0)
        elif self._live:
            due = self._due_times[0][0] if self._due_times else self._deadline
            self._set_timer(min(due, self._deadline) if self._deadline else due)

    def _finish(self, key: AttemptId, live: _NullAttempt, now: int) -> None:
        del self._live[key]
        end = AttemptEnd(
            *key, live.outcome, live.code, ResourceUsage(run_time=now - live.started_at), live.note
        )
        self._ended[key] = end
        for follower in self._followers.pop(key, ()):
            follower.set()
        assert self._listener is not None, "an end before reconcile"
        self._listener.on_attempt_ended(end)


NULL: Final = BackendKind(name="null", make=lambda entry, _: NullBackend(entry.nodes))
"""The kind of backend ``null``."""


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
