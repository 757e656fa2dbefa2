"""Output of tasks, read by programs."""

import io

from hanse.api.row_records import TaskRow
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from hanse.client.task_logs import LogRequest, OutputSink, copy_output


def read_output(endpoints: Endpoints, task: str, row: TaskRow, stream: str) -> bytes:
    """Return one stream of a task's latest attempt, as far as it is written. Raises ``CommandError``."""
    target = io.BytesIO()
    copy_output(endpoints, task, row, LogRequest(stream), OutputSink(target, ""))
    return target.getvalue()


def read_stderr_tail(endpoints: Endpoints, task: str, row: TaskRow, size: int) -> str:
    """Return the end of a task's standard error; empty if it cannot be read."""
    if not row.attempt:
        return ""
    try:
        return read_output(endpoints, task, row, "stderr")[-size:].decode(errors="replace")
    except CommandError:
        return ""
