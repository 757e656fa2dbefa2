"""The notary, asked as daemons and commands ask it: nobody gets a certificate by one that was revoked."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.app.league_making import certify, found, with_ports
from hanse.live import notary
from hanse.live.clock import wall_now
from hanse.live.home import Home
from hanse.live.identity.authority import Authority
from hanse.live.identity.certificate import read_certificate
from hanse.live.identity.credentials import Credentials
from hanse.live.identity.identity import Identity, Role
from hanse.live.identity.keys import new_key, request
from hanse.live.identity.refusal import Reason, Refusal
from hanse.live.identity.revoked import CLOCKS_APART, REVOKED_FILE, Revoked
from hanse.live.identity.tokens import TokenBook
from hanse.live.league import League
from hanse.live.league_file import league_from_data


class Founded:
    """A league's home, with its authority and everybody's certificate."""

    def __init__(self, path: Path) -> None:
        cluster = {"name": "admin", "backend": "null", "nodes": [{"cpus": 1}]}
        league = league_from_data({"brokers": [{"name": "b1"}], "clusters": [cluster]})
        assert isinstance(league, League), league
        self.home = Home(path)
        self.league = with_ports(league)
        certify(self.home, self.league, found(self.home, self.league))
        self.person = Credentials(self.home.person("admin"))
        self.member = Credentials(self.home.member("admin"))
        """A warden of the same name."""

    def revoke(self, name: str) -> int:
        """As broker b1 was told; up to when."""
        until = wall_now() + CLOCKS_APART
        listed = msgspec.json.encode(Revoked(names={name: until}))
        (self.home.member("b1") / REVOKED_FILE).write_bytes(listed)
        return until

    def renewed(self, credentials: Credentials) -> Any:
        """What a door's notary says to whoever shows this."""
        shown = credentials.certificate()
        assert shown.identity is not None
        given = {"csr": request(new_key()), "identity": shown.identity.uri, "issued": shown.issued}
        return notary._renew(self.home, given)

    def joined(self, token: str) -> Any:
        """What it says to whoever has a join token."""
        return notary._enrol(self.home, {"csr": request(new_key()), "token": token})

    def token(self, role: Role, name: str) -> str:
        authority = Authority.open(self.home.authority)
        return TokenBook(self.home.authority, authority.fingerprint).create(role, name)


@pytest.fixture
def place(tmp_path: Path) -> Founded:
    return Founded(tmp_path / "home")


def test_a_revoked_certificate_leads_to_no_other_and_a_member_goes_on(place: Founded) -> None:
    assert "certificate" in place.renewed(place.person)
    until = place.revoke("admin")
    refused = place.renewed(place.person)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.REVOKED
    with pytest.raises(SystemExit, match="was revoked"):
        notary.own(place.home, {"directory": str(place.person.directory)})
    assert read_certificate(place.renewed(place.member)["certificate"]).identity == Identity(
        "local", Role.WARDEN, "admin"
    )
    notary.own(place.home, {"directory": str(place.member.directory)})
    notary.own(place.home, {"directory": str(place.person.directory), "anew": True})
    assert place.person.certificate().issued > until
    again = read_certificate(place.renewed(place.person)["certificate"])
    assert again.issued > until, "the next of a good one is good"


def test_join_tokens_of_before_end_for_people_only(place: Founded) -> None:
    person, member = place.token(Role.VIEWER, "admin"), place.token(Role.WARDEN, "admin")
    other = place.token(Role.VIEWER, "ann")
    place.revoke("admin")
    refused = place.joined(person)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.REVOKED
    for token in (member, other):
        assert "certificate" in place.joined(token)


def test_a_list_that_cannot_be_read_stops_people_and_no_member(place: Founded) -> None:
    (place.home.path / REVOKED_FILE).write_bytes(b"{")
    person, member = place.token(Role.VIEWER, "ann"), place.token(Role.WARDEN, "admin")
    with pytest.raises(SystemExit, match="cannot be said"):
        place.renewed(place.person)
    with pytest.raises(SystemExit, match="cannot be said"):
        place.joined(person)
    assert "certificate" in place.renewed(place.member)
    assert "certificate" in place.joined(member)
    (place.home.path / REVOKED_FILE).unlink()
    assert "certificate" in place.joined(person), "its token was not used up"


def test_anew_needs_the_authority(place: Founded, tmp_path: Path) -> None:
    elsewhere = Home(tmp_path / "elsewhere")
    elsewhere.path.mkdir()
    with pytest.raises(SystemExit, match="only where the league was founded"):
        notary.own(elsewhere, {"directory": str(place.person.directory), "anew": True})


def test_what_a_start_makes_for_a_founder_without_a_certificate_counts_as_later(place: Founded) -> None:
    until = place.revoke("admin")
    for credentials in (place.person, place.member):
        credentials.path.unlink()
    certify(place.home, place.league, Authority.open(place.home.authority))
    assert place.person.certificate().issued > until > place.member.certificate().issued
