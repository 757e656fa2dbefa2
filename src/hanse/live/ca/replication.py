"""How every broker comes to have the league's authority, so that none depends on the machine of the founder.

A broker without it asks the other brokers' doors for its key, when it starts and again after pauses that
grow, until it has it. The notary does the asking, the checking and the writing: the key is not in this
process.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final, Protocol

from hanse.live.ca import client
from hanse.security.home import Home

PAUSE_SECONDS_FIRST: Final = 0.5
PAUSE_SECONDS_MAX: Final = 300.0
"""Between two attempts; each is a process of its own for a moment."""
log: Final = logging.getLogger(__name__)


class Host(Protocol):
    """What this needs of its daemon."""

    home: Path
    directory: Path

    def count(self, what: str) -> None:
        """Count an occurrence."""
        ...


class AuthorityCopy:
    """One broker's copy of the authority."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._home = Home(host.home)

    async def obtain(self) -> None:
        """Come back when this broker's home has the authority."""
        pause, told = PAUSE_SECONDS_FIRST, ""
        while not self._home.has_authority:
            try:
                found = await client.ask("fetch", self._host.home, {"directory": str(self._host.directory)})
            except OSError as error:
                self._host.count("authority_not_fetched")
                if str(error) != told:  # else the same line would be there every few minutes
                    told = str(error)
                    log.warning("this broker cannot issue certificates, without the authority yet: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_SECONDS_MAX)
                continue
            self._host.count("authority_fetched")
            log.warning("this broker has the authority now: its key was given by %s", found["source"])
