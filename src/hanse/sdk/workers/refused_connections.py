"""Connections that an executor closed because the peer broke the protocol: counted and logged."""

import logging
from typing import Final

from hanse.sdk.workers.worker_connection import WorkerConnection

LOGGED_MAX: Final = 100
"""Refusals that are logged; later ones are only counted, so that a stranger cannot fill a disk."""
REASON_CHARACTERS_MAX: Final = 300

log = logging.getLogger(__name__)


class RefusedConnections:
    """Counter of refused connections. Written by the dispatcher's thread, read by any."""

    def __init__(self) -> None:
        self.count = 0

    def record(self, connection: WorkerConnection, reason: str) -> None:
        """Count and log a refusal. Parts of the reason may be the peer's own text."""
        self.count += 1
        reason = "".join(letter if letter.isprintable() else "?" for letter in reason[:REASON_CHARACTERS_MAX])
        if self.count <= LOGGED_MAX:
            log.warning("refused and closed the connection from %s: %s", connection.peer, reason)
        if self.count == LOGGED_MAX:
            log.warning("further refusals are counted and no longer logged")
