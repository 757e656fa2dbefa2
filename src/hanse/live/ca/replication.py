"""Replication of the authority to every broker, so that none depends on the machine of the founder.

A broker without the authority asks the other brokers for its key, at its start and after growing pauses,
until it has it. The CA process asks, checks and writes: the key is not in this process.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final, Protocol

from hanse.live.ca import client
from hanse.security.home import Home

PAUSE_SECONDS_FIRST: Final = 0.5
PAUSE_SECONDS_MAX: Final = 300.0
"""Longest pause between two attempts; each starts a process for a moment."""
log: Final = logging.getLogger(__name__)


class AuthorityHost(Protocol):
    """Daemon, as far as ``AuthorityCopy`` needs it."""

    home: Path
    directory: Path

    def count(self, what: str) -> None:
        """Count an occurrence."""
        ...


class AuthorityCopy:
    """Copy of the authority at one broker."""

    def __init__(self, host: AuthorityHost) -> None:
        self._host = host
        self._home = Home(host.home)

    async def obtain(self) -> None:
        """Return when this broker's home has the authority."""
        pause, last_error = PAUSE_SECONDS_FIRST, ""
        while not self._home.has_authority:
            try:
                answer = await client.run_ca_process(
                    "fetch", self._host.home, {"directory": str(self._host.directory)}
                )
            except OSError as error:
                self._host.count("authority_not_fetched")
                if str(error) != last_error:  # else the log repeats the line every few minutes
                    last_error = str(error)
                    log.warning("this broker cannot issue certificates yet, it has no authority: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
                continue
            self._host.count("authority_fetched")
            log.warning("this broker has the authority now, with the key from %s", answer["source"])
