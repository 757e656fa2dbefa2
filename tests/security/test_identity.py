"""Identities: what a certificate may say, and what is not believed."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.security.identity import Identity, Role, name_problem, parse_identity, peer_identity
from tests.security.leagues import PaperLeague, shake_hands

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=63).filter(lambda name: name not in (".", ".."))


@given(NAMES, st.sampled_from(Role), NAMES)
def test_an_identity_is_read_back_as_it_was_written(league: str, role: Role, name: str) -> None:
    identity = Identity(league, role, name)
    assert parse_identity(identity.uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://",
        "spiffe://local/broker",
        "spiffe://local/broker/b1/",
        "spiffe://local/broker/b1/x",
        "spiffe://local//b1",
        "spiffe:///broker/b1",
        "spiffe://local/king/b1",
        "spiffe://local/Broker/b1",
        "SPIFFE://local/broker/b1",
        "https://local/broker/b1",
        "spiffe://local/broker/..",
        "spiffe://local/broker/.",
        "spiffe://local/broker/b 1",
        "spiffe://local/broker/b1\n",
        "spiffe://local/broker/b1\0",
        "spiffe://local/broker/b%31",
        "spiffe://local/broker/é",
        "spiffe://local/broker/" + "b" * 64,
        " spiffe://local/broker/b1",
    ],
)
def test_anything_else_is_nobody(uri: str) -> None:
    assert parse_identity(uri) is None


@given(st.text(max_size=80))
def test_no_text_is_read_as_somebody_it_does_not_name(text: str) -> None:
    found = parse_identity(text)
    assert found is None or found.uri == text


def test_members_are_the_three_machines() -> None:
    assert [role for role in Role if role.is_member] == [Role.BROKER, Role.WARDEN, Role.RUNNER]


def test_names_are_bounded() -> None:
    assert name_problem("b" * 63) is None
    assert name_problem("b" * 64) is not None
    assert name_problem("") is not None


def test_each_end_of_a_connection_knows_the_other(tmp_path: Path) -> None:
    league = PaperLeague(tmp_path)
    broker, warden = league.credentials(Role.BROKER, "b1"), league.credentials(Role.WARDEN, "c1")
    at_server, at_client = shake_hands(
        broker.server_context(), warden.client_context(league.identity(Role.BROKER, "b1"))
    )
    assert peer_identity(at_server) == league.identity(Role.WARDEN, "c1")
    assert peer_identity(at_client) == league.identity(Role.BROKER, "b1")
    assert at_server.version() == "TLSv1.3"


def test_daemons_in_steady_state_do_not_load_the_library_that_makes_certificates() -> None:
    modules = (
        "live.rpc.transport",
        "security.credentials",
        "security.certificate_parser",
        "security.join_tokens",
    )
    lines = [f"import hanse.{module}" for module in modules]
    lines.append("import sys; sys.exit('cryptography' in sys.modules)")
    result = subprocess.run([sys.executable, "-c", "; ".join(lines)], check=False)
    assert result.returncode == 0
