"""Adapter from settled runs of tasks to single tasks."""

from collections.abc import Callable

from hanse.model.effects import TaskSettled, TasksSettled


def for_each_task(settle: Callable[[TaskSettled], None]) -> Callable[[TasksSettled], None]:
    """Return a performer for runs of settled tasks that calls this one for each task."""

    def perform(effect: TasksSettled) -> None:
        for settled in effect.expand():
            settle(settled)

    return perform
