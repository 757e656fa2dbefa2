"""Connections that an executor cut because somebody broke the protocol: counted, and told in the log."""

import logging
from typing import Final

from hanse.app.sdk.link import Link

TOLD_MAX: Final = 100
"""Refusals that are told one by one; later ones are only counted, so that a stranger cannot fill a disk."""

log = logging.getLogger(__name__)


class Refusals:
    """How many there were. Written by the exchange's thread, read by any."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self, link: Link, why: str) -> None:
        """A connection is about to be cut, and why."""
        self.count += 1
        if self.count <= TOLD_MAX:
            log.warning("refused and cut off %s: %s", link.peer, why)
        if self.count == TOLD_MAX:
            log.warning("further refusals are counted and no longer told")
