"""Tasks outlive whatever dies around them: the daemon, the launcher, both; and nothing outlives its
supervisor."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hanse.live.backends.interface import RunningAttempt
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.cgroups import choose_limits
from hanse.model.messages import Outcome
from tests.live.backends.desk import (
    ESTATE,
    HOUR,
    SECOND,
    Desk,
    launch,
    read,
    read_until,
    task,
    with_desk,
)
from tests.live.backends.doomed_daemon import doomed
from tests.live.backends.places import NODES, STUBBORN, alive, run, shell, wait_gone
from tests.live.backends.process.test_tasks import DAEMONISE

SLEEP = shell("echo set; exec sleep 3600")
MANY = 60


def supervisor_of(place: Path, index: int = 0) -> int:
    """Who supervises an attempt: the fourth number of its record."""
    record = (place / "records" / f"{task(index)}.1").read_bytes()
    return int.from_bytes(record[12:16], "little")


def plain(place: Path) -> ProcessBackend:
    return ProcessBackend(place, "north", NODES)


async def kill_launcher(desk: Desk) -> None:
    """Kill it and wait until its successor serves."""
    assert isinstance(desk.backend, ProcessBackend)
    old = desk.backend.launcher_pid
    os.kill(old, signal.SIGKILL)
    wait_gone(old)
    end = await desk.run(launch(run("true"), 99))
    assert end.outcome is Outcome.SUCCEEDED
    assert desk.backend.launcher_pid != old
    desk.forget(99)


# --- the daemon dies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
def test_a_killed_daemon_loses_nothing(place: Path, driver: str) -> None:
    go = place / "go"
    os.mkfifo(go)
    go.chmod(0o666)
    with doomed(place, driver) as daemon:
        daemon.start(SLEEP, 0)
        daemon.start(shell(f"echo begun; read x < {go}; echo went on; exit 7"), 1)
        daemon.start(shell("exit 4"), 2)
        daemon.hear("exited")
        daemon.kill()
    go.write_text("\n")  # it goes on while nobody is there

    async def story(desk: Desk) -> None:
        ends = {end.task: end for end in desk.found.ended}
        if task(1) not in ends:
            ends[task(1)] = await desk.end_of(1)
        assert (ends[task(2)].outcome, ends[task(2)].exit_code) == (Outcome.FAILED, 4)
        assert (ends[task(1)].outcome, ends[task(1)].exit_code) == (Outcome.FAILED, 7)
        assert ends[task(1)].usage is not None
        assert await read(desk.backend, 1) == b"begun\nwent on\n"
        assert RunningAttempt(task(0), 1, ESTATE, True) in desk.found.running
        assert desk.starts == set()
        desk.stop(0, grace=0)
        assert (await desk.end_of(0)).outcome is Outcome.CANCELLED

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver=driver), story)  # type: ignore[arg-type]


def test_an_attempt_asked_for_just_before_the_kill_ran_or_did_not(place: Path) -> None:
    """Whatever the launcher had read is on record; what it had not read never ran."""
    ran = place / "ran"
    ran.mkdir()
    ran.chmod(0o777)
    with doomed(place) as daemon:
        orders: list[dict[str, object]] = [
            {"start": shell(f"echo x > {ran}/{index}; exec sleep 3600").hex(), "index": index}
            for index in range(MANY)
        ]
        daemon.tell(*orders)
        daemon.kill()

    async def story(desk: Desk) -> None:
        known = {living.task for living in desk.found.running}
        for index in range(MANY):
            if task(index) in known:
                desk.stop(index, grace=0)
                assert (await desk.end_of(index)).outcome is Outcome.CANCELLED
        assert {task(int(path.name)) for path in ran.iterdir()} <= known
        assert desk.found.ended == ()

    with_desk(lambda: plain(place), story)


def test_a_stop_outlives_the_daemon_that_asked(place: Path) -> None:
    with doomed(place) as daemon:
        daemon.start(STUBBORN)
        daemon.tell({"stop": SECOND})
        daemon.process.stdin.close()  # type: ignore[union-attr]
        daemon.process.wait()

    async def story(desk: Desk) -> None:
        end = desk.found.ended[0] if desk.found.ended else await desk.end_of()
        assert end.outcome is Outcome.CANCELLED

    with_desk(lambda: plain(place), story)


def test_the_watchdog_does_not_need_the_daemon(place: Path) -> None:
    with doomed(place) as daemon:
        daemon.tell({"guard": 2 * SECOND})
        daemon.start(STUBBORN)
        pid = supervisor_of(place)
        daemon.kill()
    wait_gone(pid)

    async def story(desk: Desk) -> None:
        assert [(end.outcome, end.exit_code) for end in desk.found.ended] == [(Outcome.LOST, -9)]
        assert "lease" in desk.found.ended[0].note
        # a lease that is over stays over until somebody renews it
        assert (await desk.run(launch(run("true"), 1))).outcome is Outcome.UNSTARTED

    with_desk(lambda: plain(place), story)


def test_the_watchdog_does_not_need_the_launcher(place: Path) -> None:
    with doomed(place) as daemon:
        daemon.tell({"guard": 2 * SECOND})
        daemon.start(STUBBORN)
        pid = supervisor_of(place)
        daemon.kill()
        os.kill(daemon.launcher, signal.SIGKILL)
    wait_gone(pid)

    async def story(desk: Desk) -> None:
        assert [end.outcome for end in desk.found.ended] == [Outcome.LOST]

    with_desk(lambda: plain(place), story)


def test_daemon_and_launcher_die_and_the_task_does_not(place: Path) -> None:
    with doomed(place) as daemon:
        daemon.start(SLEEP)
        daemon.kill()
        os.kill(daemon.launcher, signal.SIGKILL)
        wait_gone(daemon.launcher)

    async def story(desk: Desk) -> None:
        assert [living.task for living in desk.found.running] == [task(0)]
        desk.stop(grace=HOUR)
        end = await desk.end_of()
        assert (end.outcome, end.exit_code) == (Outcome.CANCELLED, -15)

    with_desk(lambda: plain(place), story)


@pytest.mark.skipif(
    choose_limits("auto", Path("/hanse-test")).driver == "rlimit", reason="no control groups here"
)
def test_daemon_launcher_and_supervisor_die_and_the_task_too(place: Path) -> None:
    """Nobody is left to whom the kernel could hand its processes: they are found by their group."""
    told = place / "told"
    os.mkfifo(told)
    told.chmod(0o666)
    with doomed(place) as daemon:
        daemon.start(shell(f"{DAEMONISE} echo $pid > {told}; exec sleep 3600"))
        far_away = int(told.read_text())
        supervisor = supervisor_of(place)
        for pid in (daemon.launcher, supervisor):
            os.kill(pid, signal.SIGKILL)
        daemon.kill()
        wait_gone(supervisor)

    async def story(desk: Desk) -> None:
        (end,) = desk.found.ended
        assert (end.outcome, end.note) == (Outcome.LOST, "its supervisor died")
        assert not alive(far_away)

    with_desk(lambda: plain(place), story)


def test_without_groups_a_task_still_dies_with_all_that_watch_it(place: Path) -> None:
    with doomed(place, "rlimit") as daemon:
        daemon.start(run("sleep", "3600"))
        supervisor = supervisor_of(place)
        (child,) = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        for pid in (daemon.launcher, supervisor):
            os.kill(pid, signal.SIGKILL)
        daemon.kill()
    wait_gone(int(child))

    async def story(desk: Desk) -> None:
        assert [end.outcome for end in desk.found.ended] == [Outcome.LOST]

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver="rlimit"), story)


def test_a_record_that_was_cut_short_is_a_lost_attempt(place: Path) -> None:
    async def before(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))
        await desk.run(launch(run("true"), 1))
        await desk.run(launch(run("true"), 2))

    async def after(desk: Desk) -> None:
        found = {end.task: end.outcome for end in desk.found.ended}
        assert found == {task(0): Outcome.LOST, task(1): Outcome.LOST, task(2): Outcome.SUCCEEDED}
        for index in range(3):
            desk.forget(index)

    async def at_last(desk: Desk) -> None:
        assert desk.found.ended == ()

    with_desk(lambda: plain(place), before)
    (place / "records" / f"{task(0)}.1").write_bytes(b"")
    damaged = place / "records" / f"{task(1)}.1"
    text = bytearray(damaged.read_bytes())
    text[60] ^= 1  # in the end, which has a checksum
    damaged.write_bytes(text)
    with_desk(lambda: plain(place), after)
    with_desk(lambda: plain(place), at_last)


# --- the launcher dies -----------------------------------------------------------------------------------


def test_a_killed_launcher_is_replaced_and_nothing_is_lost(place: Path) -> None:
    async def story(desk: Desk) -> None:
        for index in range(3):
            desk.start(launch(SLEEP, index))
            await desk.start_of(index)
        await kill_launcher(desk)
        assert not desk.ends.keys() - {(task(99), 1)}
        desk.stop(0, grace=0)
        assert (await desk.end_of(0)).outcome is Outcome.CANCELLED
        os.kill(supervisor_of(place, 1), signal.SIGKILL)  # found again by its record, and watched
        assert (await desk.end_of(1)).outcome is Outcome.LOST
        await kill_launcher_again(desk)
        desk.stop(2, grace=HOUR)
        end = await desk.end_of(2)
        assert (end.outcome, end.exit_code) == (Outcome.CANCELLED, -15)

    async def kill_launcher_again(desk: Desk) -> None:
        desk.ends.pop((task(99), 1))
        desk.starts.discard((task(99), 1))
        await kill_launcher(desk)

    with_desk(lambda: plain(place), story)


def test_what_was_asked_of_a_dead_launcher_is_asked_again(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        os.kill(desk.backend.launcher_pid, signal.SIGSTOP)
        for index in range(MANY):
            desk.start(launch(shell(f"exit {index % 5}"), index))
        desk.start(launch(SLEEP, MANY))
        desk.stop(MANY, grace=0)
        await asyncio.sleep(0)  # the requests leave
        os.kill(desk.backend.launcher_pid, signal.SIGKILL)
        for index in range(MANY):
            assert (await desk.end_of(index)).exit_code == index % 5
        assert (await desk.end_of(MANY)).outcome is Outcome.CANCELLED

    with_desk(lambda: plain(place), story)


def test_a_launcher_killed_amid_starts_starts_none_twice(place: Path) -> None:
    """Killed between an attempt's record and its process, it loses that one, which has then not run."""
    ran = place / "ran"
    ran.mkdir()
    ran.chmod(0o777)

    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        for index in range(MANY):
            desk.start(launch(shell(f"echo x >> {ran}/{index}"), index))
        await desk.end_of(3)
        os.kill(desk.backend.launcher_pid, signal.SIGKILL)
        lost = 0
        for index in range(MANY):
            end, trace = await desk.end_of(index), ran / str(index)
            if end.outcome is Outcome.LOST:
                lost += 1
                assert end.note == "its launcher died before it started"
                assert not trace.exists()
            else:
                assert end.outcome is Outcome.SUCCEEDED
                assert trace.read_text() == "x\n"
        assert lost <= 1

    with_desk(lambda: plain(place), story)


def test_no_launcher_at_all_loses_what_never_started(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is gone, as after a careless upgrade: what was asked ends with a reason."""
    from hanse.live import supervisor
    from hanse.live.backends.process import launcher_recovery

    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        desk.start(launch(SLEEP, 0))
        await desk.start_of(0)
        monkeypatch.setattr(supervisor, "PROGRAM", place / "nowhere")
        monkeypatch.setattr(launcher_recovery, "RETRY_SECONDS", (0.0, 0.01))
        os.kill(desk.backend.launcher_pid, signal.SIGKILL)
        wait_gone(desk.backend.launcher_pid)
        end = await desk.run(launch(run("true"), 1))
        assert end.outcome is Outcome.LOST
        assert "not built" in end.note
        assert (task(0), 1) not in desk.ends
        monkeypatch.undo()
        assert (await desk.run(launch(run("true"), 2))).outcome is Outcome.SUCCEEDED
        desk.stop(0, grace=0)
        assert (await desk.end_of(0)).outcome is Outcome.CANCELLED

    with_desk(lambda: plain(place), story)


def test_a_launcher_that_is_told_to_end_leaves_the_tasks(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        desk.start(launch(SLEEP))
        await desk.start_of()
        os.kill(desk.backend.launcher_pid, signal.SIGTERM)
        wait_gone(desk.backend.launcher_pid)
        desk.stop(grace=HOUR)
        assert (await desk.end_of()).exit_code == -15

    with_desk(lambda: plain(place), story)


# --- a supervisor dies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
def test_nothing_outlives_its_supervisor(place: Path, driver: str) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(shell(DAEMONISE + "exec sleep 3600")))
        pid = int((await read_until(desk.backend, b"pid ")).split()[1])
        assert alive(pid)
        os.kill(supervisor_of(place), signal.SIGKILL)
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.LOST, "its supervisor died")
        assert not alive(pid)
        desk.forget()
        assert (await desk.run(launch(run("true"), 1))).outcome is Outcome.SUCCEEDED

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver=driver), story)  # type: ignore[arg-type]


def test_a_supervisor_that_is_told_to_end_takes_its_task_along(place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(STUBBORN))
        await read_until(desk.backend, b"set")
        os.kill(supervisor_of(place), signal.SIGTERM)
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.LOST, "its supervisor was told to end")

    with_desk(lambda: plain(place), story)
