"""A supervisor that is handed an attempt: whose is a stop that comes at that moment?"""

import ctypes
import os
import signal
from pathlib import Path

import pytest

from hanse.live.backends.process.backend import ProcessBackend
from hanse.model.messages import Outcome
from tests.live.backends.desk import Desk, launch, with_desk
from tests.live.backends.places import NODES, run
from tests.live.backends.process.test_recovery import supervisor_of

GRACE_BITS = 44
"""Of what a signal to stop says; above them is whose attempt it means (``supervisor/common.h``)."""


def plain(place: Path) -> ProcessBackend:
    return ProcessBackend(place, "north", NODES)


def test_a_stop_that_comes_with_the_attempt_is_heard(place: Path) -> None:
    """1. A supervisor that waits for an attempt is slow to look. 2. It is handed one, and told to stop that
    one. 3. It must not take the stop for one of the attempt before, nor keep it for the one after."""

    async def story(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))
        slow = supervisor_of(place, 0)
        os.kill(slow, signal.SIGSTOP)
        desk.start(launch(run("sleep", "3600"), 1))
        desk.stop(1, grace=0)
        await desk.run(launch(run("true"), 2))  # by another one: the launcher has done all three
        os.kill(slow, signal.SIGCONT)
        assert (await desk.end_of(1)).outcome is Outcome.CANCELLED
        assert supervisor_of(place, 1) == slow
        for index in (3, 4):
            desk.start(launch(run("sleep", "0.1"), index))  # both at once: one of them is its own
        assert [(await desk.end_of(index)).outcome for index in (3, 4)] == [Outcome.SUCCEEDED] * 2
        assert slow in {supervisor_of(place, index) for index in (3, 4)}

    with_desk(lambda: plain(place), story)


@pytest.mark.parametrize(("turn", "outcome"), [(1, Outcome.SUCCEEDED), (2, Outcome.CANCELLED)])
def test_a_late_stop_of_the_attempt_before_is_not_the_next_ones(
    place: Path, turn: int, outcome: Outcome
) -> None:
    """What a launcher says in the moment in which the first attempt ends (turn 1), and of the second one."""

    async def story(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))
        slow = supervisor_of(place, 0)
        os.kill(slow, signal.SIGSTOP)
        said = ctypes.c_void_p(turn << GRACE_BITS)
        assert ctypes.CDLL(None).sigqueue(slow, int(signal.SIGRTMIN), said) == 0
        desk.start(launch(run("sleep", "0.3"), 1))
        await desk.run(launch(run("true"), 2))  # by another one: the launcher has handed the first over
        os.kill(slow, signal.SIGCONT)
        end = await desk.end_of(1)
        assert (end.outcome, supervisor_of(place, 1)) == (outcome, slow)

    with_desk(lambda: plain(place), story)
