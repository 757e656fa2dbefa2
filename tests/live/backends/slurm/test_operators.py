"""What operators of Slurm do to jobs of the league: they cancel them, and Slurm refuses some."""

from pathlib import Path

import pytest

from hanse.model.messages import Outcome
from tests.live.backends.desk import HOUR, Desk, launch, now, with_desk
from tests.live.backends.places import STUBBORN, shell
from tests.live.backends.slurm.fixture import Slurm
from tests.live.backends.slurm.places import ALL, Log, backend_on, listed, nodes_of, our_jobs, until


def test_a_running_job_that_somebody_cancels_has_failed(slurm: Slurm, place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(shell("exec sleep 3600")))
        await desk.start_of()
        slurm.run("scancel", *our_jobs(slurm))
        end = await desk.end_of()
        assert (end.outcome, end.exit_code, end.note) == (
            Outcome.FAILED,
            -15,
            "cancelled in Slurm by somebody else",
        )

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)


@pytest.mark.parametrize(
    ("reason", "outcome"), [("Duplicate jobid", Outcome.LOST), ("fans are loud", Outcome.FAILED)]
)
def test_what_is_cancelled_while_slurm_forgets_its_launches_is_lost(
    slurm: Slurm, place: Path, reason: str, outcome: Outcome
) -> None:
    """It drains a node with that reason, and cancels more than runs there."""

    async def story(desk: Desk) -> None:
        desk.start(launch(shell("exec sleep 3600")))
        await desk.start_of()
        slurm.run("scontrol", "update", f"nodename={slurm.nodes[2]}", "state=drain", f"reason={reason}")
        await until(lambda: desk.room.get(2) == ALL, "that is seen")
        slurm.run("scancel", *our_jobs(slurm))
        assert (await desk.end_of()).outcome is outcome

    try:
        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)
    finally:
        slurm.resume()


@pytest.mark.usefixtures("drained")
def test_a_waiting_job_that_somebody_cancels_is_given_back_and_never_runs(slurm: Slurm, place: Path) -> None:
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.start(launch(log.task()))
        await listed(slurm)
        slurm.run("scancel", *our_jobs(slurm))
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.LOST, "cancelled in Slurm before it began")
        assert desk.starts == set()

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)
    assert log.said("begin") == 0


def test_a_stubborn_job_that_somebody_cancels_is_killed_and_has_failed(slurm: Slurm, place: Path) -> None:
    """Slurm kills its script too, which cannot tell anything then."""

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(STUBBORN))
        await desk.start_of()
        slurm.run("scancel", *our_jobs(slurm))
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.FAILED, "cancelled in Slurm by somebody else")

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)


@pytest.mark.parametrize("driver", ["cli", "rest"])
def test_what_slurm_refuses_is_lost_with_its_words(slurm: Slurm, place: Path, driver: str) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell("exit 0")))
        assert end.outcome is Outcome.LOST
        assert "artition" in end.note

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver, partition="nowhere"), story)
