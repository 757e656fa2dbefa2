"""The client against real doors with prepared answers: who is asked, in which order; what silence means."""

import socket
import threading

import msgspec
import pytest

from hanse.client import transport
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.client.job_listing import JobFilter
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role
from tests.client.canned import HANG_UP, Answer, Asked, CannedLeague, row
from tests.client.canned_answers import LEAGUE, busy, client_of, league_answer, listing


def test_a_request_leaves_in_one_piece() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # which keeps pieces apart
    with ours, theirs:
        connection = transport.SingleRecordConnection("door")
        connection.sock = ours
        connection.request("POST", "/v1/jobs", b"[1]", {"Content-Type": "application/json"})
        piece = theirs.recv(4_096)
    assert piece.startswith(b"POST /v1/jobs HTTP/1.1\r\n")
    assert piece.endswith(b"\r\n\r\n[1]")


# --- silence -----------------------------------------------------------------------------------------------


def test_the_next_broker_is_asked_and_remembered(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    second = canned.broker("broker-2", league_answer)
    client = client_of(canned)
    assert client.endpoints.broker_order() == ["broker-1", "broker-2"]
    assert client.league().league == "tested"
    assert client.endpoints.broker_order() == ["broker-2", "broker-1"]
    client.endpoints.close()
    again = client_of(canned)  # another process finds it written down
    assert again.endpoints.broker_order() == ["broker-2", "broker-1"]
    assert again.league().clusters[0].name == "north"
    assert len(second.asked) == 2
    again.endpoints.close()


def test_nobody_answers(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    canned.dead_broker("broker-2")
    with pytest.raises(CommandError, match=r"broker-1 at .*: nobody listens there; broker-2") as told:
        client_of(canned).league()
    assert told.value.status is ExitCode.UNAVAILABLE
    assert "hanse config use" in told.value.hint


def test_whoever_is_not_who_it_should_be_gets_no_question(canned: CannedLeague) -> None:
    impostor = canned.broker("broker-1", league_answer, shows="broker-9")
    with pytest.raises(CommandError, match="expected broker broker-1 of tested") as told:
        client_of(canned).league()
    assert told.value.status is ExitCode.UNAVAILABLE
    assert impostor.asked == []


def test_a_broker_that_accepts_and_is_silent_is_passed_over(
    canned: CannedLeague, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT_SECONDS_MAX", 0.2)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        canned.brokers["broker-1"] = f"127.0.0.1:{mute.getsockname()[1]}"
        canned.broker("broker-2", league_answer)
        client = client_of(canned)
        assert client.league().league == "tested"
        assert client.endpoints.broker_order()[0] == "broker-2"
        client.endpoints.close()


def test_an_answer_that_takes_too_long(canned: CannedLeague) -> None:
    waiting = threading.Event()
    released = threading.Event()

    def slow(_: Asked) -> Answer:
        waiting.set()
        released.wait(30)
        return Answer(200, LEAGUE)

    door = Endpoints("tested", canned.context())
    canned.broker("broker-1", slow)
    door = Endpoints("tested", canned.context())
    with pytest.raises(transport.NoAnswerError, match="no answer in time") as told:
        door.broker("broker-1").request("GET", "/v1/league", seconds=0.2)
    assert told.value.sent
    assert waiting.is_set()
    released.set()
    door.close()


def test_a_connection_that_was_closed_meanwhile_is_opened_again(canned: CannedLeague) -> None:
    answers = [Answer(200, LEAGUE, (("Connection", "keep-alive"),)), HANG_UP, Answer(200, LEAGUE)]
    door = canned.broker("broker-1", lambda _: answers.pop(0))
    client = client_of(canned)
    assert client.league().league == "tested"
    assert client.league().league == "tested"
    assert len(door.asked) == 3
    client.endpoints.close()


def test_a_busy_broker_is_passed_over_while_there_are_others(canned: CannedLeague) -> None:
    canned.broker("broker-1", busy)
    second = canned.broker("broker-2", league_answer)
    client = client_of(canned)
    assert client.league().league == "tested"
    second.reply = busy
    with pytest.raises(CommandError, match="behind with its work") as told:
        client.league()
    assert told.value.status is ExitCode.UNAVAILABLE
    client.endpoints.close()


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, ExitCode.FORBIDDEN), (403, ExitCode.FORBIDDEN), (422, ExitCode.BAD_JOB), (409, ExitCode.FAILED)],
)
def test_refusals_keep_their_words(canned: CannedLeague, status: int, code: ExitCode) -> None:
    said = {"error": {"code": "x", "message": "a viewer may not do this", "hint": "ask an operator"}}
    canned.broker("broker-1", lambda _: Answer(status, said))
    client = client_of(canned)
    with pytest.raises(CommandError, match="a viewer may not do this") as told:
        client.league()
    assert (told.value.status, told.value.hint) == (code, "ask an operator")
    client.endpoints.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"league": 3}', b"\xff"])
def test_an_answer_that_makes_no_sense(canned: CannedLeague, body: bytes) -> None:
    canned.broker("broker-1", lambda _: Answer(200, body))
    client = client_of(canned)
    with pytest.raises(CommandError, match="cannot be decoded") as told:
        client.league()
    assert "versions" in told.value.hint
    client.endpoints.close()


def test_credentials_that_are_gone(canned: CannedLeague) -> None:
    canned.broker("broker-1", league_answer)
    canned.person.path.unlink()
    with pytest.raises(CommandError, match="cannot be used") as told:
        client_of(canned).league()
    assert told.value.status is ExitCode.CONFIG


def test_a_certificate_that_has_expired_is_the_reason(canned: CannedLeague) -> None:
    door = canned.broker("broker-1", league_answer)
    long_ago = lambda: 1_000_000_000_000_000  # noqa: E731  the year 2001
    canned.authority = Authority.open(canned.folder / "authority", long_ago)
    canned.credentials(Role.ADMIN, "admin")
    with pytest.raises(CommandError, match="has expired") as told:
        client_of(canned).league()
    assert told.value.status is ExitCode.UNAVAILABLE
    assert "hanse join" in told.value.hint
    assert door.asked == []


def test_a_busy_broker_does_not_hide_the_others(canned: CannedLeague) -> None:
    canned.broker("broker-1", busy)
    both = listing(row("2-1", owner="broker-2"))
    canned.broker(
        "broker-2", lambda asked: league_answer(asked) if asked.path == "/v1/league" else both(asked)
    )
    client = client_of(canned)
    assert [one.id for one in client.jobs(JobFilter(), 5).rows] == ["2-1"]
    answers, silent = client.all_league_views()
    assert (list(answers), silent) == (["broker-2"], {"broker-1": "behind with its work"})
    client.endpoints.close()


@pytest.mark.parametrize("address", ["nowhere", "host:", "host:port", "", ":7402"])
def test_an_address_that_is_none(canned: CannedLeague, address: str) -> None:
    with pytest.raises(CommandError, match="is not an address"):
        transport.host_and_port(address)


def test_addresses() -> None:
    assert transport.host_and_port("host:7402") == ("host", 7402)
    assert transport.host_and_port("[::1]:7402") == ("::1", 7402)


# --- clusters ----------------------------------------------------------------------------------------------


def test_a_cluster_is_asked_at_its_own_door(canned: CannedLeague) -> None:
    door = canned.cluster(
        "north", lambda asked: Answer(200, {"cluster": "north", "nodes": asked.body["nodes"]})
    )
    client = client_of(canned)
    assert client.drain("north", [1, 2], drain=True).nodes == (1, 2)
    assert (door.asked[0].path, door.asked[0].body) == ("/v1/drain", {"nodes": [1, 2], "drain": True})
    with pytest.raises(CommandError, match="no cluster 'south'") as told:
        client.drain("south", None, drain=True)
    assert told.value.hint == "there are: north"
    client.endpoints.close()


def test_a_warden_is_no_broker(canned: CannedLeague) -> None:
    door = canned.add(Role.WARDEN, "north", league_answer)
    canned.brokers["north"] = door.address
    with pytest.raises(CommandError, match="expected broker north of tested"):
        client_of(canned).league()
    assert door.asked == []


def test_a_plan_is_understood(canned: CannedLeague) -> None:
    from hanse.live.readmodel.job_outlook import GroupOutlook, JobOutlook
    from hanse.live.readmodel.start_estimate import Candidate, Plan, Start

    outlook = JobOutlook(2, 1, 0, (GroupOutlook("main", 3, {"north": 2}, 1, 0),), ("s",))
    plan = Plan(False, (Candidate("north", 1, 900, "r", True),), Start(1, 2, None), "u", ("c",), outlook)
    canned.broker("broker-1", lambda _: Answer(200, msgspec.json.encode(plan)))
    client = client_of(canned)
    assert msgspec.to_builtins(client.plan({})) == msgspec.to_builtins(plan)
    client.endpoints.close()
