"""Output of tasks, read by programs."""

import io

from hanse.api.rows import TaskRow
from hanse.client.endpoints import Doors
from hanse.client.errors import CommandError
from hanse.client.task_logs import Ask, Sink, copy


def output(doors: Doors, task: str, row: TaskRow, stream: str) -> bytes:
    """Return one stream of a task's latest attempt, as far as it is written. Raises ``CommandError``."""
    target = io.BytesIO()
    copy(doors, task, row, Ask(stream), Sink(target, ""))
    return target.getvalue()


def output_tail(doors: Doors, task: str, row: TaskRow, size: int) -> str:
    """Return the end of a task's standard error; empty if it cannot be read."""
    if not row.attempt:
        return ""
    try:
        return output(doors, task, row, "stderr")[-size:].decode(errors="replace")
    except CommandError:
        return ""
