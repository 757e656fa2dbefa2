"""Processes that have outlived their attempt, found by its name in their environment.

Control groups list the processes of an attempt. Without them, 1. launcher and supervisor of an attempt are
killed together. 2. The next launcher has the attempt lost. 3. Its watchdog is about to kill what is left of
it, or was killed, too. So before devices of a lost attempt are free the daemon itself kills such processes.
A task that has emptied its environment is not found.
"""

import os
import select
import signal
import time
from pathlib import Path
from typing import Final

from hanse.model.ids import TaskId, index_of, job_of, job_text

GONE_SECONDS_MAX: Final = 1.0
"""Seconds for killed processes to disappear: a daemon waits for nothing longer."""
_PROC: Final = Path("/proc")


def kill_strays(task: TaskId, attempt: int) -> bool:
    """Kill all processes of an attempt that has ended; return True if none is left."""
    words = (
        f"HANSE_JOB={job_text(job_of(task))}",
        f"HANSE_TASK={index_of(task)}",
        f"HANSE_ATTEMPT={attempt}",
    )
    marks = tuple(b"\0" + word.encode() + b"\0" for word in words)
    until = time.monotonic() + GONE_SECONDS_MAX
    while strays := [pid for pid in _list_processes() if _has_marks(pid, marks)]:
        for pid in strays:
            _kill(pid, marks, until)
        if time.monotonic() >= until:
            return False
    return True


def _list_processes() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]


def _has_marks(pid: int, marks: tuple[bytes, ...]) -> bool:
    try:
        environment = b"\0" + (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # it has ended, or is closed to this user
        return False
    return all(mark in environment for mark in marks)


def _kill(pid: int, marks: tuple[bytes, ...], until: float) -> None:
    """Kill one process, if it is still the same, and wait until it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # it has ended
        return
    try:
        if _has_marks(pid, marks):  # it, and not another one with its number
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(max(0.0, until - time.monotonic()) * 1_000)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(handle)
