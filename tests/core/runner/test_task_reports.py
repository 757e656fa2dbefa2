"""Reports of a runner about the starts and ends that its backend tells at once."""

from hanse.model.effects import Effect, SendMessage
from hanse.model.events import TasksChanged
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd, Outcome, RunnerReport
from tests.core.runner.alone import Alone

SHARD = "b1#1"


def end(number: int) -> AttemptEnd:
    return AttemptEnd(TaskId(number), 1, Outcome.SUCCEEDED)


def reports(effects: list[Effect]) -> list[RunnerReport]:
    bodies = [effect.envelope.body for effect in effects if isinstance(effect, SendMessage)]
    return [body for body in bodies if isinstance(body, RunnerReport)]


def with_tasks(*numbers: int) -> Alone:
    alone = Alone()
    alone.renew(0)
    for number in numbers:
        alone.start(0, number, SHARD)
    return alone


def change(alone: Alone, started: tuple[int, ...], ended: tuple[int, ...]) -> list[RunnerReport]:
    starts = tuple((TaskId(number), 1) for number in started)
    return reports(alone.runner.handle(TasksChanged(1, starts, tuple(map(end, ended)))))


def test_everything_of_one_event_is_one_report() -> None:
    alone = with_tasks(1, 2, 3)
    assert change(alone, (3,), ()) == [RunnerReport(((TaskId(3), 1),), ())]
    assert change(alone, (1, 2), (3,)) == [RunnerReport(((TaskId(1), 1), (TaskId(2), 1)), (end(3),))]


def test_an_attempt_may_start_and_end_in_one_event() -> None:
    alone = with_tasks(1)
    assert change(alone, (1,), (1,)) == [RunnerReport(((TaskId(1), 1),), (end(1),))]
    alone.runner.check()


def test_nothing_is_reported_twice() -> None:
    alone = with_tasks(1, 2)
    change(alone, (1, 2), (1,))
    assert change(alone, (1, 2), (1,)) == []
    assert change(alone, (1, 2), (1, 2)) == [RunnerReport((), (end(2),))]


def test_a_start_that_is_told_behind_its_end_is_not_reported() -> None:
    alone = with_tasks(1)
    change(alone, (), (1,))
    assert change(alone, (1,), ()) == []
