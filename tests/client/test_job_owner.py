"""Requests about one job: the owner is followed to, and copies are asked for."""

from typing import Any

import pytest

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from tests.client.canned import Answer, Asked, CannedLeague, not_found, row
from tests.client.canned_answers import client_of


def job_answer(owner: str) -> Any:
    return lambda _: Answer(200, row(owner=owner))


def moved(canned: CannedLeague, owner: str) -> Any:
    """Points to another broker, unless its own copy is asked for."""

    def reply(asked: Asked) -> Answer:
        if asked.query.get("local") == "1":
            return Answer(200, row(state="queued", owner=owner))
        location = f"https://{canned.brokers[owner]}{asked.path}?timeout={asked.query.get('timeout', '')}"
        return Answer(307, {"error": {}}, (("Location", location), ("X-Hanse-Broker", owner)))

    return reply


def test_the_owner_is_followed_to(canned: CannedLeague) -> None:
    owner = canned.broker("broker-2", job_answer("broker-2"))
    first = canned.broker("broker-1", moved(canned, "broker-2"))
    canned.brokers = {"broker-1": first.address, "broker-2": owner.address}
    client = client_of(canned)
    assert client.wait("2-7", 5).state == "succeeded"
    assert [asked.path for asked in owner.asked] == ["/v1/jobs/2-7/wait"]
    assert owner.asked[0].query == {"timeout": "5"}
    client.endpoints.close()


def test_an_owner_that_is_not_the_owner_is_not_trusted(canned: CannedLeague) -> None:
    """The redirection says whom to expect; somebody else at that address gets no question."""
    impostor = canned.broker("broker-2", job_answer("broker-2"), shows="broker-3")
    canned.broker("broker-1", moved(canned, "broker-2"))
    client = client_of(canned)
    assert client.wait("2-7", 0).state == "queued"  # broker-1's own copy
    assert impostor.asked == []
    client.endpoints.close()


def test_copies_are_asked_for_when_the_owner_is_silent(canned: CannedLeague) -> None:
    canned.dead_broker("broker-3")
    first = canned.broker("broker-1", moved(canned, "broker-3"))
    client = client_of(canned)
    assert client.wait("3-7", 0).state == "queued"
    assert [asked.query.get("local") for asked in first.asked] == [None, "1"]
    client.endpoints.close()


def test_a_circle_of_redirections_ends(canned: CannedLeague) -> None:
    canned.broker("broker-2", not_found)
    first = canned.broker("broker-1", not_found)
    first.reply = moved(canned, "broker-1")
    client = client_of(canned)
    assert client.wait("1-7", 0).owner == "broker-1"
    plain = [asked for asked in first.asked if "local" not in asked.query]
    assert len(plain) <= 5
    client.endpoints.close()


def test_unknown_to_all_is_not_found(canned: CannedLeague) -> None:
    first, second = canned.broker("broker-1", not_found), canned.broker("broker-2", not_found)
    client = client_of(canned)
    with pytest.raises(CommandError, match="there is no job 1-7") as told:
        client.job("1-7")
    assert told.value.status is ExitCode.JOB_NOT_FOUND
    assert [asked.query for asked in first.asked] == [{}]
    assert [asked.query for asked in second.asked] == [{"local": "1"}]
    client.endpoints.close()


def test_unknown_to_some_and_silence_of_others_is_not_not_found(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    canned.broker("broker-2", not_found)
    client = client_of(canned)
    with pytest.raises(CommandError, match="broker-1 does not answer") as told:
        client.job("1-7")
    assert told.value.status is ExitCode.UNAVAILABLE
    client.endpoints.close()
