"""A small real league for the tests of the doors, and people who ask."""

import http.client
import ssl
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest

from hanse.league.config import Address
from hanse.security.access_token_issuer import AccessTokenIssuer
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role
from tests.live.harness import LiveLeague, open_directory, running

LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, backend: "null", nodes: [{count: 3, cpus: 4, memory: 1GiB}]}
  - name: far
    backend: "null"
    runners: [{name: far-1}]
    nodes: [{cpus: 1, attributes: {zone: far}, runner: far-1}]
"""


class Said(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The word of an error."""
        return str(msgspec.json.decode(self.body)["error"]["code"])


def ask(
    address: Address,
    context: ssl.SSLContext,
    verb: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Said:
    """One request over a connection of its own; asked too often, a door is asked again when it says."""
    while True:
        said = ask_once(address, context, verb, path, body, headers)
        if said.status != 429:
            return said
        time.sleep(int(said.headers["retry-after"]))  # the outside world: there is nothing to await


def ask_once(
    address: Address,
    context: ssl.SSLContext,
    verb: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Said:
    """The same, whatever the door says."""
    connection = http.client.HTTPSConnection(address.host, address.port, context=context, timeout=60)
    try:
        connection.request(verb, path, body, headers or {})
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.headers.items()}
        return Said(answer.status, named, answer.read())
    finally:
        connection.close()


def nobody(live: LiveLeague) -> ssl.SSLContext:
    """Somebody who knows the authority, checks host names as curl does, and shows nothing."""
    context = ssl.create_default_context(cadata=live.credentials.authority())
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def ledger(live: LiveLeague) -> AccessTokenIssuer:
    """Where the league's access tokens are made."""
    return AccessTokenIssuer(live.home, Authority.open(live.home.authority))


def bearer(live: LiveLeague, role: Role, name: str = "tester") -> dict[str, str]:
    """The header of somebody with a token of this role."""
    return {"Authorization": f"Bearer {ledger(live).create(role, name, 1)}"}


@pytest.fixture(scope="package")
def live() -> Iterator[LiveLeague]:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        yield league
