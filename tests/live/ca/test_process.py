"""The notary, asked as daemons and commands ask it: nobody gets a certificate by one that was revoked."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.cli.embedded.league_setup import certify, create_league, with_ports
from hanse.league.config import LeagueConfig
from hanse.league.reader import league_from_data
from hanse.live.ca import process
from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.certificate_authority import Authority
from hanse.security.certificate_parser import read_certificate
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Identity, Role
from hanse.security.join_tokens import JoinTokenStore
from hanse.security.private_keys import certificate_request, new_key
from hanse.security.revocation_list import CLOCK_SKEW, REVOKED_FILE, RevocationSet
from hanse.security.wall_time import wall_now


class Founded:
    """A league's home, with its authority and everybody's certificate."""

    def __init__(self, path: Path) -> None:
        cluster = {"name": "admin", "backend": "null", "nodes": [{"cpus": 1}]}
        league = league_from_data({"brokers": [{"name": "b1"}], "clusters": [cluster]})
        assert isinstance(league, LeagueConfig), league
        self.home = Home(path)
        self.league = with_ports(league)
        certify(self.home, self.league, create_league(self.home, self.league))
        self.person = Credentials(self.home.person("admin"))
        self.member = Credentials(self.home.member("admin"))
        """A warden of the same name."""

    def revoke(self, name: str) -> int:
        """As broker b1 was told; up to when."""
        until = wall_now() + CLOCK_SKEW
        listed = msgspec.json.encode(RevocationSet(names={name: until}))
        (self.home.member("b1") / REVOKED_FILE).write_bytes(listed)
        return until

    def renewed(self, credentials: Credentials) -> Any:
        """What a door's notary says to whoever shows this."""
        shown = credentials.certificate()
        assert shown.identity is not None
        given = {
            "csr": certificate_request(new_key()),
            "identity": shown.identity.uri,
            "issued": shown.issued_at,
        }
        return process._renew(self.home, given)

    def joined(self, token: str) -> Any:
        """What it says to whoever has a join token."""
        return process._enrol(self.home, {"csr": certificate_request(new_key()), "token": token})

    def token(self, role: Role, name: str) -> str:
        authority = Authority.open(self.home.authority)
        return JoinTokenStore(self.home.authority, authority.fingerprint).create(role, name)


@pytest.fixture
def place(tmp_path: Path) -> Founded:
    return Founded(tmp_path / "home")


def test_a_revoked_certificate_leads_to_no_other_and_a_member_goes_on(place: Founded) -> None:
    assert "certificate" in place.renewed(place.person)
    until = place.revoke("admin")
    refused = place.renewed(place.person)
    assert isinstance(refused, AuthRefusal)
    assert refused.reason is AuthRefusalReason.REVOKED
    with pytest.raises(SystemExit, match="was revoked"):
        process.renew_own(place.home, {"directory": str(place.person.directory)})
    assert read_certificate(place.renewed(place.member)["certificate"]).identity == Identity(
        "local", Role.WARDEN, "admin"
    )
    process.renew_own(place.home, {"directory": str(place.member.directory)})
    process.renew_own(place.home, {"directory": str(place.person.directory), "anew": True})
    assert place.person.certificate().issued_at > until
    again = read_certificate(place.renewed(place.person)["certificate"])
    assert again.issued_at > until, "the next of a good one is good"


def test_join_tokens_of_before_end_for_people_only(place: Founded) -> None:
    person, member = place.token(Role.VIEWER, "admin"), place.token(Role.WARDEN, "admin")
    other = place.token(Role.VIEWER, "ann")
    place.revoke("admin")
    refused = place.joined(person)
    assert isinstance(refused, AuthRefusal)
    assert refused.reason is AuthRefusalReason.REVOKED
    for token in (member, other):
        assert "certificate" in place.joined(token)


def test_a_list_that_cannot_be_read_stops_people_and_no_member(place: Founded) -> None:
    (place.home.path / REVOKED_FILE).write_bytes(b"{")
    person, member = place.token(Role.VIEWER, "ann"), place.token(Role.WARDEN, "admin")
    with pytest.raises(SystemExit, match="cannot check whether"):
        place.renewed(place.person)
    with pytest.raises(SystemExit, match="cannot check whether"):
        place.joined(person)
    assert "certificate" in place.renewed(place.member)
    assert "certificate" in place.joined(member)
    (place.home.path / REVOKED_FILE).unlink()
    assert "certificate" in place.joined(person), "its token was not used up"


def test_anew_needs_the_authority(place: Founded, tmp_path: Path) -> None:
    elsewhere = Home(tmp_path / "elsewhere")
    elsewhere.path.mkdir()
    with pytest.raises(SystemExit, match="only in the home of a broker"):
        process.renew_own(elsewhere, {"directory": str(place.person.directory), "anew": True})


def test_what_a_start_makes_for_a_founder_without_a_certificate_counts_as_later(place: Founded) -> None:
    until = place.revoke("admin")
    for credentials in (place.person, place.member):
        credentials.path.unlink()
    certify(place.home, place.league, Authority.open(place.home.authority))
    assert place.person.certificate().issued_at > until > place.member.certificate().issued_at


@contextmanager
def broker_that_gives(credentials: Credentials, port: int, key: str) -> Iterator[None]:
    """A broker's door that answers everything with this key."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = msgspec.json.encode({"key": key})
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", port), Answer)
    server.socket = credentials.server_context(require=False).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_broker_believes_no_key_but_that_of_the_authority_it_trusts(tmp_path: Path) -> None:
    league = league_from_data(
        {
            "brokers": [{"name": "b1"}, {"name": "b2"}],
            "clusters": [{"name": "north", "backend": "null", "nodes": [{"cpus": 1}]}],
        }
    )
    assert isinstance(league, LeagueConfig), league
    league = with_ports(league)
    first, second = Home(tmp_path / "first"), Home(tmp_path / "second")
    certify(first, league, create_league(first, league))
    second.member("b2").mkdir(parents=True)
    for path in first.member("b2").iterdir():
        (second.member("b2") / path.name).write_bytes(path.read_bytes())
    second.league_file.write_bytes(first.league_file.read_bytes())
    giver, port = Credentials(first.member("b1")), league.broker("b1").door.port
    asker = {"directory": str(second.member("b2"))}
    Authority.create(tmp_path / "theirs", "local")
    for key in ((tmp_path / "theirs" / "ca.key").read_text(encoding="ascii"), "nonsense"):
        with broker_that_gives(giver, port, key), pytest.raises(SystemExit, match="b1: ") as refused:
            process.fetch_authority(second, asker)
        assert key not in str(refused.value)
        assert not second.authority.exists()
    with pytest.raises(SystemExit, match="b1: "):  # nobody answers
        process.fetch_authority(second, asker)
    genuine = (first.authority / "ca.key").read_text(encoding="ascii")
    with broker_that_gives(giver, port, genuine):
        assert process.fetch_authority(second, asker)["source"] == "b1"
    assert second.has_authority
