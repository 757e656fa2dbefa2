"""Connections that an executor cut because somebody broke the protocol: counted, and told in the log."""

import logging
from typing import Final

from hanse.sdk.workers.worker_connection import Link

TOLD_MAX: Final = 100
"""Refusals that are told one by one; later ones are only counted, so that a stranger cannot fill a disk."""
WHY_CHARACTERS_MAX: Final = 300

log = logging.getLogger(__name__)


class Refusals:
    """How many there were. Written by the exchange's thread, read by any."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self, link: Link, why: str) -> None:
        """A connection is about to be cut, and why. Some words of it may be a stranger's own."""
        self.count += 1
        why = "".join(letter if letter.isprintable() else "?" for letter in why[:WHY_CHARACTERS_MAX])
        if self.count <= TOLD_MAX:
            log.warning("refused and cut off %s: %s", link.peer, why)
        if self.count == TOLD_MAX:
            log.warning("further refusals are counted and no longer told")
