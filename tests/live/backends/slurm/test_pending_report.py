"""Tasks that wait in Slurm's queue: people hear why, and what waits for something other than room is given
back."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hanse.live.backends.interface import PendingAttempt
from hanse.live.backends.slurm.attempt_store import NO_PROGRAM, EndReason, SlurmAttempt, SubmitPhase
from hanse.live.backends.slurm.driver import SlurmJob
from hanse.live.backends.slurm.pending_report import find_pending_attempt
from hanse.model.ids import job_of
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import HOUR, SECOND, Desk, launch, now, task, with_desk
from tests.live.backends.slurm.fixture import NODE_CPUS, NODE_MEMORY_MIB, Slurm
from tests.live.backends.slurm.places import Log, backend_on, nodes_of, our_names, until

DRIVERS = pytest.mark.parametrize("driver", ["cli", "rest"])
WHOLE = Resources(NODE_CPUS * 1_000, NODE_MEMORY_MIB << 20)


# --- in words -----------------------------------------------------------------------------------------------


def job(state: str, reason: str = "", number: int = 1) -> SlurmJob:
    return SlurmJob(number, -1, number, "hanse:north:00:1-7.0#1", state, "", reason=reason)


def reason_of(attempt: SlurmAttempt, *jobs: SlurmJob, away: bool = False) -> str:
    wait = find_pending_attempt(attempt, jobs, "n1", away)
    assert wait is not None
    assert (wait.task, wait.attempt, wait.node, wait.node_name, wait.requested_at) == (task(0), 1, 0, "n1", 5)
    return wait.reason


def test_why_an_attempt_waits() -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0, requested_at=5)
    assert reason_of(attempt) == "Slurm has not taken it yet: it has not answered"
    attempt.submit_error = "no such node"
    assert reason_of(attempt) == "Slurm has not taken it yet: no such node"
    attempt.phase = SubmitPhase.SUBMITTED
    assert reason_of(attempt) == "it was handed to Slurm, which has not shown it yet"
    assert reason_of(attempt, job("PENDING")) == "Slurm gives no reason yet (PENDING)"
    priority = job("PENDING", "Priority")
    assert reason_of(attempt, priority) == "Slurm says Priority (other jobs come first)"
    assert reason_of(attempt, priority, away=True) == (
        "Slurm does not answer now; before that: Slurm says Priority (other jobs come first)"
    )
    assert reason_of(attempt, job("RUNNING")) == "in Slurm it is RUNNING, and it has not begun"
    again = [job("PENDING", "Resources", 4), job("FAILED", number=5), job("PENDING", "Priority", 3)]
    assert reason_of(attempt, *again) == "Slurm says Resources (there is no room for it yet)"


def test_what_has_begun_or_is_taken_back_does_not_wait() -> None:
    pending = [job("PENDING", "Priority")]
    for change in ({"started": True}, {"stop_at": 0}, {"end_reason": EndReason(Outcome.LOST)}):
        attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
        assert find_pending_attempt(attempt, pending, "", False) is not None
        for name, value in change.items():
            setattr(attempt, name, value)
        assert find_pending_attempt(attempt, pending, "", False) is None


# --- in a real Slurm ----------------------------------------------------------------------------------------


def waits(desk: Desk) -> tuple[PendingAttempt, ...]:
    return desk.backend.pending_attempts(job_of(task(0)))


async def waits_for(desk: Desk, word: str) -> PendingAttempt:
    """Wait until the one task is known to wait for this."""
    await until(lambda: [word in wait.reason for wait in waits(desk)] == [True], f"it waits for {word}")
    return waits(desk)[0]


@contextmanager
def closed(slurm: Slurm) -> Iterator[None]:
    """With a partition that starts nothing."""
    slurm.close()
    try:
        yield
    finally:
        slurm.open()


@contextmanager
def barred(slurm: Slurm, change: str) -> Iterator[None]:
    """With a partition that is open and does not let our jobs start."""
    slurm.bar(change)
    try:
        yield
    finally:
        slurm.unbar()


@DRIVERS
def test_a_job_in_a_closed_partition_says_so_and_is_given_back(
    slurm: Slurm, place: Path, driver: str
) -> None:
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        asked = time.time_ns() // 1_000
        desk.start(launch(log.task()))
        wait = await waits_for(desk, "Slurm says PartitionDown (the partition is down)")
        assert (wait.node_name, wait.node) == (slurm.nodes[0], 0)
        assert asked <= wait.requested_at <= time.time_ns() // 1_000
        end = await desk.end_of()
        assert (end.outcome, desk.starts) == (Outcome.LOST, set())
        assert end.note == "Slurm does not let it start: PartitionDown (the partition is down)"
        assert waits(desk) == ()
        await until(lambda: our_names(slurm) == [], "its job is cancelled")

    with closed(slurm):
        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver, begin_max=3 * SECOND), story)
    assert log.said("begin") == 0


@DRIVERS
@pytest.mark.parametrize(
    ("change", "time_limit", "reason"),
    [("minnodes=2", 0, "PartitionNodeLimit"), ("maxtime=1", 600 * SECOND, "PartitionTimeLimit")],
)
def test_a_job_that_a_limit_bars_is_given_back_and_its_room_stays_on_offer(
    slurm: Slurm, place: Path, driver: str, change: str, time_limit: int, reason: str
) -> None:
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(log.task()))
        await waits_for(desk, f"Slurm says {reason} (the partition does not allow")
        end = await desk.end_of()
        assert (end.outcome, desk.starts) == (Outcome.LOST, set())
        assert reason in end.note
        assert desk.room == {}  # other tasks may be allowed

    with barred(slurm, change):
        with_desk(
            lambda: backend_on(
                slurm, place, nodes_of(slurm), driver, begin_max=2 * SECOND, time_limit=time_limit
            ),
            story,
        )
    assert log.said("begin") == 0


@DRIVERS
def test_a_job_that_waits_for_room_says_so_and_is_left_to_wait(
    slurm: Slurm, place: Path, driver: str
) -> None:
    log = Log(place)
    other = slurm.submit_foreign("sleep 3600", f"--nodelist={slurm.nodes[0]}", "--exclusive")
    slurm.wait(lambda: slurm.state_of(other) == "RUNNING", "somebody else has the node")

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(log.task()))
        wait = await waits_for(desk, "Slurm says Resources (there is no room for it yet)")
        await until(lambda: now() > begun + 4 * SECOND, "it has waited longer than begin_max")
        assert desk.ends == {}
        assert waits(desk) == (wait,)
        slurm.run("scancel", other)
        assert (await desk.end_of()).outcome is Outcome.SUCCEEDED
        assert waits(desk) == ()

    begun = now()
    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver, begin_max=SECOND), story)
    assert log.said("begin") == 1


@DRIVERS
def test_what_is_stopped_while_it_waits_says_what_it_waited_for(
    slurm: Slurm, place: Path, driver: str
) -> None:
    """As when the league takes it back, because it did not start in time."""

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(Log(place).task()))
        await waits_for(desk, "PartitionDown")
        desk.stop(grace=HOUR)
        end = await desk.end_of()
        assert end.outcome is Outcome.CANCELLED
        assert end.note == "it had not begun: Slurm says PartitionDown (the partition is down)"

    with closed(slurm):
        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)


def test_since_when_it_waits_outlives_the_daemon(slurm: Slurm, place: Path) -> None:
    log = Log(place)
    since: list[int] = []

    async def before(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(log.task()))
        since.append((await waits_for(desk, "PartitionDown")).requested_at)

    async def after(desk: Desk) -> None:
        wait = await waits_for(desk, "PartitionDown")
        assert abs(wait.requested_at - since[0]) < SECOND // 2  # when it was put on record
        slurm.open()
        assert (await desk.end_of()).outcome is Outcome.SUCCEEDED

    with closed(slurm):
        for story in (before, after):
            with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)


@DRIVERS
@pytest.mark.parametrize("state", ["down", "inactive", "drain"])
def test_room_of_a_closed_partition_is_not_on_offer(
    slurm: Slurm, place: Path, driver: str, state: str
) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        await until(lambda: desk.room == dict.fromkeys(range(3), WHOLE), "all is withheld")
        assert desk.backend.closed_nodes() == dict.fromkeys(range(3), "its partition in Slurm is not up")
        slurm.open()
        await until(lambda: desk.room == dict.fromkeys(range(3), Resources()), "all is on offer again")
        assert desk.backend.closed_nodes() == {}

    slurm.run("scontrol", "update", "partitionname=batch", f"state={state}")
    try:
        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)
    finally:
        slurm.open()


@DRIVERS
def test_only_the_partition_that_jobs_go_to_counts(slurm: Slurm, place: Path, driver: str) -> None:
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        assert (await desk.run(launch(log.task()))).outcome is Outcome.SUCCEEDED
        await until(lambda: 1 in desk.room, "a look is over")
        assert desk.room == {1: WHOLE, 2: WHOLE}  # the first is in the open partition, too

    with closed(slurm):
        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver, partition="small"), story)


@DRIVERS
def test_why_a_node_is_not_for_the_league_is_told(slurm: Slurm, place: Path, driver: str) -> None:
    """A node that somebody has drained, and a controller that is away."""

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        slurm.run("scontrol", "update", f"nodename={slurm.nodes[1]}", "state=drain", "reason=fans are loud")
        await until(lambda: desk.room.get(1) == WHOLE, "it is withheld")
        assert list(desk.backend.closed_nodes()) == [1]
        why = desk.backend.closed_nodes()[1]
        assert why.startswith("in Slurm it is IDLE+DRAIN (fans are loud"), why
        slurm.resume()
        await until(lambda: desk.room.get(1) == Resources(), "it is on offer again")
        assert desk.backend.closed_nodes() == {}
        slurm.kill_controller()
        await until(lambda: desk.room.get(0) == WHOLE, "all is withheld")
        assert desk.backend.closed_nodes() == dict.fromkeys(range(3), "Slurm does not answer")

    try:
        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)
    finally:
        slurm.restore()
