"""What brokers make known of neighbours, judged one by one."""

from collections.abc import Callable

from hanse.model.effects import TaskSettled, TasksSettled


def one_by_one(settle: Callable[[TaskSettled], None]) -> Callable[[TasksSettled], None]:
    """A performer for runs, from one for single tasks."""

    def each(command: TasksSettled) -> None:
        for one in command.each():
            settle(one)

    return each
