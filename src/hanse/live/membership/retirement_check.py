"""Check that a member can retire without a loss, made before the change is proposed.

A cluster must be drained, with no task running and every end acknowledged by its broker, and must not be the
only one to know the present standby of a shard. A broker must have replicated all its records, and its jobs
must have copies; a broker that does not answer is treated as dead: its standbys have the copies that they
have.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hanse.api.league_file_records import FileStanding
from hanse.live.membership.league_file_sync import LeagueFileSync

REPLICATION_WAIT_SECONDS: Final = 5.0
"""Seconds that a broker is given to replicate its latest records; under load there are always some."""
CHECK_SECONDS: Final = 0.1


async def cluster_retirement_problem(files: LeagueFileSync, name: str, is_open: Callable[[str], bool]) -> str:
    """Return why a cluster cannot retire now; empty: it can."""
    if is_open(name):
        return f"{name} accepts work"
    try:
        standing = await files.ask_standing(name)
    except (OSError, ValueError) as error:
        return f"{name} does not report its tasks: {error}"
    if not standing.drained:
        return f"{name} accepts work"  # the broker that is asked may not have heard of its nodes yet
    if standing.running:
        return f"{standing.running} tasks run in {name}, or have ended without an acknowledgement"
    unshared = dict(standing.estates)
    for entry in files.newest.serving_clusters:
        if unshared and entry.name != name:
            with suppress(OSError, ValueError):  # an absent cluster is no obstacle if another one knows
                known = (await files.ask_standing(entry.name)).estates
                unshared = {shard: term for shard, term in unshared.items() if known.get(shard, 0) < term}
    if unshared:
        return f"no other cluster knows the present standbys of {', '.join(sorted(unshared))}"
    return ""


async def broker_retirement_problem(files: LeagueFileSync, name: str, is_self: bool) -> str:
    """Return why a broker cannot retire now; empty: it can."""

    async def ask() -> FileStanding:
        return files.standing if is_self else await files.ask_standing(name)

    deadline = asyncio.get_running_loop().time() + REPLICATION_WAIT_SECONDS
    while True:
        try:
            running = (await ask()).running
        except (OSError, ValueError):
            return ""
        if not running:
            return ""
        if asyncio.get_running_loop().time() >= deadline:
            return f"{running} jobs and messages of {name} have no copy at another broker yet"
        await asyncio.sleep(CHECK_SECONDS)  # no event reports that another broker has replicated all
