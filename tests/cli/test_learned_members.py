"""A context lists the members of its time: commands learn of those that came, left or moved, and keep it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.cli.main import run
from hanse.client import contexts
from hanse.client.client import LeagueClient
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.job_listing import JobFilter
from tests.client.canned import Answer, Asked, CannedLeague, not_found, row

VERSION = "X-Hanse-League-File"
"""As doors write it."""


class Broker:
    """Answers like a broker that lives by some version of the league file, and has a job of its own."""

    def __init__(self, name: str, league: CannedLeague, version: int = 0) -> None:
        self.name, self.version = name, version
        self.brokers, self.clusters = league.brokers, league.clusters

    def __call__(self, asked: Asked) -> Answer:
        told: dict[str, Any] = {"league": "tested", "broker": self.name}
        if asked.path == "/v1/league":
            told["brokers"] = [{"name": name, "door": door} for name, door in self.brokers.items()]
            told["clusters"] = [{"name": name, "door": door} for name, door in self.clusters.items()]
        elif asked.path == "/v1/jobs":
            told = {"jobs": [row(f"{self.name[-1]}-7", owner=self.name)], "next": None}
        else:
            return not_found(asked)
        return Answer(200, told, ((VERSION, str(self.version)),))


def warden(asked: Asked) -> Answer:
    return Answer(200, {"cluster": "west", "nodes": [0]}) if asked.path == "/v1/drain" else not_found(asked)


def saved() -> contexts.Context:
    return contexts.current_context()[1]


def older(canned: CannedLeague, **changed: Any) -> Endpoints:
    """The doors of a context that was made when the league was another one."""
    context = msgspec.structs.replace(canned.context(), **changed)
    contexts.save_context("tested", context, make_current=True)
    return Endpoints("tested", context)


def test_a_cluster_that_joined_later_is_found(canned: CannedLeague) -> None:
    canned.broker("broker-1", Broker("broker-1", canned, 3))
    west = canned.cluster("west", warden)
    older(canned, clusters={})
    assert run(["drain", "west"]) == ExitCode.OK
    assert [asked.path for asked in west.asked] == ["/v1/drain"]
    assert saved() == msgspec.structs.replace(canned.context(), file_version=3)


def test_a_broker_that_joined_later_is_asked_for_its_jobs(canned: CannedLeague) -> None:
    first = canned.broker("broker-1", Broker("broker-1", canned, 3))
    context = canned.context()
    canned.broker("broker-2", Broker("broker-2", canned, 3))
    doors = older(canned, brokers=context.brokers)
    listing = LeagueClient(doors).jobs(JobFilter(), None)
    assert [one.id for one in listing.rows] == ["2-7", "1-7"]
    assert saved().brokers == canned.brokers
    assert saved().file_version == 3
    doors.close()
    first.asked.clear()
    again = Endpoints("tested", saved())
    LeagueClient(again).jobs(JobFilter(), None)
    assert [asked.path for asked in first.asked] == ["/v1/jobs"]  # it knows, and does not ask again
    again.close()


def test_a_retired_broker_is_not_missed(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    gone = canned.brokers.pop("broker-1")
    canned.broker("broker-2", Broker("broker-2", canned, 4))
    doors = older(canned, brokers={"broker-1": gone, **canned.brokers})
    answers, silent = LeagueClient(doors).all_league_views()
    assert list(answers) == ["broker-2"]
    assert silent == {}
    assert list(saved().brokers) == ["broker-2"]
    doors.close()


def test_the_home_says_where_the_brokers_are_when_none_answers(canned: CannedLeague, tmp_path: Path) -> None:
    canned.dead_broker("broker-1")
    dead = canned.brokers.pop("broker-1")
    canned.broker("broker-2", Broker("broker-2", canned))
    text = f"""
league: tested
version: 2
brokers: [{{name: broker-2, door: '{canned.brokers["broker-2"]}'}}]
clusters: [{{name: north, backend: "null", nodes: [{{cpus: 1}}]}}]
"""
    (tmp_path / "league.yaml").write_text(text)
    doors = older(canned, brokers={"broker-1": dead}, home=str(tmp_path))
    assert LeagueClient(doors).league().broker == "broker-2"
    doors.close()
    assert saved().brokers == canned.brokers


@pytest.mark.parametrize("member", ["broker", "cluster"])
def test_a_member_that_moved_is_found_and_its_address_kept(canned: CannedLeague, member: str) -> None:
    canned.dead_broker("broker-2")
    dead = canned.brokers.pop("broker-2")
    canned.broker("broker-1", Broker("broker-1", canned, 5))
    canned.broker("broker-2", Broker("broker-2", canned, 5))
    canned.cluster("west", warden)
    if member == "cluster":
        older(canned, clusters={"west": dead})
        assert run(["drain", "west"]) == ExitCode.OK
    else:
        older(canned, brokers={**canned.brokers, "broker-2": dead})
        assert run(["jobs"]) == ExitCode.OK
    assert (saved().brokers, saved().clusters) == (canned.brokers, canned.clusters)


def test_an_address_that_works_from_here_stays(canned: CannedLeague) -> None:
    broker = Broker("broker-1", canned, 6)
    canned.broker("broker-1", broker)
    broker.brokers = {"broker-1": "10.255.0.1:7402"}  # as the members see it
    doors = older(canned)
    with pytest.raises(CommandError, match="there is no cluster 'east' in this league") as told:
        doors.cluster("east")
    assert told.value.status is ExitCode.USAGE
    assert saved().brokers == canned.brokers
    doors.close()


def test_a_file_that_is_older_than_the_context_is_not_believed(canned: CannedLeague) -> None:
    broker = Broker("broker-1", canned, 6)
    canned.broker("broker-1", broker)
    broker.clusters = {}
    canned.cluster("west", warden)
    doors = older(canned, file_version=7)
    assert not doors.has_cluster("east")
    assert doors.has_cluster("west")
    doors.close()


def test_a_name_that_nobody_can_be_asked_about_is_told(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    canned.cluster("west", warden)
    with pytest.raises(CommandError, match="has no cluster 'east', and no broker answers") as told:
        older(canned).cluster("east")
    assert told.value.status is ExitCode.UNAVAILABLE
    assert told.value.hint == "there are: west"
