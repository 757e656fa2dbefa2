"""Room on the disk under a member's journal: when new work is refused, so that taken work can go on."""

import os
import time
from pathlib import Path
from typing import Final

LOW_BYTES: Final = 256 << 20
"""Below so many free bytes a broker takes no new jobs: what is taken already still has to be written."""
LOW_SHARE: Final = 20
"""On a small disk one part in so many is enough."""
LOOK_SECONDS: Final = 0.05
"""How old the latest look at the disk may be."""


class DiskSpace:
    """The free room of the file system that a directory is on, looked at now and then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._looked_at = float("-inf")
        self._low = False

    def is_low(self) -> bool:
        """Whether so little room is left that it is kept for what was taken already."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            facts = os.statvfs(self._directory)
            total, free = facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize
            self._low = free < min(LOW_BYTES, total // LOW_SHARE)
        return self._low
