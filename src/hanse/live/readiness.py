"""What a member tells whoever started it: how far it has come back from disk, and that it can be reached.

Lines through a pipe: ``replayed N of M`` now and then, at last ``ready``. Whoever started it may stop
listening at any time, or never listen: a member goes on living all the same, and never waits for a listener.
"""

import contextlib
import os
import time
from typing import Final

READY: Final = "ready"
PAUSE_SECONDS: Final = 1.0
"""How long a member says nothing between two lines of progress: most are ready before the first."""
LOOK_RECORDS: Final = 256
"""How many records are replayed between two looks at the clock."""


class StartReport:
    """The member's end of the pipe. ``descriptor``: None if nobody listens."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._next = time.monotonic() + PAUSE_SECONDS
        if descriptor is not None:
            os.set_blocking(descriptor, False)  # a listener that is stopped must not stop us

    def replayed(self, done: int, total: int) -> None:
        """So many of so many records are replayed. Cheap enough to be called for each of them."""
        if self._descriptor is None or (done % LOOK_RECORDS and done != total):
            return
        if time.monotonic() >= self._next:
            self._tell(f"replayed {done} of {total}\n")
            self._next = time.monotonic() + PAUSE_SECONDS

    def ready(self) -> None:
        """The member can be reached: the last word."""
        if self._descriptor is not None:
            self._tell(f"{READY}\n")
            os.close(self._descriptor)
            self._descriptor = None

    def _tell(self, line: str) -> None:
        assert self._descriptor is not None
        with contextlib.suppress(BrokenPipeError, BlockingIOError):  # nobody listens, or not now
            os.write(self._descriptor, line.encode("ascii"))


SILENT: Final = StartReport(None)
"""For a member that nobody waits for."""
