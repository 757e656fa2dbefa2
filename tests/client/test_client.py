"""The client against real doors with prepared answers: who is asked, in which order; what silence means."""

import socket
import threading
from typing import Any

import msgspec
import pytest

from hanse.client import client as client_module
from hanse.client import transport
from hanse.client.client import JobFilter, LeagueClient
from hanse.client.endpoints import Endpoints
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role
from tests.client.canned import HANG_UP, Answer, Asked, CannedLeague, not_found, row

LEAGUE = {"league": "tested", "broker": "broker-1", "clusters": [{"name": "north", "reachable": True}]}


def client_of(league: CannedLeague) -> LeagueClient:
    return LeagueClient(Endpoints("tested", league.context()))


def league_answer(asked: Asked) -> Answer:
    return Answer(200, LEAGUE) if asked.path == "/v1/league" else not_found(asked)


def busy(_: Asked) -> Answer:
    return Answer(503, {"error": {"code": "busy", "message": "behind with its work", "hint": "try again"}})


def job_answer(owner: str) -> Any:
    return lambda _: Answer(200, row(owner=owner))


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


# --- whose job it is ---------------------------------------------------------------------------------------


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


# --- lists -------------------------------------------------------------------------------------------------


def listing(*rows: dict[str, Any]) -> Any:
    def reply(asked: Asked) -> Answer:
        state = asked.query.get("state", "")
        chosen = [one for one in rows if state in ("", one["state"])]
        at = next((i + 1 for i, one in enumerate(chosen) if one["cursor"] == asked.query.get("after")), 0)
        page = chosen[at : at + int(asked.query["limit"])]
        more = at + len(page) < len(chosen)
        return Answer(200, {"jobs": page, "next": page[-1]["cursor"] if more else None})

    return reply


def test_lists_are_merged_and_the_owner_knows_best(canned: CannedLeague) -> None:
    copy = row("1-1", "queued", owner="broker-1", submitted=10)
    canned.broker("broker-2", listing(row("2-1", "running", "broker-2", submitted=30), copy))
    canned.broker("broker-1", listing(row("1-1", "running", "broker-1", submitted=10)))
    client = client_of(canned)
    found = client.jobs(JobFilter(), 50)
    assert [(one.id, one.state) for one in found.rows] == [("2-1", "running"), ("1-1", "running")]
    assert (found.more, found.silent) == (False, {})
    assert client.jobs(JobFilter(("queued",)), 50).rows == []  # the copy does not know better
    client.endpoints.close()


def test_copies_count_when_the_owner_is_silent(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    canned.broker("broker-2", listing(row("1-1", "queued", owner="broker-1")))
    client = client_of(canned)
    found = client.jobs(JobFilter(("queued",)), 50)
    assert [one.id for one in found.rows] == ["1-1"]
    assert list(found.silent) == ["broker-1"]
    client.endpoints.close()


def test_limits_and_pages(canned: CannedLeague, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE_ROWS", 3)
    rows = [row(f"1-{number}", submitted=number) for number in range(10, 0, -1)]
    door = canned.broker("broker-1", listing(*rows))
    client = client_of(canned)
    some = client.jobs(JobFilter(), 4)
    assert [one.id for one in some.rows] == ["1-10", "1-9", "1-8", "1-7"]
    assert some.more
    assert [asked.query["limit"] for asked in door.asked] == ["3", "1"]
    everything = client.jobs(JobFilter(), None)
    assert len(everything.rows) == 10
    assert not everything.more
    client.endpoints.close()


def test_equal_times_are_told_apart_by_number(canned: CannedLeague) -> None:
    unknown = row("1-3", submitted=None)
    canned.broker("broker-1", listing(unknown, row("1-2", submitted=5), row("1-11", submitted=5)))
    client = client_of(canned)
    assert [one.id for one in client.jobs(JobFilter(), 50).rows] == ["1-11", "1-2", "1-3"]
    client.endpoints.close()


# --- submitting --------------------------------------------------------------------------------------------

FORMS: list[dict[str, object]] = [{"command": "true", "client_id": "mine"}]


def accepts(job: str) -> Any:
    return lambda asked: Answer(200, {"results": [{"job": job} for _ in asked.body["jobs"]]})


def test_a_broker_that_is_not_there_is_not_waited_for(canned: CannedLeague) -> None:
    canned.dead_broker("broker-1")
    second = canned.broker("broker-2", accepts("2-1"))
    client = client_of(canned)
    assert [result.job for result in client.submit(FORMS)] == ["2-1"]
    assert second.asked[0].body == {"jobs": FORMS}
    client.endpoints.close()


STOPPED = Answer(500, {"error": {"code": "stopped", "message": "this member stopped", "hint": ""}})


@pytest.mark.parametrize("end", [HANG_UP, STOPPED])
def test_a_job_whose_answer_was_lost_is_looked_for_before_it_is_submitted_again(
    canned: CannedLeague, end: Answer
) -> None:
    canned.broker("broker-1", lambda _: end)

    def second(asked: Asked) -> Answer:
        assert asked.method == "GET", "it was submitted a second time"
        return Answer(200, {"jobs": [row("1-5", "queued", client_id="mine")], "next": None})

    canned.broker("broker-2", second)
    client = client_of(canned)
    assert [result.job for result in client.submit(FORMS)] == ["1-5"]
    client.endpoints.close()


def test_a_job_that_nobody_got_is_submitted_to_the_next(canned: CannedLeague) -> None:
    canned.broker("broker-1", lambda _: HANG_UP)
    empty = Answer(200, {"jobs": [], "next": None})
    canned.broker("broker-2", lambda asked: empty if asked.method == "GET" else accepts("2-1")(asked))
    client = client_of(canned)
    assert [result.job for result in client.submit(FORMS)] == ["2-1"]
    client.endpoints.close()


def test_when_nobody_says_the_client_is_not_sure(canned: CannedLeague) -> None:
    canned.broker("broker-1", lambda _: HANG_UP)
    client = client_of(canned)
    with pytest.raises(CommandError) as told:
        client.submit(FORMS)
    assert told.value.status is ExitCode.UNSURE
    assert "mine" in told.value.hint
    client.endpoints.close()


def test_what_a_broker_is_not_sure_of_is_asked_again_there_and_nowhere_else(canned: CannedLeague) -> None:
    unsure = {"refused": "not yet safe", "unsure": True}
    answers: list[Any] = [[unsure, {"job": "1-2"}], [{"job": "1-1"}]]
    first = canned.broker("broker-1", lambda _: Answer(200, {"results": answers.pop(0)}))
    second = canned.broker("broker-2", accepts("2-1"))
    client = client_of(canned)
    forms: list[dict[str, object]] = [{"client_id": "a"}, {"client_id": "b"}]
    assert [result.job for result in client.submit(forms)] == ["1-1", "1-2"]
    assert [len(asked.body["jobs"]) for asked in first.asked] == [2, 1]
    first.reply = lambda _: Answer(200, {"results": [unsure]})
    assert client.submit(FORMS)[0].unsure
    assert len(first.asked) == 2 + 1 + client_module.RESUBMITS_MAX
    assert second.asked == []
    client.endpoints.close()


def test_many_jobs_go_in_several_requests(canned: CannedLeague, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "JOBS_PER_REQUEST", 4)

    def reply(asked: Asked) -> Answer:
        return Answer(200, {"results": [{"job": f"1-{job['client_id']}"} for job in asked.body["jobs"]]})

    door = canned.broker("broker-1", reply)
    client = client_of(canned)
    forms: list[dict[str, object]] = [{"client_id": str(number)} for number in range(1, 11)]
    assert [result.job for result in client.submit(forms)] == [f"1-{number}" for number in range(1, 11)]
    assert [len(asked.body["jobs"]) for asked in door.asked] == [4, 4, 2]
    client.endpoints.close()


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
