"""Starts that hang in Slurm are taken back: held, sent to a node that does not answer, or never begun."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hanse.live.backends.slurm.driver import clean_reason
from hanse.live.backends.slurm.fs_thread import report_failure
from hanse.live.backends.slurm.stalled_starts import (
    BARRED_DOUBLINGS_MAX,
    SCRIPT_DELAY_MICROSECONDS,
    find_stall,
)
from hanse.model.messages import Outcome
from tests.live.backends.desk import HOUR, SECOND, Desk, launch, now, task, with_desk
from tests.live.backends.places import shell
from tests.live.backends.slurm.fixture import Slurm, missing, slurm_clusters
from tests.live.backends.slurm.places import Log, backend_on, job_of_one_task, nodes_of, our_names, until
from tests.live.harness import open_directory

DRIVERS = pytest.mark.parametrize("driver", ["cli", "rest"])
BEGIN_MAX = 60 * SECOND


def test_a_part_that_fails_ends_the_daemon_whatever_it_raised() -> None:
    """The daemon stops for an assertion; for a RuntimeError it would go on, with nobody to look at Slurm."""
    heard: list[BaseException | None] = []

    async def part() -> None:
        raise RuntimeError("the handler is closed")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))
        task = asyncio.create_task(part())
        task.add_done_callback(report_failure)
        await asyncio.wait([task])
        await asyncio.sleep(0)

    asyncio.run(story())
    assert [(type(error), str(error)) for error in heard] == [
        (AssertionError, "a part of the Slurm backend failed: RuntimeError('the handler is closed')")
    ]


# --- what hangs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reason", "closed", "limit"),
    [
        ("PENDING", "", False, None),
        ("PENDING", "Resources", False, None),
        ("PENDING", "Priority", False, None),
        ("PENDING", "PartitionDown", False, BEGIN_MAX),
        ("PENDING", "PartitionInactive", True, BEGIN_MAX),
        ("PENDING", "PartitionNodeLimit", False, BEGIN_MAX),
        ("PENDING", "PartitionTimeLimit", False, BEGIN_MAX),
        ("PENDING", "InvalidAccount", False, BEGIN_MAX),
        ("PENDING", "InvalidQOS", False, BEGIN_MAX),
        ("PENDING", "AccountNotAllowed", False, BEGIN_MAX),
        ("PENDING", "QOSNotAllowed", False, BEGIN_MAX),
        ("PENDING", "AssocMaxJobsLimit", False, BEGIN_MAX),
        ("PENDING", "AssocGrpCpuLimit", False, BEGIN_MAX),
        ("PENDING", "QOSMaxJobsPerUserLimit", False, BEGIN_MAX),
        ("PENDING", "MaxCpuPerAccount", False, BEGIN_MAX),
        ("PENDING", "Licenses", False, BEGIN_MAX),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", False, None),
        ("PENDING", "Reservation", False, None),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", True, BEGIN_MAX),
        ("PENDING", "BeginTime", False, SCRIPT_DELAY_MICROSECONDS),
        ("PENDING", "BeginTime", True, SCRIPT_DELAY_MICROSECONDS),
        ("PENDING", "JobHeldAdmin", False, SCRIPT_DELAY_MICROSECONDS),
        ("PENDING", "JobHoldMaxRequeue", False, SCRIPT_DELAY_MICROSECONDS),
        ("PENDING", "launch failed requeued held", False, SCRIPT_DELAY_MICROSECONDS),
        ("REQUEUE_HOLD", "", False, SCRIPT_DELAY_MICROSECONDS),
        ("SPECIAL_EXIT", "", False, SCRIPT_DELAY_MICROSECONDS),
        ("CONFIGURING", "", True, None),
        ("RUNNING", "", False, BEGIN_MAX),
        ("SUSPENDED", "", False, BEGIN_MAX),
        ("COMPLETING", "", False, SCRIPT_DELAY_MICROSECONDS),
        ("CANCELLED", "", False, None),
    ],
)
def test_what_hangs_and_how_long_it_may(state: str, reason: str, closed: bool, limit: int | None) -> None:
    found = find_stall([job_of_one_task(state, reason)], closed, BEGIN_MAX)
    assert (found and found.limit) == limit


def test_the_patience_with_a_limit_doubles_with_every_attempt_up_to_a_bound() -> None:
    """A league of one cluster must not count a task as lost too often because a limit lets few run."""
    barred = [job_of_one_task("PENDING", "AssocMaxJobsLimit")]
    limits = [
        found.limit for number in range(1, 51) if (found := find_stall(barred, False, BEGIN_MAX, number))
    ]
    assert limits[:3] == [BEGIN_MAX, 2 * BEGIN_MAX, 4 * BEGIN_MAX]
    assert limits[-1] == limits[BARRED_DOUBLINGS_MAX] == BEGIN_MAX << BARRED_DOUBLINGS_MAX
    closed = find_stall([job_of_one_task("PENDING")], True, BEGIN_MAX, 50)
    assert closed is not None
    assert closed.limit == BEGIN_MAX  # the room of a closed node is not on offer


def test_a_start_hangs_when_all_its_jobs_do() -> None:
    held, runs, waits, over = (
        job_of_one_task("PENDING", "BeginTime"),
        job_of_one_task("RUNNING"),
        job_of_one_task("PENDING"),
        job_of_one_task("FAILED"),
    )
    found = find_stall([held, runs, over], False, BEGIN_MAX)
    assert found is not None
    assert found.limit == BEGIN_MAX
    assert find_stall([held, waits], False, BEGIN_MAX) is None
    assert find_stall([over], True, BEGIN_MAX) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [("None", ""), ("(null)", ""), ("launch_failed_requeued_held", "launch failed requeued held")],
)
def test_reasons_are_read_as_people_say_them(text: str, reason: str) -> None:
    assert clean_reason(text) == reason


# --- in a real Slurm ----------------------------------------------------------------------------------------


@contextmanager
def cluster(message_seconds: int = 3) -> Iterator[tuple[Slurm, Path]]:
    """A cluster of its own, because its nodes are not well for a minute afterwards."""
    if why := missing():
        pytest.skip(why)
    with (
        slurm_clusters("baltic", message_seconds=message_seconds, down_seconds=300) as (slurm,),
        open_directory() as place,
    ):
        yield slurm, place


@DRIVERS
def test_a_submission_that_the_controller_answers_too_late_runs_once(driver: str) -> None:
    """It takes the job all the same, when nobody waits for its answer any more."""
    with cluster() as (slurm, place):
        log = Log(place)

        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            slurm.pause("slurmctld")
            desk.start(launch(log.task(seconds=0.5)))
            await until(lambda: desk.room.keys() == {0, 1, 2}, "it is noticed")
            slurm.pause("slurmctld", signal.SIGCONT)
            assert (await desk.end_of()).outcome is Outcome.SUCCEEDED
            await until(lambda: our_names(slurm) == [], "nothing is left of it")
            assert log.said("begin") == log.said("end") == 1

        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)


@DRIVERS
def test_a_job_whose_node_does_not_answer_is_given_back(driver: str) -> None:
    """Slurm shows it as completing, for about a minute."""
    with cluster() as (slurm, place):
        log = Log(place)

        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            slurm.pause(slurm.nodes[0])
            end = await desk.run(launch(log.task()))
            assert (end.outcome, desk.starts) == (Outcome.LOST, set())
            assert "launch" in end.note
            slurm.pause(slurm.nodes[0], signal.SIGCONT)

        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)
        assert log.said("begin") == 0


def test_a_job_that_slurm_puts_off_after_a_failed_launch_is_given_back() -> None:
    """It may begin two minutes later, although it was submitted as not to be requeued."""
    with cluster() as (slurm, place):
        log = Log(place)

        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            slurm.pause(slurm.nodes[0])
            desk.start(launch(log.task()))
            await until(lambda: states(slurm) in (["RUNNING"], ["COMPLETING"]), "it is sent to its node")
            slurm.kill(slurm.nodes[0])
            slurm.start_node(slurm.nodes[0])
            assert (await desk.end_of()).outcome is Outcome.LOST
            assert (await desk.run(launch(log.task(), 1))).outcome is Outcome.SUCCEEDED

        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)
        assert log.said("begin") == 0


def test_a_job_that_runs_and_does_not_begin_is_given_back_and_is_refused_when_it_does() -> None:
    with cluster(message_seconds=60) as (slurm, place):
        log = Log(place)

        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            slurm.pause(slurm.nodes[0])
            end = await desk.run(launch(log.task()))
            assert (end.outcome, end.note) == (Outcome.LOST, "in Slurm it is RUNNING, and it has not begun")
            slurm.pause(slurm.nodes[0], signal.SIGCONT)
            refused = place / "shared" / "records" / f"{task(0)}.1.refused"
            await until(lambda: refused.exists() or states(slurm) == [], "it is refused or cancelled")

        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), begin_max=SECOND), story)
        assert log.said("begin") == 0


def states(slurm: Slurm) -> list[str]:
    """Of all jobs that are not over."""
    return slurm.run("squeue", "-h", "-o", "%T").split()


@pytest.mark.parametrize("change", ["priority=0", "starttime=now+3600", ""])
@DRIVERS
def test_a_job_that_is_held_or_waits_for_a_closed_node_is_given_back(
    slurm: Slurm, place: Path, driver: str, change: str
) -> None:
    log = Log(place)
    slurm.drain()

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(log.task()))
        if change:
            await until(lambda: len(our_names(slurm)) == 1, "it is there")
            number = slurm.run("squeue", "-h", "-o", "%i").strip()
            slurm.run("scontrol", "update", f"jobid={number}", change)
        end = await desk.end_of()
        assert (end.outcome, desk.starts) == (Outcome.LOST, set())
        assert ("Slurm holds it back" if change else "closed") in end.note
        await until(lambda: our_names(slurm) == [], "its job is cancelled")

    begin_max = HOUR if change else SECOND
    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver, begin_max=begin_max), story)
    slurm.resume()
    assert log.said("begin") == 0


@DRIVERS
def test_a_task_that_slurm_ends_to_launch_it_anew_is_lost_and_not_to_blame(
    slurm: Slurm, place: Path, driver: str
) -> None:
    """As it does by itself with a job whose launch was answered too late."""
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        # Not a shell with a child: it might go on when the child alone has ended.
        said = f'echo "begin $HANSE_TASK $HANSE_ATTEMPT" >> {log.path}'
        desk.start(launch(shell(f"{said}; exec sleep 3600")))
        await log.begun()
        number = slurm.run("squeue", "-h", "-o", "%i").strip()
        slurm.run("scontrol", "update", f"jobid={number}", "requeue=1")
        slurm.run("scontrol", "requeue", number)
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.LOST, "Slurm ended it to launch it anew")
        assert end.usage is not None  # its script said that it was ended
        await until(lambda: our_names(slurm) == [], "it is not launched anew")

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)
    assert (log.said("begin"), log.said("end")) == (1, 0)
