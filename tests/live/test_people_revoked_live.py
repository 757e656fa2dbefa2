"""Whoever is revoked is out: with a certificate as with a token, at every door, on open connections too."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hanse
from hanse.cli.embedded.league_setup import certify_one
from hanse.client.contexts import load, save_context
from hanse.client.exit_codes import ExitCode
from hanse.sdk.errors import NotAllowedError
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from hanse.security.private_keys import certificate_request, new_key
from hanse.security.revocation_list import REVOKED_FILE
from tests.live.harness import LiveLeague, open_directory, running
from tests.live.http.conftest import LEAGUE, bearer, ledger, nobody
from tests.live.sdk_league import context_of

SECONDS_MAX = 60.0
DOORS = {"b1": Role.BROKER, "b2": Role.BROKER, "north": Role.WARDEN, "far-1": Role.RUNNER}
"""Of every kind."""


class Said(NamedTuple):
    """An answer."""

    status: int
    error: dict[str, Any]

    @property
    def outcome(self) -> tuple[int, str]:
        """The status and the error's word."""
        return self.status, str(self.error.get("code", ""))


class Line:
    """A connection of somebody with a certificate, kept open from one request to the next."""

    def __init__(self, live: LiveLeague, credentials: Credentials, name: str) -> None:
        role, league = DOORS[name], live.league
        entry = league.broker(name) if role is Role.BROKER else None
        address = entry.door if entry is not None else league.cluster("north").door
        if role is Role.RUNNER:
            address = league.cluster_of_runner(name)[1].door
        context = credentials.client_context(Identity(league.name, role, name))
        self._connection = http.client.HTTPSConnection(
            address.host, address.port, context=context, timeout=SECONDS_MAX
        )
        self._connection.auto_open = 0  # a new connection would prove something else
        self._connection.connect()
        self.path = "/v1/league" if role is Role.BROKER else "/v1/logs/1-1.0"

    def ask(self, verb: str = "GET", path: str = "", body: object = None) -> Said:
        """One request over this very connection."""
        self._connection.request(verb, path or self.path, None if body is None else json.dumps(body))
        answer = self._connection.getresponse()
        data = answer.read()
        return Said(answer.status, json.loads(data).get("error", {}) if data else {})

    def stream(self, path: str) -> http.client.HTTPResponse:
        """The answer of a request that lasts."""
        self._connection.request("GET", path)
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    with (
        open_directory() as directory,
        pytest.MonkeyPatch.context() as patch,
        running(directory / "home", LEAGUE) as league,
    ):
        patch.setenv("HANSE_CONFIG", str(directory / "config.json"))
        for name in ("HANSE_CONTEXT", "HANSE_TOKEN", "HANSE_TENANT", "HANSE_HOME"):
            patch.delenv(name, raising=False)
        yield league


@pytest.fixture
def lines() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def person(live: LiveLeague, role: Role, name: str) -> Credentials:
    """Somebody's new key and certificate."""
    directory = live.home.person(f"{name}-{role}")
    certify_one(Authority.open(live.home.authority), directory, Identity("local", role, name))
    return Credentials(directory)


def opened(live: LiveLeague, who: Credentials, lines: ExitStack) -> dict[str, Line]:
    return {name: lines.enter_context(closing(Line(live, who, name))) for name in DOORS}


def command(*words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "hanse", *words],
        input=given,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


def let_in(said: Said) -> bool:
    return said.outcome in ((200, ""), (404, "no_output"))


def cut_off(answer: http.client.HTTPResponse) -> bool:
    """Whether an answer that would last for ever is over soon; a timeout is for whoever waits in vain."""
    deadline = time.monotonic() + SECONDS_MAX / 2
    try:
        while answer.read1():
            assert time.monotonic() < deadline, "it goes on"
    except TimeoutError:
        return False
    except (OSError, http.client.HTTPException):
        return True
    return True


REFUSED = (401, "certificate_revoked")


def test_a_revoked_person_is_out_at_every_door_and_a_member_of_that_name_goes_on(
    live: LiveLeague, lines: ExitStack, tmp_path: Path
) -> None:
    """The person is called as a member is."""
    home = str(live.home.path)
    who, bob = person(live, Role.SUBMITTER, "north"), person(live, Role.SUBMITTER, "bob")
    unused = command("token", "create", "--home", home, "viewer", "north").stdout.strip()
    member = Credentials(live.home.member("north"))
    mine, theirs, of_member = (opened(live, one, lines) for one in (who, bob, member))
    events = lines.enter_context(closing(Line(live, who, "b2"))).stream("/v1/events")
    assert events.status == 200
    assert all(let_in(line.ask()) for line in (*mine.values(), *theirs.values()))

    answer = live.broker("b1").ask("POST", "/v1/access/revoke", {"names": ["north"]})
    assert answer == {"told": ["b1", "b2", "north", "far", "far-1"], "owed": []}

    assert cut_off(events)
    for name, line in [*mine.items(), *opened(live, who, lines).items()]:
        said = line.ask()
        assert said.outcome == REFUSED, name
        assert "hanse join" in said.error["hint"]
    assert mine["b1"].ask("POST", "/v1/renew", {"csr": certificate_request(new_key())}).outcome == REFUSED
    assert all(let_in(line.ask()) for line in theirs.values())

    assert of_member["b1"].ask("GET", "/v1/access/revocations").status == 200
    assert of_member["b1"].ask("POST", "/v1/renew", {"csr": certificate_request(new_key())}).status == 200
    job = live.submit({"command": "true", "clusters": {"allow": ["north"]}})
    assert live.wait(job)["state"] == "succeeded"

    for name in DOORS:
        live.kill(name)
    live.start(*DOORS).settle()
    for name, line in opened(live, who, lines).items():
        assert line.ask().outcome == REFUSED, f"{name} has forgotten it"
    assert all(let_in(line.ask()) for line in opened(live, bob, lines).values())

    door = str(live.league.broker("b1").door)
    late = command("join", "--home", str(tmp_path / "unused"), door, "--token", unused)
    assert late.returncode == 1
    assert "was revoked" in late.stderr
    token = command("token", "create", "--home", home, "viewer", "north").stdout.strip()
    joined = command("join", "--home", str(tmp_path / "new"), door, "--token", token)
    assert joined.returncode == 0, joined.stderr
    fresh = Credentials(tmp_path / "new" / "people" / "north")
    for name, line in opened(live, fresh, lines).items():
        assert let_in(line.ask()), name
    by_token = http.client.HTTPSConnection(door, context=nobody(live), timeout=SECONDS_MAX)
    with closing(by_token):
        by_token.request("GET", "/v1/league", headers=bearer(live, Role.VIEWER, "north"))
        assert by_token.getresponse().status == 200


def test_a_list_that_cannot_be_read_closes_the_doors_of_that_machine_to_people(
    live: LiveLeague, lines: ExitStack
) -> None:
    ann = opened(live, person(live, Role.VIEWER, "ann"), lines)
    member = opened(live, Credentials(live.home.member("b2")), lines)
    assert all(let_in(line.ask()) for line in ann.values())
    (live.home.path / REVOKED_FILE).write_bytes(b"{")
    try:
        for name, line in ann.items():
            assert line.ask().outcome == (503, "no_revocations"), name
        assert member["b1"].ask("GET", "/v1/access/revocations").status == 200
    finally:
        (live.home.path / REVOKED_FILE).unlink()
    assert all(let_in(line.ask()) for line in ann.values())


def test_what_the_home_says_counts_when_the_next_person_asks(live: LiveLeague, lines: ExitStack) -> None:
    carl, dora = (person(live, Role.VIEWER, name) for name in ("carl", "dora"))
    events = lines.enter_context(closing(Line(live, carl, "b1"))).stream("/v1/events")
    others = opened(live, carl, lines)
    assert all(let_in(line.ask()) for line in others.values())
    ledger(live).revoke("carl")
    assert let_in(opened(live, dora, lines)["b1"].ask())
    assert cut_off(events)
    assert [line.ask().outcome for line in others.values()] == [REFUSED] * len(others)


@pytest.mark.parametrize("at_home", [False, True])
def test_who_revokes_themselves_is_asked_first_and_the_founder_gets_a_new_certificate(
    live: LiveLeague, at_home: bool
) -> None:
    save_context("test", context_of(live), make_current=True)
    assert load().current == "test"
    home = ("--home", str(live.home.path))
    words = ("access", "revoke", *(home if at_home else ()), "admin")
    for given in ("", "n\n"):
        asked = command(*words, given=given)
        assert asked.returncode == ExitCode.FAILED, asked
        assert "hanse renew --anew" in asked.stderr
        assert "nothing was revoked" in asked.stderr
        assert command("status").returncode == ExitCode.OK
    done = command(*words, "--yes") if at_home else command(*words, given="y\n")
    assert done.returncode == ExitCode.OK, done
    assert "Refused from now on by: " in done.stdout
    locked = command("status")
    assert locked.returncode == ExitCode.FORBIDDEN, locked
    assert "the certificate of admin admin was revoked" in locked.stderr
    assert "hanse renew --anew" in locked.stderr
    with hanse.Client() as client, pytest.raises(NotAllowedError, match="was revoked"):
        client.jobs()
    assert "was revoked" in command("renew", *home, "admin").stderr
    assert command("renew", *home, "admin", "--anew").returncode == ExitCode.OK
    assert command("status").returncode == ExitCode.OK
    with hanse.Client() as client:
        assert isinstance(client.jobs(), list)


def test_the_interface_refuses_whoever_names_themselves_unless_they_insist(
    live: LiveLeague, lines: ExitStack
) -> None:
    boss = opened(live, person(live, Role.ADMIN, "boss"), lines)["b1"]
    refused = boss.ask("POST", "/v1/access/revoke", {"names": ["ann", "boss"]})
    assert refused.outcome == (409, "own_name")
    assert let_in(boss.ask())
    assert boss.ask("POST", "/v1/access/revoke", {"names": ["boss"], "own": True}).status == 200
    assert boss.ask().outcome == REFUSED


def test_who_asks_with_a_token_is_asked_about_that(live: LiveLeague, monkeypatch: pytest.MonkeyPatch) -> None:
    save_context("test", context_of(live), make_current=True)
    monkeypatch.setenv("HANSE_TOKEN", bearer(live, Role.ADMIN, "ci")["Authorization"].partition(" ")[2])
    for where in ((), ("--home", str(live.home.path))):
        asked = command("access", "revoke", *where, "ci")
        assert asked.returncode == ExitCode.FAILED, asked
        assert "your own access token" in asked.stderr
        assert command("status").returncode == ExitCode.OK
    assert command("access", "revoke", "ci", "--yes").returncode == ExitCode.OK
    assert command("status").returncode == ExitCode.FORBIDDEN
