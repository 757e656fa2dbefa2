"""The launcher by itself, spoken to in its own bytes: version 2 of control groups, versions, nonsense."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from hanse.live.backends.process.cgroups import group_name, read_mounts
from hanse.live.backends.process.launch_requests import AttemptMetadata
from hanse.live.backends.process.launcher_client import LauncherClient
from hanse.live.backends.process.launcher_protocol import (
    ENDED,
    FORGET,
    FOUND_ENDED,
    FOUND_RUNNING,
    FRESH_DIRECTORY,
    HELLO,
    STARTED,
    STOP,
    LauncherReport,
    StartTemplate,
    simple_request,
    start_request,
)
from hanse.model.messages import AttemptEnd, Outcome
from tests.live.backends.desk import WAIT_SECONDS_MAX, task
from tests.live.backends.places import alive, groups_in, processes_of, wait_gone, wait_let_go


def version_2() -> Path | None:
    """Where version 2 is mounted and groups can be made, with or without controllers."""
    mounts = read_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    points = [mount.point for mount in mounts if mount.version == 2 and os.access(mount.point, os.W_OK)]
    return points[0] if points else None


V2_ONLY = pytest.mark.skipif(version_2() is None, reason="version 2 of control groups is not writable here")


class Caller:
    """Somebody who talks to a launcher without a backend."""

    def __init__(self, place: Path, bases: tuple[Path, ...] = ()) -> None:
        self.news: asyncio.Queue[LauncherReport] = asyncio.Queue()
        self.lost = asyncio.Event()
        self.link = LauncherClient(place, bases, self._heard, lambda _why: self.lost.set())

    def _heard(self, batch: list[LauncherReport]) -> None:
        for news in batch:
            self.news.put_nowait(news)

    async def next(self, kind: int) -> LauncherReport:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                news = await self.news.get()
                if news.kind == kind:
                    return news

    async def end(self) -> AttemptEnd:
        end = (await self.next(ENDED)).end
        assert end is not None
        return end


def call(
    place: Path,
    story: Callable[[Caller, list[LauncherReport]], Awaitable[None]],
    bases: tuple[Path, ...] = (),
) -> None:
    """Tell a story of one call."""

    async def whole() -> None:
        caller = Caller(place, bases)
        found = await caller.link.open()
        for base in bases:
            base.mkdir(exist_ok=True)
        try:
            await story(caller, found)
        finally:
            await caller.link.close()

    asyncio.run(whole())


def order(*argv: str, index: int = 0, groups: tuple[bytes, ...] = ()) -> bytes:
    """A request to start a program as whoever the launcher is."""
    meta = msgspec.msgpack.encode(AttemptMetadata("amber#1", True))
    fixed = StartTemplate(1 << 20, 0, 0, -1, -1, (), FRESH_DIRECTORY, meta, groups)
    words = tuple(word.encode() for word in argv)
    return start_request(task(index), 1, 0, fixed, b"", words, [b"PATH=/usr/bin:/bin"])


TREE = "trap '' TERM; (setsid sh -c 'sleep 3600; sleep 3600' &); sleep 3600; sleep 3600"


@V2_ONLY
def test_version_2_kills_a_whole_tree_and_tells_its_cpu_time(place: Path) -> None:
    root = version_2()
    assert root is not None
    base = root / group_name(place)

    async def story(caller: Caller, found: list[LauncherReport]) -> None:
        group = f"u{base}\0\0".encode()
        caller.link.send(order("sh", "-c", TREE, groups=(group,)))
        await caller.next(STARTED)
        (group_of_it,) = groups_in(base)
        inside = (group_of_it / "cgroup.procs").read_text(encoding="ascii").split()
        assert inside != []
        caller.link.send(simple_request(STOP, task(0), 1, 0))
        end = await caller.end()
        assert end.outcome is Outcome.CANCELLED
        assert not any(alive(int(pid)) for pid in inside)
        assert groups_in(base) == []
        spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
        caller.link.send(order("sh", "-c", spin, index=1, groups=(group,)))
        end = await caller.end()
        assert end.outcome is Outcome.SUCCEEDED
        assert end.usage is not None
        assert end.usage.cpu > 10_000

    call(place, story, (base,))


@V2_ONLY
def test_version_2_buries_what_a_supervisor_left(place: Path) -> None:
    root = version_2()
    assert root is not None
    base = root / group_name(place)

    async def story(caller: Caller, found: list[LauncherReport]) -> None:
        caller.link.send(order("sh", "-c", TREE, groups=(f"u{base}\0\0".encode(),)))
        await caller.next(STARTED)
        record = (place / "records" / f"{task(0)}.1").read_bytes()
        os.kill(int.from_bytes(record[12:16], "little"), signal.SIGKILL)
        assert (await caller.end()).outcome is Outcome.LOST
        assert groups_in(base) == []
        assert processes_of(place) == [caller.link.pid]

    call(place, story, (base,))


@V2_ONLY
def test_a_limit_that_cannot_be_set_loses_the_attempt_and_says_which(place: Path) -> None:
    root = version_2()
    assert root is not None
    base = root / group_name(place)

    async def story(caller: Caller, found: list[LauncherReport]) -> None:
        for index, line in enumerate(("no.such.file=1", "?no.such.file=1")):
            caller.link.send(order("true", index=index, groups=(f"u{base}\0{line}\0\0".encode(),)))
        ends = [await caller.end(), await caller.end()]
        first, second = sorted(ends, key=lambda end: end.task)
        assert first.outcome is Outcome.LOST
        assert "cannot set the limit no.such.file=1: No such file" in first.note
        assert second.outcome is Outcome.SUCCEEDED

    call(place, story, (base,))


def test_a_launcher_of_another_version_makes_room(place: Path) -> None:
    async def story(caller: Caller, found: list[LauncherReport]) -> None:
        caller.link.send(order("sleep", "3600"))
        await caller.next(STARTED)
        old = caller.link.pid
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.connect(str(place / "launcher"))
            other.sendall(simple_request(HELLO, number=12345))
            assert other.recv(1) == b""
        wait_gone(old)
        await caller.lost.wait()
        again = await caller.link.open()
        assert caller.link.pid != old
        assert [news.kind for news in again] == [FOUND_RUNNING]
        caller.link.send(simple_request(STOP, task(0), 1, 0))
        assert (await caller.end()).outcome is Outcome.CANCELLED

    call(place, story)


def test_requests_of_a_caller_that_hung_up_are_done_before_the_next_is_greeted(place: Path) -> None:
    async def first(caller: Caller, found: list[LauncherReport]) -> None:
        for index in range(50):
            caller.link.send(order("true", index=index))
        for _ in range(50):
            await caller.end()
        for index in range(50):
            caller.link.send(simple_request(FORGET, task(index), 1))

    async def second(caller: Caller, found: list[LauncherReport]) -> None:
        assert found == []

    call(place, first)
    call(place, second)


def test_news_wait_until_a_caller_was_greeted(place: Path) -> None:
    """One that connects and says nothing yet must not hear of attempts that it was not told of."""

    async def story(caller: Caller, found: list[LauncherReport]) -> None:
        caller.link.send(order("sh", "-c", "while ! [ -p go ]; do sleep 0.01; done; read x < go; exit 3"))
        await caller.next(STARTED)
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.setblocking(False)
            await loop.sock_connect(other, str(place / "launcher"))
            await caller.lost.wait()  # the launcher talks to one at a time: it has answered the other
            os.mkfifo(place / "work" / f"{task(0)}.1" / "go")
            (place / "work" / f"{task(0)}.1" / "go").write_text("\n")
            wait_let_go(place / "records" / f"{task(0)}.1")
            with pytest.raises(BlockingIOError):
                other.recv(1)
        again = await caller.link.open()
        assert [(news.kind, news.end and news.end.exit_code) for news in again] == [(FOUND_ENDED, 3)]

    call(place, story)


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"\xff" * 64,
        bytes(64),
        simple_request(77),
        simple_request(HELLO)[:-8] + bytes(8),
        order("true")[:60] + bytes(4),
    ],
    ids=["ones", "zeros", "unknown", "short", "torn"],
)
def test_nonsense_ends_the_call_and_not_the_launcher(place: Path, bytes_sent: bytes) -> None:
    async def story(caller: Caller, found: list[LauncherReport]) -> None:
        caller.link.send(order("sleep", "3600"))
        await caller.next(STARTED)
        launcher = caller.link.pid
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.connect(str(place / "launcher"))
            other.sendall(bytes_sent)
            other.shutdown(socket.SHUT_WR)
            other.settimeout(WAIT_SECONDS_MAX)
            while other.recv(1 << 16):
                pass
        await caller.lost.wait()
        again = await caller.link.open()
        assert caller.link.pid == launcher
        assert [news.task for news in again if news.kind == FOUND_RUNNING] == [task(0)]
        caller.link.send(simple_request(STOP, task(0), 1, 0))
        assert (await caller.end()).outcome is Outcome.CANCELLED

    call(place, story)
