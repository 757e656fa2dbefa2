"""Our own client with what doors say: pauses, pages, and jobs that are not as they should be."""

from pathlib import Path

import pytest

from hanse.client.client import LeagueClient
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from tests.client.canned import Answer, Asked, CannedLeague, canned_league

TOO_OFTEN = {"error": {"code": "too_often", "message": "you have exceeded your request rate", "hint": ""}}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the client made, which take no time here."""
    found: list[float] = []
    monkeypatch.setattr("hanse.client.transport.time.sleep", found.append)
    return found


def client_of(league: CannedLeague) -> LeagueClient:
    return LeagueClient(Endpoints("tested", league.context()))


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(tmp_path / "config.json"))


def test_a_door_that_asks_for_a_pause_gets_it(tmp_path: Path, pauses: list[float]) -> None:
    answers = [Answer(429, TOO_OFTEN, (("Retry-After", "2"),)), Answer(200, {"league": "x", "broker": "b"})]
    with canned_league(tmp_path) as league:
        league.broker("b1", lambda _: answers.pop(0))
        client = client_of(league)
        assert client.league().league == "x"
        client.endpoints.close()
    assert pauses == [2]


@pytest.mark.parametrize(("said", "tries"), [("1", 4), ("3600", 1), ("soon", 1), ("", 1)])
def test_patience_has_an_end(tmp_path: Path, pauses: list[float], said: str, tries: int) -> None:
    with canned_league(tmp_path) as league:
        door = league.broker("b1", lambda _: Answer(429, TOO_OFTEN, (("Retry-After", said),)))
        client = client_of(league)
        with pytest.raises(CommandError, match="exceeded your request rate"):
            client.league()
        client.endpoints.close()
    assert len(door.asked) == tries


def test_nodes_are_fetched_page_by_page(tmp_path: Path) -> None:
    def reply(asked: Asked) -> Answer:
        first = int(asked.query.get("after", "north/-1").rpartition("/")[2]) + 1
        nodes = [{"node": number, "cluster": "north"} for number in range(first, min(first + 2, 5))]
        more = first + 2 < 5
        if asked.path == "/v1/cluster":
            return Answer(200, {"cluster": "north", "nodes": nodes, "next": str(first + 1) if more else None})
        return Answer(200, {"nodes": nodes, "next": f"north/{first + 1}" if more else None})

    with canned_league(tmp_path) as league:
        league.broker("b1", reply)
        league.cluster("north", reply)
        client = client_of(league)
        assert [node.node for node in client.nodes().nodes] == [0, 1, 2, 3, 4]
        detail = client.cluster("north")
        assert ([node.node for node in detail.nodes], detail.next) == ([0, 1, 2, 3, 4], None)
        client.endpoints.close()


def test_jobs_that_are_not_as_they_should_be_are_told_one_by_one(tmp_path: Path) -> None:
    results = [{"refused": "not submitted"}, {"problems": [{"field": "cpus", "rule": "too many"}]}]
    refusal = {"error": {"code": "bad_jobs", "message": "no", "hint": ""}, "results": results}
    with canned_league(tmp_path) as league:
        league.broker("b1", lambda _: Answer(422, refusal))
        client = client_of(league)
        first, second = client.submit([{"client_id": "a"}, {"client_id": "b"}])
        client.endpoints.close()
    assert (first.refused, second.problems[0].field) == ("not submitted", "cpus")
