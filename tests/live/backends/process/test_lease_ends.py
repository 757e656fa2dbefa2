"""The end of a lease is the end of a task's writes, whoever of those around it is halted or killed then.

Each story has a task that writes all the time, from a process far away from its first one. What is judged is
its last write, and that it had written until something happened to it.
"""

import asyncio
import os
import select
import signal
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest

from hanse.core.config import Timings
from hanse.live.backends.process.backend import ProcessBackend
from hanse.model.messages import Outcome
from tests.live.backends.desk import HOUR, SECOND, WAIT_SECONDS_MAX, Desk, launch, now, with_desk
from tests.live.backends.doomed_daemon import Doomed, doomed
from tests.live.backends.places import NODES, shell, wait_gone
from tests.live.backends.process.test_recovery import supervisor_of

LEASE: Final = 3 * SECOND
MARGIN: Final = 2 * Timings().lease_grace
"""Microseconds after the lease in which a busy machine may still be ending a task. A league gives a task up
after the lease, one grace, and what clocks may drift."""
FAST: Final = Path("/dev/shm")
"""Where no disk is."""
NUMBER_BYTES_MAX: Final = 32
NEWS_BYTES: Final = 36 + 248 + 4
HALT, KILL = signal.SIGSTOP, signal.SIGKILL

Fault = tuple[signal.Signals, str]

FAULTS: Final[dict[str, tuple[Fault, ...]]] = {
    "nothing": (),
    "halted supervisor": ((HALT, "supervisor"),),
    "halted launcher": ((HALT, "launcher"),),
    "halted daemon": ((HALT, "daemon"),),
    "halted watchdog": ((HALT, "watchdog"),),
    "killed supervisor": ((KILL, "supervisor"),),
    "killed launcher": ((KILL, "launcher"),),
    "killed daemon": ((KILL, "daemon"),),
    "killed watchdog": ((KILL, "watchdog"),),
    "all but the watchdog halted": ((HALT, "daemon"), (HALT, "launcher"), (HALT, "supervisor")),
    "all but the watchdog killed": ((KILL, "daemon"), (KILL, "launcher"), (KILL, "supervisor")),
    "all but the supervisor halted": ((HALT, "daemon"), (HALT, "launcher"), (HALT, "watchdog")),
    "all but the supervisor killed": ((KILL, "daemon"), (KILL, "launcher"), (KILL, "watchdog")),
    "killed supervisor, others halted": ((HALT, "daemon"), (HALT, "launcher"), (KILL, "supervisor")),
    "killed watchdog, halted launcher": ((HALT, "launcher"), (KILL, "watchdog")),
    "killed watchdog, halted supervisor": ((HALT, "supervisor"), (KILL, "watchdog")),
}
"""What happens to whom, in order. In the last the launcher ends the task."""


def parent_of(pid: int) -> int:
    """The parent of a process: a supervisor's is its watchdog."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[1])


class Writer:
    """A task that writes to a file, and when it last did."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.told = file.with_name("told")
        os.mkfifo(self.told)
        for path in (file.parent, self.told):
            path.chmod(0o777)

    def script(self, then: str = "exec sleep 3600") -> bytes:
        """Far away: two forks, two sessions, deaf to signals."""
        loop = f"while :; do : > {self.file}; sleep 0.05; done"
        born = f"trap '' TERM HUP; : > {self.file}; echo $$ > {self.told}; {loop}"
        return shell("(setsid sh -c 'setsid sh -c \"$BORN\" &' &); " + then, BORN=born)

    def born(self) -> int:
        """Wait until it writes; its process."""
        file = os.open(self.told, os.O_RDWR)  # for writing too: opening it waits for nobody
        try:
            poll = select.poll()
            poll.register(file, select.POLLIN)
            assert poll.poll(WAIT_SECONDS_MAX * 1_000), "it never began"
            return int(os.read(file, NUMBER_BYTES_MAX))
        finally:
            os.close(file)

    def last(self) -> int:
        """When it last wrote, on the clock that leases are told in."""
        return self.file.stat().st_mtime_ns // 1_000 - (time.time_ns() // 1_000 - now())


@contextmanager
def writer() -> Iterator[Writer]:
    """One with a file that is on no disk, if this machine has such."""
    with tempfile.TemporaryDirectory(dir=FAST if FAST.is_dir() else None) as directory:
        yield Writer(Path(directory) / "written")


def silent_after(task: Writer, pid: int, end: int) -> None:
    """Wait for the end of the process that writes: it may not have written behind its lease."""
    wait_gone(pid)
    late = task.last() - end
    assert late <= MARGIN, f"it wrote until {late / SECOND:.3f} s behind its lease"


def strike(faults: tuple[Fault, ...], who: dict[str, int]) -> list[int]:
    """Do this to these; those that are halted."""
    for what, name in faults:
        os.kill(who[name], what)
    return [who[name] for what, name in faults if what == HALT]


def people_around(place: Path, daemon: Doomed) -> dict[str, int]:
    supervisor = supervisor_of(place)
    return {
        "supervisor": supervisor,
        "watchdog": parent_of(supervisor),
        "launcher": daemon.launcher,
        "daemon": daemon.process.pid,
    }


async def told_as_lost(desk: Desk) -> None:
    """Whoever comes next hears of the end."""
    end = desk.found.ended[0] if desk.found.ended else await desk.end_of()
    assert end.outcome is Outcome.LOST


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_write_behind_the_lease(place: Path, fault: str, driver: str) -> None:
    """1. A task writes. 2. The fault. 3. The lease ends: so do the writes. 4. The next daemon hears of it."""
    with writer() as task, doomed(place, driver) as daemon:
        daemon.tell({"guard": LEASE})
        end = now() + LEASE
        daemon.start(task.script())
        pid = task.born()
        halted = strike(FAULTS[fault], people_around(place, daemon))
        try:
            silent_after(task, pid, end)
        finally:
            for each in halted:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGCONT)
        daemon.kill()
    with_desk(lambda: ProcessBackend(place, "north", NODES, driver=driver), told_as_lost)  # type: ignore[arg-type]


@pytest.mark.parametrize("late", [False, True])
def test_an_order_that_was_held_up_is_carried_out_only_while_it_is_good(place: Path, late: bool) -> None:
    """1. A launcher hangs, and an order to start with it. 2. The lease that the order counts on is over; the
    next one is there already. 3. The launcher goes on: nobody counts on this attempt any more."""

    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        desk.guard(now() + HOUR)
        os.kill(desk.backend.launcher_pid, HALT)
        until = now() + (SECOND // 10 if late else HOUR)
        desk.start(msgspec.structs.replace(launch(shell("exit 4")), until=until))
        while late and now() < until:
            await asyncio.sleep((until - now()) / SECOND)
        os.kill(desk.backend.launcher_pid, signal.SIGCONT)
        end = await desk.end_of()
        assert (end.outcome, end.exit_code) == ((Outcome.UNSTARTED, 0) if late else (Outcome.FAILED, 4))
        assert bool(desk.starts) is not late

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


def fill(pipe: Path) -> None:
    """Fill a pipe with news of nobody."""
    file = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(file, struct.pack("=II", 0, 0).ljust(NEWS_BYTES, b"\0"))
    finally:
        os.close(file)


def test_no_write_behind_the_lease_when_pipes_are_full(place: Path) -> None:
    """Nobody reads what the task says, nor what its supervisor says."""
    with writer() as task, doomed(place) as daemon:
        daemon.tell({"guard": LEASE})
        end = now() + LEASE
        daemon.start(task.script("while :; do echo and so on; done"))
        pid = task.born()
        who = people_around(place, daemon)
        os.kill(who["launcher"], signal.SIGSTOP)
        fill(place / "news")
        os.kill(who["supervisor"], signal.SIGSTOP)
        try:
            silent_after(task, pid, end)
        finally:
            os.kill(who["launcher"], signal.SIGKILL)
            os.kill(who["supervisor"], signal.SIGCONT)
        daemon.kill()
    with_desk(lambda: ProcessBackend(place, "north", NODES), told_as_lost)


def mappings_of(pid: int, name: str) -> list[dict[str, str]]:
    """What the kernel says of the pages of a mapped file, one record for each mapping."""
    found: list[dict[str, str]] = []
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        if not word.endswith(":"):
            found.append({"name": line.rpartition("/")[2]})
        else:
            found[-1][word] = rest.strip()
    return [mapping for mapping in found if mapping["name"] == name]


@pytest.mark.skipif(os.geteuid() != 0, reason="how much a plain user may lock depends on this machine")
def test_a_watchdog_has_all_that_it_needs_in_memory(place: Path) -> None:
    """Its code, its constants and the guard: none of these may have to come from a disk. It has no file of a
    disk open but the log that it inherits, and writes to none."""
    with doomed(place) as daemon:
        daemon.start(shell("exec sleep 3600"))
        watchdog = people_around(place, daemon)["watchdog"]
        for name in ("_supervisor", "guard"):
            mappings = mappings_of(watchdog, name)
            assert mappings
            for mapping in mappings:
                assert mapping["Rss:"] == mapping["Size:"], mapping
                assert "lo" in mapping["VmFlags:"].split(), mapping
        files = {str(entry.readlink()) for entry in Path(f"/proc/{watchdog}/fd").iterdir()}
        assert {file for file in files if file.startswith("/")} == {"/dev/null", str(place / "launcher.log")}
        daemon.tell({"stop": 0})
        daemon.hear("exited")
