"""Turns in which members restart with a new league file: brokers one after the other, so that some are up."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from hanse.league.config import LeagueConfig

FIRST_SECONDS: Final = 1.0
"""Seconds before the first member restarts: the requester of the change gets its answer before."""
BROKER_SECONDS_APART: Final = 3.0
"""Seconds between the restarts of two brokers."""
LATE_SECONDS_MAX: Final = 1.0
"""Seconds after its turn at which a broker may still restart: the next broker is far enough behind."""
TURNS_MAX: Final = 5
"""Turns that a broker waits for; if it answers requests for changes in each of them, it restarts after the
last."""
GROUPS: Final = 8
"""Number of groups in which other members restart, half a second apart."""


@asynccontextmanager
async def restart_turn(league: LeagueConfig, name: str, change_lock: asyncio.Lock) -> AsyncIterator[None]:
    """Wait for a member's turn; enter with the lock, so that no request for a change is interrupted.

    A broker that had to wait for the lock until its turn had passed waits for its turn in the next round.
    Otherwise it could restart together with another broker.
    """
    clock = asyncio.get_running_loop().time
    round_seconds = len(league.brokers) * BROKER_SECONDS_APART
    due = clock() + _first_turn(league, name)
    for turns_left in reversed(range(TURNS_MAX)):
        await asyncio.sleep(due - clock())
        async with change_lock:
            if clock() <= due + LATE_SECONDS_MAX or not turns_left:
                yield
                return
        due += round_seconds * math.ceil((clock() - due) / round_seconds)


def _first_turn(league: LeagueConfig, name: str) -> float:
    """Return the seconds until a member's first turn."""
    brokers = [entry.name for entry in league.brokers]
    if name in brokers:
        return FIRST_SECONDS + brokers.index(name) * BROKER_SECONDS_APART
    place = league.members().index(name) % GROUPS
    return FIRST_SECONDS + place / 2
