"""Adapter from settled runs of tasks to single tasks."""

from collections.abc import Callable

from hanse.model.effects import TaskSettled, TasksSettled


def one_by_one(settle: Callable[[TaskSettled], None]) -> Callable[[TasksSettled], None]:
    """Return a performer for runs of settled tasks that calls this one for each task."""

    def each(command: TasksSettled) -> None:
        for one in command.each():
            settle(one)

    return each
