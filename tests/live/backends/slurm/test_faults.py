"""What goes wrong with a real Slurm: its controller forgets, its nodes vanish, daemons are not there."""

import errno
import shutil
from pathlib import Path

import pytest

from hanse.live.backends.process.launch_requests import find_task_user
from hanse.live.backends.slurm.backend import SlurmBackend
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import HOUR, SECOND, Desk, launch, now, task, with_desk
from tests.live.backends.slurm.fixture import Slurm
from tests.live.backends.slurm.places import (
    ALL,
    Log,
    backend_on,
    listed,
    nodes_of,
    our_jobs,
    our_names,
    until,
)

# --- the shared directory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "outcome"),
    [(errno.ENOSPC, Outcome.UNSTARTED), (errno.EDQUOT, Outcome.UNSTARTED), (errno.EIO, Outcome.LOST)],
)
def test_orders_for_which_there_is_no_room_were_never_given(
    slurm: Slurm, place: Path, monkeypatch: pytest.MonkeyPatch, number: int, outcome: Outcome
) -> None:
    log = Log(place)
    order = SharedDirectory.write_orders

    def full(*_: object) -> None:
        raise OSError(number, "as the disk says")

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        monkeypatch.setattr(SharedDirectory, "write_orders", full)
        end = await desk.run(launch(log.task()))
        assert end.outcome is outcome
        assert "the shared directory cannot be used" in end.note
        own = [name for name in our_names(slurm) if name.endswith(":1-7.0#1")]
        assert own == []  # jobs of other tests may still be listed
        monkeypatch.setattr(SharedDirectory, "write_orders", order)
        assert (await desk.run(launch(log.task(), 1))).outcome is Outcome.SUCCEEDED
        assert log.said("begin", 0) == 0

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)


# --- the controller -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("drained")
@pytest.mark.parametrize("driver", ["cli", "rest"])
def test_a_job_that_slurm_forgot_runs_once_and_its_number_is_anothers(
    slurm: Slurm, place: Path, tmp_path: Path, driver: str
) -> None:
    log = Log(place)
    foreign_log = place / "foreign"

    async def story(desk: Desk) -> None:
        desk.start(launch(log.task()))
        await listed(slurm)
        number = our_jobs(slurm)[0]
        slurm.kill_controller()
        shutil.rmtree(slurm.base / "state")
        shutil.copytree(tmp_path / "state", slurm.base / "state")
        slurm.start_controller()
        slurm.wait(lambda: slurm.states() != {}, "the controller is back")
        again = slurm.submit_foreign(f"echo here >> {foreign_log}", f"--job-name=hanse:{number}")
        assert again == number
        slurm.resume()
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.SUCCEEDED, "")
        slurm.wait(lambda: slurm.state_of(again) == "COMPLETED", "the other's job is done")
        assert foreign_log.read_text() == "here\n"
        assert log.said("begin") == log.said("end") == 1

    slurm.save_state()
    shutil.copytree(slurm.base / "state", tmp_path / "state")
    poll = 2 * SECOND  # the other's job comes before we notice
    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver, poll=poll), story)


@pytest.mark.parametrize("driver", ["cli", "rest"])
def test_a_controller_that_crashes_right_after_it_acknowledged(
    slurm: Slurm, place: Path, driver: str
) -> None:
    log = Log(place)
    count = 12
    slurm.save_state()

    async def story(desk: Desk) -> None:
        for index in range(count):
            desk.start(launch(log.task(seconds=0.3), index))
        await listed(slurm)
        slurm.kill_controller()
        slurm.start_controller()
        for index in range(count):
            assert (await desk.end_of(index)).outcome is Outcome.SUCCEEDED
            assert log.said("begin", index) == log.said("end", index) == 1
            desk.forget(index)

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)


@pytest.mark.parametrize("driver", ["cli", "rest"])
def test_tasks_end_and_starts_wait_while_the_controller_is_away(
    slurm: Slurm, place: Path, driver: str
) -> None:
    log = Log(place)
    slurm.save_state()

    async def story(desk: Desk) -> None:
        desk.start(launch(log.task(seconds=1), 0))
        await desk.start_of(0)
        slurm.kill_controller()
        assert (await desk.end_of(0)).outcome is Outcome.SUCCEEDED  # by its record alone
        await until(lambda: desk.room == {0: ALL, 1: ALL, 2: ALL}, "all is withheld")
        desk.start(launch(log.task(), 1))
        slurm.start_controller()
        assert (await desk.end_of(1)).outcome is Outcome.SUCCEEDED
        assert log.said("begin", 1) == 1
        await until(lambda: desk.room[0] == desk.room[1] == desk.room[2] == Resources(), "nothing is")

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)


def test_a_start_is_given_back_when_the_controller_stays_away(slurm: Slurm, place: Path) -> None:
    log = Log(place)
    slurm.save_state()

    class Hasty(SlurmBackend):
        start_max = SECOND

    def make() -> SlurmBackend:
        backend = backend_on(slurm, place, nodes_of(slurm))
        backend.__class__ = Hasty
        return backend

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        slurm.kill_controller()
        end = await desk.run(launch(log.task()))
        assert end.outcome is Outcome.UNSTARTED
        assert "controller" in end.note
        await until(lambda: desk.room.get(0) == ALL, "it is noticed")
        slurm.start_controller()
        await until(lambda: desk.room[0] == Resources(), "the controller is back")
        assert (await desk.run(launch(log.task(), 1))).outcome is Outcome.SUCCEEDED
        assert log.said("begin", 0) == 0

    with_desk(make, story)


# --- nodes --------------------------------------------------------------------------------------------------


def test_a_requeued_job_does_not_run_again_beside_its_living_step(slurm: Slurm, place: Path) -> None:
    """A node's daemon dies, its step lives on, and Slurm starts the job anew elsewhere."""
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(log.task(seconds=3_600)))
        await log.begun()
        number = our_jobs(slurm)[0]
        slurm.kill(slurm.nodes[0])
        slurm.run("scontrol", "update", f"jobid={number}", "requeue=1")
        slurm.run("scontrol", "update", f"nodename={slurm.nodes[0]}", "state=down", "reason=test")
        await until(lambda: slurm.state_of(number) == "PENDING", "it is requeued")
        assert desk.ends == {}
        slurm.run("scontrol", "update", f"jobid={number}", "starttime=now", f"reqnodelist={slurm.nodes[1]}")
        end = await desk.end_of()
        assert end.outcome is Outcome.LOST
        assert log.said("begin") == 1  # the second execution was refused
        assert log.said("end") == 0
        assert end.usage is not None  # and the first obeyed: it said so itself
        assert (place / "shared" / "records" / f"{task(0)}.1.refused").exists()

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)


@pytest.mark.parametrize("driver", ["cli", "rest"])
def test_a_task_on_a_node_that_is_down_is_lost_when_it_is_over(
    slurm: Slurm, place: Path, driver: str
) -> None:
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(log.task(seconds=3_600)))
        await log.begun()
        slurm.kill(slurm.nodes[0])
        slurm.run("scontrol", "update", f"nodename={slurm.nodes[0]}", "state=down", "reason=test")
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.LOST, "Slurm says that its node failed")
        assert end.usage is not None  # its script obeyed, and said so: it does not run any more
        await until(lambda: desk.room.get(0) == ALL, "the node is withheld")
        assert 1 not in desk.room

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)


def test_a_vanished_task_is_lost_only_when_its_lease_is_over(slurm: Slurm, place: Path) -> None:
    """Its node is dead altogether: nobody obeys, nobody says anything."""
    log = Log(place)

    async def story(desk: Desk) -> None:
        until_then = now() + 8 * SECOND
        desk.guard(until_then)
        desk.start(launch(log.task(seconds=3_600)))
        await log.begun()
        slurm.kill(slurm.nodes[0])
        slurm.kill_steps(slurm.nodes[0])
        slurm.run("scontrol", "update", f"nodename={slurm.nodes[0]}", "state=down", "reason=test")
        end = await desk.end_of()
        assert end.outcome is Outcome.LOST
        assert now() >= until_then

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)


@pytest.mark.parametrize("driver", ["cli", "rest"])
def test_a_drained_node_is_withheld_and_what_runs_there_goes_on(
    slurm: Slurm, place: Path, driver: str
) -> None:
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.start(launch(log.task(seconds=1.5)))
        await log.begun()
        slurm.run("scontrol", "update", f"nodename={slurm.nodes[0]}", "state=drain", "reason=test")
        await until(lambda: desk.room.get(0) == ALL, "it is withheld")
        assert desk.ends == {}
        assert (await desk.end_of()).outcome is Outcome.SUCCEEDED
        slurm.run("scontrol", "update", f"nodename={slurm.nodes[0]}", "state=resume")
        await until(lambda: desk.room[0] == Resources(), "it is ours again")
        assert list(desk.room) == [0]

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)


# --- daemons ------------------------------------------------------------------------------------------------


def test_the_lease_holds_while_no_daemon_is_there(slurm: Slurm, place: Path) -> None:
    log = Log(place)
    shared = SharedDirectory(place / "shared", find_task_user("nobody"))

    async def before(desk: Desk) -> None:
        desk.guard(now() + 3 * SECOND)
        desk.start(launch(log.task(seconds=3_600)))
        await log.begun()

    async def after(desk: Desk) -> None:
        assert desk.found.running == ()
        (end,) = desk.found.ended
        assert (end.outcome, end.exit_code, end.note) == (Outcome.LOST, -9, "the lease it ran under is over")

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), before)
    slurm.wait(lambda: shared.read_records((task(0), 1)).end is not None, "the script has ended its task")
    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), after)
    assert log.said("end") == 0


@pytest.mark.usefixtures("drained")
def test_a_job_that_waited_past_its_lease_never_runs(slurm: Slurm, place: Path) -> None:
    """1. A task waits in Slurm's queue. 2. Its daemon is away until the lease is over, and the league starts
    the task elsewhere. 3. The daemon is back with a new lease, and Slurm has room at last."""
    log = Log(place)

    async def before(desk: Desk) -> None:
        desk.guard(now() + 2 * SECOND)
        desk.start(launch(log.task()))
        await listed(slurm)

    async def after(desk: Desk) -> None:
        (end,) = desk.found.ended
        assert end.outcome is Outcome.UNSTARTED
        desk.guard(now() + HOUR)
        slurm.resume()
        assert (await desk.run(launch(log.task(), 1))).outcome is Outcome.SUCCEEDED
        slurm.wait(lambda: our_names(slurm) == [], "the old job is gone")
        assert log.said("begin", 0) == 0

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), before)
    lease = SharedDirectory(place / "shared", find_task_user("nobody")).read_lease()
    slurm.wait(lambda: lease_is_over(lease), "the lease is over")
    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), after)


def lease_is_over(lease: int) -> bool:
    import time

    return time.time() * 1_000 > lease


@pytest.mark.usefixtures("drained")
def test_a_job_that_was_never_submitted_is_submitted_by_the_next_daemon(slurm: Slurm, place: Path) -> None:
    log = Log(place)

    async def before(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(log.task()))
        await listed(slurm)

    async def after(desk: Desk) -> None:
        assert [live.task for live in desk.found.running] == [task(0)]
        slurm.resume()
        assert (await desk.end_of()).outcome is Outcome.SUCCEEDED
        assert log.said("begin") == 1

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), before)
    slurm.kill_controller()
    shutil.rmtree(slurm.base / "state")  # and now nobody knows of it
    (slurm.base / "state").mkdir()
    slurm.start_controller()
    slurm.wait(lambda: slurm.states() != {}, "the controller is back")
    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), after)
