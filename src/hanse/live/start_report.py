"""Start report of a member to its parent process: progress of the replay, then readiness.

Lines through a pipe: ``replayed N of M`` now and then, at last ``ready``. The parent may stop reading at any
time, or never read: a member goes on, and never waits for a reader.
"""

import contextlib
import os
import time
from typing import Final

READY: Final = "ready"
REPORT_SECONDS: Final = 1.0
"""Seconds between two lines of progress: most members are ready before the first."""
CLOCK_CHECK_RECORDS: Final = 256
"""Records that are replayed between two readings of the clock."""


class StartReport:
    """Member's end of the pipe. ``descriptor``: None if there is no reader."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._next_at = time.monotonic() + REPORT_SECONDS
        if descriptor is not None:
            os.set_blocking(descriptor, False)  # a reader that is stopped must not stop the member

    def report_replayed(self, done: int, total: int) -> None:
        """Report the number of replayed records. Cheap enough to be called for each of them."""
        if self._descriptor is None or (done % CLOCK_CHECK_RECORDS and done != total):
            return
        if time.monotonic() >= self._next_at:
            self._write_line(f"replayed {done} of {total}\n")
            self._next_at = time.monotonic() + REPORT_SECONDS

    def report_ready(self) -> None:
        """Report that the member can be reached, and close the pipe."""
        if self._descriptor is not None:
            self._write_line(f"{READY}\n")
            os.close(self._descriptor)
            self._descriptor = None

    def _write_line(self, line: str) -> None:
        assert self._descriptor is not None
        with contextlib.suppress(BrokenPipeError, BlockingIOError):  # no reader, or a full pipe
            os.write(self._descriptor, line.encode("ascii"))


NO_REPORT: Final = StartReport(None)
"""Report of a member without a reader."""
