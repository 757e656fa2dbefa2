"""Whether a member may retire: what it says of itself, and what others know, decides."""

import asyncio
from typing import cast

from hanse.api.league_file_records import FileStanding
from hanse.league.config import LeagueConfig
from hanse.league.file import parse
from hanse.live.membership import retirement_check
from hanse.live.membership.league_file_sync import LeagueFileSync
from hanse.live.membership.retirement_check import broker_retirement_problem, cluster_retirement_problem

TEXT = """
league: hansa
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, nodes: [{cpus: 1}]}
  - {name: south, nodes: [{cpus: 1}]}
  - {name: east, nodes: [{cpus: 1}]}
"""


class Told:
    """Answers of members; one without an answer is away."""

    def __init__(self, **answers: FileStanding) -> None:
        self.newest: LeagueConfig = parse(TEXT.encode(), "the file")
        self.answers = answers
        self.standing = FileStanding(0, "", running=1)

    async def ask_standing(self, name: str) -> FileStanding:
        if name not in self.answers:
            raise ConnectionError("it is away")
        return self.answers[name]


def standing(running: int = 0, **estates: int) -> FileStanding:
    return FileStanding(0, "", "", running, estates, drained=True)


def problem(name: str, is_open: bool = False, **answers: FileStanding) -> str:
    told = cast(LeagueFileSync, Told(**answers))
    return asyncio.run(cluster_retirement_problem(told, name, lambda _: is_open))


def test_a_cluster_that_is_needed_stays() -> None:
    assert problem("south", True, south=standing()) == "south accepts work"
    older = FileStanding(0, "", "", 0, {})
    assert problem("south", south=older) == "south accepts work", "the cluster knows, not only who is asked"
    assert problem("south") == "south does not report its tasks: it is away"
    assert problem("south", south=standing(2)).startswith("2 tasks run in south, or have ended")
    assert problem("south", south=standing()) == ""


def test_a_cluster_that_alone_knows_an_heir_stays() -> None:
    here = standing(b1=3, b2=5)
    assert problem("south", south=here, north=standing(b1=3), east=standing(b2=5)) == ""
    assert problem("south", south=here, north=standing(b1=3, b2=6)) == "", "a later heir counts as well"
    assert problem("south", south=here, north=standing(b1=3, b2=4)) == (
        "no other cluster knows the present standbys of b2"
    )
    assert problem("south", south=here) == "no other cluster knows the present standbys of b1, b2"


def test_a_broker_that_has_told_all_or_is_away_may_go() -> None:
    told = cast(LeagueFileSync, Told(b2=standing()))
    assert asyncio.run(broker_retirement_problem(told, "b2", False)) == ""
    assert asyncio.run(broker_retirement_problem(told, "b3", False)) == "", "its heirs have what they have"


def test_a_broker_is_given_time_to_tell() -> None:
    told = Told(b2=standing(7))

    async def story() -> str:
        asking = asyncio.create_task(broker_retirement_problem(cast(LeagueFileSync, told), "b2", False))
        await asyncio.sleep(0)
        told.answers["b2"] = standing()
        return await asking

    assert asyncio.run(story()) == ""


def test_a_broker_with_jobs_that_nobody_has_stays() -> None:
    told = Told(b2=standing(7))
    before, retirement_check.REPLICATION_WAIT_SECONDS = retirement_check.REPLICATION_WAIT_SECONDS, 0.0  # type: ignore[misc]
    try:
        found = asyncio.run(broker_retirement_problem(cast(LeagueFileSync, told), "b2", False))
        own = asyncio.run(broker_retirement_problem(cast(LeagueFileSync, told), "b1", True))
    finally:
        retirement_check.REPLICATION_WAIT_SECONDS = before  # type: ignore[misc]
    assert found == "7 jobs and messages of b2 have no copy at another broker yet"
    assert own == "1 jobs and messages of b1 have no copy at another broker yet"
