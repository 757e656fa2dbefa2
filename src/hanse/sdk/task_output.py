"""What tasks wrote, as text for programs."""

import io

from hanse.api.rows import TaskRow
from hanse.client.endpoints import Doors
from hanse.client.errors import CommandError
from hanse.client.task_logs import Ask, Sink, copy


def output(doors: Doors, task: str, row: TaskRow, stream: str) -> bytes:
    """One stream of a task's latest attempt, as far as it is written. Raises ``CommandError``."""
    target = io.BytesIO()
    copy(doors, task, row, Ask(stream), Sink(target, ""))
    return target.getvalue()


def output_tail(doors: Doors, task: str, row: TaskRow, size: int) -> str:
    """The end of what a task wrote to standard error; nothing if it cannot be had."""
    if not row.attempt:
        return ""
    try:
        return output(doors, task, row, "stderr")[-size:].decode(errors="replace")
    except CommandError:
        return ""
