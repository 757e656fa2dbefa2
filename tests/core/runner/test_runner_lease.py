"""A runner's lease when what should end tasks of a lapsed estate hangs: it is not renewed for them."""

from hanse.core.runner.runner import Runner
from hanse.model.effects import Effect, ExtendWatchdog, KillAttempt, LaunchAttempt
from hanse.model.events import TasksChanged
from hanse.model.ids import SECOND, TaskId
from hanse.model.messages import (
    AttemptEnd,
    Outcome,
    RunnerOrders,
)
from tests.core.runner.alone import LEASE, Alone

OURS, THEIRS = "b1#1", "b2#1"


def guards(commands: list[Effect]) -> list[int]:
    return [command.until for command in commands if isinstance(command, ExtendWatchdog)]


def with_two_tasks() -> Alone:
    """Tasks 1 and 2 of two estates, under a lease until ``LEASE``."""
    alone = Alone()
    assert guards(alone.renew(0)) == [LEASE]
    alone.start(0, 1, OURS)
    alone.start(0, 2, THEIRS)
    return alone


def test_an_order_to_start_is_good_for_the_lease_that_it_counts_on() -> None:
    alone = Alone()
    alone.renew(0)
    (launch,) = [command for command in alone.start(1, 1, OURS) if isinstance(command, LaunchAttempt)]
    assert launch.until == 1 + LEASE


def test_the_lease_is_not_renewed_while_tasks_of_a_lapsed_estate_live() -> None:
    alone = with_two_tasks()
    out = alone.renew(SECOND, THEIRS)
    assert [(kill.task, kill.grace) for kill in out if isinstance(kill, KillAttempt)] == [(2, 0)]
    assert guards(out) == []
    assert guards(alone.renew(2 * SECOND, THEIRS)) == []
    assert guards(alone.hear(3 * SECOND, RunnerOrders(3 * SECOND))) == []
    assert guards(alone.renew(LEASE - 1, THEIRS)) == []
    assert alone.runner.marks["runner.held_its_lease"] == 4
    alone.runner.check()


def test_what_is_started_under_a_lease_that_is_not_renewed_is_good_for_no_longer() -> None:
    alone = with_two_tasks()
    alone.renew(SECOND, THEIRS)
    (launch,) = [
        command for command in alone.start(2 * SECOND, 3, OURS) if isinstance(command, LaunchAttempt)
    ]
    assert launch.until == LEASE


def test_it_is_renewed_at_once_when_the_last_of_them_is_over() -> None:
    alone = with_two_tasks()
    alone.start(0, 3, THEIRS)
    alone.renew(SECOND, THEIRS)
    assert guards(alone.over(SECOND + 1, 2)) == []
    assert guards(alone.over(SECOND + 2, 3)) == [SECOND + LEASE]


def test_it_is_renewed_when_the_watchdog_must_have_ended_them() -> None:
    alone = with_two_tasks()
    alone.renew(SECOND, THEIRS)
    assert guards(alone.renew(LEASE, THEIRS)) == [2 * LEASE]
    assert guards(alone.renew(LEASE + SECOND, THEIRS)) == [2 * LEASE + SECOND]  # it still has not heard of it


def test_a_hold_is_part_of_its_state() -> None:
    alone = with_two_tasks()
    alone.renew(SECOND, THEIRS)
    alone.renew(2 * SECOND, THEIRS)
    twin = Runner(alone.runner.config)
    twin.restore(alone.runner.dump())
    assert twin.dump() == alone.runner.dump()
    assert guards(twin.handle(TasksChanged(3 * SECOND, (), (AttemptEnd(TaskId(2), 1, Outcome.LOST),)))) == [
        2 * SECOND + LEASE
    ]
