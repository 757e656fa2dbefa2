"""Whether a member can retire without a loss: asked of it, and of others, before the change is proposed.

A cluster must be drained, with nothing running, every end taken by its broker, and nothing of what it alone
knows may be needed: which standby each broker has named last. A broker must have told others all that they
need,
and its jobs must have copies; if it does not answer, it is as after its death: its standbys have what they
have.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hanse.api.league_records import FileStanding
from hanse.live.membership.membership import Membership

TELL_SECONDS: Final = 5.0
"""How long a broker is given to tell others what only it knows; under load there is always something."""
LOOK_SECONDS: Final = 0.1


async def cluster_problem(own: Membership, name: str, is_open: Callable[[str], bool]) -> str:
    """Why a cluster cannot retire now; empty: it can."""
    if is_open(name):
        return f"{name} takes work"
    try:
        standing = await own.ask_standing(name)
    except (OSError, ValueError) as error:
        return f"{name} does not say what runs there: {error}"
    if standing.running:
        return f"{standing.running} tasks run in {name}, or have ended and their broker has not heard of it"
    alone = dict(standing.estates)
    for entry in own.known.serving_clusters:
        if alone and entry.name != name:
            with suppress(OSError, ValueError):  # one that is away keeps nobody, if another one knows
                known = (await own.ask_standing(entry.name)).estates
                alone = {shard: term for shard, term in alone.items() if known.get(shard, 0) < term}
    if alone:
        return f"no other cluster knows the present heirs of {', '.join(sorted(alone))}"
    return ""


async def broker_problem(own: Membership, name: str, is_own: bool) -> str:
    """Why a broker cannot retire now; empty: it can."""

    async def ask() -> FileStanding:
        return own.standing if is_own else await own.ask_standing(name)

    deadline = asyncio.get_running_loop().time() + TELL_SECONDS
    while True:
        try:
            running = (await ask()).running
        except (OSError, ValueError):
            return ""
        if not running:
            return ""
        if asyncio.get_running_loop().time() >= deadline:
            return f"{running} jobs and messages of {name} are with no other broker yet"
        await asyncio.sleep(LOOK_SECONDS)  # nothing tells when somebody else's broker has said all
