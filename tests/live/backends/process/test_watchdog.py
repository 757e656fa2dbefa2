"""The end of a lease ends a task whatever hangs: a disk, its supervisor, its launcher. And a launcher that
has nothing to do sleeps, whoever was killed around it."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hanse.live.backends.process.backend import ProcessBackend
from hanse.model.messages import Outcome
from tests.live.backends.desk import HOUR, SECOND, Desk, launch, now, read_until, with_desk
from tests.live.backends.doomed_daemon import doomed
from tests.live.backends.places import NODES, alive, run, shell, wait_all_gone, wait_gone
from tests.live.backends.process.test_lease_ends import Writer, parent_of, silent_after, writer
from tests.live.backends.process.test_recovery import SLEEP, kill_launcher, plain, supervisor_of
from tests.live.backends.process.test_tasks import DAEMONISE

LEASE = 3 * SECOND
DISK_BYTES = 64 << 20
TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze")
TICKS = os.sysconf("SC_CLK_TCK")
SPIN_SECONDS = 2
HUNG_SECONDS_MAX = 60
CHATTY = "echo pid $$; while :; do echo and so on; done"


def _do(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


def state_of(pid: int) -> str:
    """The letter that the kernel has for what a process does; D: it waits for a disk."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def wait_hung(pid: int) -> None:
    """Wait until a process hangs in the kernel; there is no event for that."""
    until = now() + HUNG_SECONDS_MAX * SECOND
    while state_of(pid) != "D":
        assert now() < until, f"process {pid} does not hang"
        time.sleep(0.01)


def pid_in(text: bytes) -> int:
    return int(text.partition(b"pid ")[2].split()[0])


@contextmanager
def disk_at(place: Path, image: Path) -> Iterator[Callable[[str], None]]:
    """A file system of its own at ``place``; yields what freezes (``-f``) and thaws (``-u``) it."""
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in TOOLS):
        pytest.skip(f"needs root and {', '.join(TOOLS)}")
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    try:
        _do("mkfs.ext4", "-q", image)
        _do("mount", "-o", "loop", image, place)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device can be mounted here: {error.stderr!r}")
    place.chmod(0o755)
    frozen = False

    def freeze(how: str) -> None:
        nonlocal frozen
        _do("fsfreeze", how, place)
        frozen = how == "-f"

    try:
        yield freeze
    finally:
        if frozen:
            freeze("-u")
        wait_all_gone(place)
        _do("umount", place)


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
@pytest.mark.parametrize("killed", ["nobody", "supervisor", "watchdog"])
def test_a_frozen_disk_does_not_keep_a_task_alive(
    place: Path, tmp_path: Path, killed: str, driver: str
) -> None:
    """1. The disk freezes. 2. The task's supervisor hangs in a write of its output, where no signal reaches
    it. 3. The lease is over, or its watchdog is killed: the task is dead while the disk is still frozen.
    4. It thaws: the end is told, as lost."""

    async def story(desk: Desk, freeze: Callable[[str], None], task: Writer) -> None:
        desk.guard(now() + LEASE)
        end = now() + LEASE
        desk.start(launch(task.script(CHATTY)))
        pid = await asyncio.to_thread(task.born)
        first = pid_in(await read_until(desk.backend, b"and so on"))
        supervisor = supervisor_of(place)
        watchdog = parent_of(supervisor)
        freeze("-f")
        wait_hung(supervisor)
        if killed != "nobody":
            os.kill(supervisor if killed == "supervisor" else watchdog, signal.SIGKILL)
        silent_after(task, pid, end)
        wait_gone(first)
        assert state_of(supervisor) == "D"
        freeze("-u")
        over = await desk.end_of()
        assert over.outcome is Outcome.LOST
        assert killed != "nobody" or over.note == "the lease it ran under is over"

    with disk_at(place, tmp_path / "disk") as freeze, writer() as task:
        with_desk(
            lambda: ProcessBackend(place, "north", NODES, driver=driver),  # type: ignore[arg-type]
            lambda desk: story(desk, freeze, task),
        )


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
def test_a_halted_supervisor_does_not_keep_a_task_alive(place: Path, driver: str) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + LEASE)
        desk.start(launch(shell(DAEMONISE + "echo; exec sleep 3600")))
        far_away = pid_in(await read_until(desk.backend, b"pid "))
        supervisor = supervisor_of(place)
        (first,) = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[:1]
        os.kill(supervisor, signal.SIGSTOP)
        wait_gone(int(first))
        wait_gone(far_away)
        assert state_of(supervisor) == "T"
        os.kill(supervisor, signal.SIGCONT)
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.LOST, "the lease it ran under is over")
        desk.guard(now() + HOUR)  # nothing of it is left for the next one
        desk.forget()
        assert (await desk.run(launch(shell("true; true | true"), 1))).outcome is Outcome.SUCCEEDED

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver=driver), story)  # type: ignore[arg-type]


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
def test_nothing_outlives_a_supervisor_whose_launcher_is_halted(place: Path, driver: str) -> None:
    """What is left of a killed supervisor's task is killed though nobody is there to clean up."""

    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        desk.guard(now() + LEASE)
        desk.start(launch(shell(DAEMONISE + "echo; exec sleep 3600")))
        far_away = pid_in(await read_until(desk.backend, b"pid "))
        os.kill(desk.backend.launcher_pid, signal.SIGSTOP)
        try:
            os.kill(supervisor_of(place), signal.SIGKILL)
            wait_gone(far_away)
        finally:
            os.kill(desk.backend.launcher_pid, signal.SIGCONT)
        assert (await desk.end_of()).outcome is Outcome.LOST

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver=driver), story)  # type: ignore[arg-type]


def test_a_halted_supervisor_of_dead_daemons_does_not_keep_a_task_alive(place: Path) -> None:
    told = place / "told"
    os.mkfifo(told)
    told.chmod(0o666)
    with doomed(place) as daemon:
        daemon.tell({"guard": LEASE})
        daemon.start(shell(f"{DAEMONISE} echo $pid > {told}; exec sleep 3600"))
        far_away = int(told.read_text())
        supervisor = supervisor_of(place)
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(daemon.launcher, signal.SIGKILL)
        daemon.kill()
        wait_gone(far_away)
        os.kill(supervisor, signal.SIGCONT)
    wait_gone(supervisor)

    async def story(desk: Desk) -> None:
        assert [end.note for end in desk.found.ended] == ["the lease it ran under is over"]

    with_desk(lambda: plain(place), story)


def test_a_task_ends_with_its_watchdog(place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(shell(DAEMONISE + "echo; exec sleep 3600")))
        far_away = pid_in(await read_until(desk.backend, b"pid "))
        os.kill(parent_of(supervisor_of(place)), signal.SIGKILL)
        end = await desk.end_of()
        assert end.outcome is Outcome.LOST
        assert end.note in ("its watchdog died", "its supervisor died")  # whoever of both was first to say it
        assert not alive(far_away)

    with_desk(lambda: plain(place), story)


# --- a launcher that sleeps ------------------------------------------------------------------------------


def seconds_of(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def files_of(pid: int) -> list[str]:
    return [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]


def test_a_launcher_sleeps_after_supervisors_that_it_did_not_fork_were_killed(place: Path) -> None:
    """1. A launcher is killed; the next one watches the supervisors of the first. 2. It forks one itself.
    3. Those of the first are killed. It must not be told of them for ever, by a copy that the forked one has.
    """

    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        for index in range(3):
            desk.start(launch(SLEEP, index))
            await desk.start_of(index)
        old = [supervisor_of(place, index) for index in range(3)]
        await kill_launcher(desk)
        for index in (3, 4):
            desk.start(launch(SLEEP, index))
            await desk.start_of(index)
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        for index in range(3):
            assert (await desk.end_of(index)).outcome is Outcome.LOST
        assert (await desk.run(launch(run("true"), 5))).outcome is Outcome.SUCCEEDED
        before = seconds_of(desk.backend.launcher_pid)
        await asyncio.sleep(SPIN_SECONDS)  # what is measured is that nothing happens
        assert seconds_of(desk.backend.launcher_pid) - before < SPIN_SECONDS / 10
        for index in (3, 4):
            own = supervisor_of(place, index)
            for pid in (own, parent_of(own)):
                assert not any("pidfd" in file or "eventpoll" in file for file in files_of(pid))
            assert sum("socket" in file for file in files_of(own)) <= 1  # its desk
            assert not any("socket" in file for file in files_of(parent_of(own)))
            desk.stop(index, grace=0)
            await desk.end_of(index)

    with_desk(lambda: plain(place), story)
