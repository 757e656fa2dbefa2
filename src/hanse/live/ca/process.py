"""CA process: a short-lived process that makes keys and certificates, so that no daemon loads the library.

``python -m hanse.live.ca.process enrol|renew|own|fetch HOME``. It reads one JSON document from standard input
and writes one to standard output: the result, or ``{"code", "refused"}``.

* ``enrol``: make the first certificate of a newcomer from its request and token (``csr``, ``token``).
* ``renew``: make the next certificate of a holder that the daemon's HTTPS server has authenticated (``csr``,
  ``identity``, and the time of the present certificate: ``issued``).
* ``own``: get the next certificate of a member or person of this machine (``directory``), from the authority
  in its home or, if there is none, from a broker. ``anew``: also if the present one was revoked.
* ``fetch``: get the authority's key from another broker, for the broker of this machine (``directory``).

A person gets a certificate only if the present one is not revoked. The revocation list is read here once
more, beside the authority, and the new certificate counts as later than its entries: if a person is revoked
at the same time, the new certificate is revoked too, because the process takes less than the clocks' minute.
A list that cannot be read stops the certificates of people, not those of members.

A member's certificate names the hosts at which the league file has it listen: members know each other by
name, but Prometheus and curl check the host.
"""

import http.client
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec

from hanse.league.file import load
from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.certificate_authority import HOSTS_MAX, Authority, AuthorityError, hosts_problem
from hanse.security.certificate_parser import read_certificate
from hanse.security.credentials import Credentials
from hanse.security.enrollment import accept, certificate_request, enrol, new_key, renew
from hanse.security.home import Home
from hanse.security.identity import Identity, Role, parse_identity
from hanse.security.join_tokens import JoinTokenStore
from hanse.security.revocation_list import RevocationListError, revoked_until
from hanse.security.wall_time import wall_now

ANSWER_BYTES_MAX: Final = 1 << 20
REQUEST_SECONDS_MAX: Final = 10.0
LOOPBACK: Final = ("localhost", "127.0.0.1")
"""Hosts in every certificate, for clients on the member's own machine."""


def main() -> int:
    """Run one command and return the exit status, which is 0 also if a request was refused."""
    verb, home = sys.argv[1], Home(Path(sys.argv[2]))
    arguments: dict[str, Any] = msgspec.json.decode(sys.stdin.buffer.read())
    answer = {"enrol": _enrol, "renew": _renew, "own": renew_own, "fetch": fetch_authority}[verb](
        home, arguments
    )
    if isinstance(answer, AuthRefusal):
        answer = {"code": str(answer.reason), "refused": answer.detail}
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


def _enrol(home: Home, arguments: dict[str, Any]) -> dict[str, str] | AuthRefusal:
    authority = Authority.open(home.authority)
    book = JoinTokenStore(home.authority, authority.fingerprint)

    def person_revoked_until(role: Role, name: str) -> int:
        return _revoked_until(home, role, name)

    certificate = enrol(authority, book, arguments["csr"], arguments["token"], until=person_revoked_until)
    identity = None if isinstance(certificate, AuthRefusal) else read_certificate(certificate).identity
    if identity is not None and identity.role.is_member:  # now that its identity is known
        certificate = renew(authority, identity, arguments["csr"], _hosts(home, identity))
    if isinstance(certificate, AuthRefusal):
        return certificate
    league = home.league_file.read_text(encoding="utf-8")
    return {"certificate": certificate, "authority": authority.certificate, "league": league}


def _renew(home: Home, arguments: dict[str, Any]) -> dict[str, str] | AuthRefusal:
    identity = parse_identity(arguments["identity"])
    assert identity is not None, "the HTTPS server has authenticated the holder"
    certificate = _issue_next(
        home, Authority.open(home.authority), identity, arguments["csr"], arguments["issued"]
    )
    return certificate if isinstance(certificate, AuthRefusal) else {"certificate": certificate}


def _issue_next(
    home: Home, authority: Authority, identity: Identity, csr: str, issued: int | None
) -> str | AuthRefusal:
    """Return the next certificate. ``issued``: time of the present one; None: skip the revocation check."""
    until = _revoked_until(home, identity.role, identity.name)
    if issued is not None and issued <= until:
        return AuthRefusal(
            AuthRefusalReason.REVOKED, f"the certificate of {identity.role} {identity.name} was revoked"
        )
    return renew(authority, identity, csr, _hosts(home, identity), until)


def _revoked_until(home: Home, role: Role, name: str) -> int:
    """Return the time up to which certificates are revoked; negative: none, as for every member."""
    if role.is_member:
        return -1
    try:
        return revoked_until(home.path, name, wall_now())
    except RevocationListError as error:
        raise SystemExit(f"cannot check whether {name} is revoked: {error}") from None


def renew_own(home: Home, arguments: dict[str, Any]) -> dict[str, str]:
    """Renew the certificate of a member or person of this machine; ``SystemExit`` says why it failed."""
    credentials = Credentials(Path(arguments["directory"]))
    present = credentials.certificate()
    identity, reissue = present.identity, bool(arguments.get("anew"))
    assert identity is not None, "a member's certificate says who it is"
    key = new_key()
    try:
        authority = Authority.open(home.authority)
        certificate = _issue_next(
            home, authority, identity, certificate_request(key), None if reissue else present.issued_at
        )
    except AuthorityError as error:
        if reissue:
            raise SystemExit(f"this can be done only in the home of a broker: {error}") from None
        certificate = _renew_at_broker(home, credentials, identity, certificate_request(key))
    if isinstance(certificate, AuthRefusal):
        raise SystemExit(certificate.detail)
    accepted = accept(credentials, key, certificate, credentials.authority(), identity)
    if isinstance(accepted, AuthRefusal):
        raise SystemExit(accepted.detail)
    return {"renewed": accepted.uri}


def _hosts(home: Home, identity: Identity) -> list[str]:
    """Return the hosts for a holder's certificate; a person has none, and invalid host names are left out."""
    if not identity.role.is_member:
        return []
    hosts = dict.fromkeys((*LOOPBACK, *load(home.league_file).hosts_of(identity.name)))
    return [host for host in hosts if not hosts_problem([host])][:HOSTS_MAX]


def _renew_at_broker(home: Home, credentials: Credentials, identity: Identity, csr: str) -> str:
    """Renew at the first broker that can."""
    problems: list[str] = []
    body = msgspec.json.encode({"csr": csr})
    for _, answer in _ask_brokers(home, credentials, identity, "POST", "/v1/renew", body, problems):
        return str(answer["certificate"])
    raise SystemExit(problems[-1] if problems else "there is no other broker")


def fetch_authority(home: Home, arguments: dict[str, Any]) -> dict[str, str]:
    """Copy the authority from another broker; ``SystemExit`` says why it failed.

    The key is accepted only if it belongs to the authority that this broker trusts already.
    """
    credentials = Credentials(Path(arguments["directory"]))
    identity = credentials.certificate().identity
    assert identity is not None, "a member's certificate says who it is"
    problems: list[str] = []
    for name, answer in _ask_brokers(home, credentials, identity, "GET", "/v1/authority/key", None, problems):
        try:
            authority = Authority.copy(home.authority, str(answer["key"]), credentials.authority(), name)
        except AuthorityError as error:
            problems.append(f"{name}: {error}")
            continue
        return {"fingerprint": authority.fingerprint, "source": name}
    raise SystemExit("; ".join(problems) or "there is no other broker")


def _ask_brokers(
    home: Home, credentials: Credentials, identity: Identity, verb: str, path: str, body: bytes | None,
    problems: list[str],
) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
    """Yield the name and answer of each other broker; add a line to ``problems`` for each without one."""
    for broker in load(home.league_file).serving_brokers:
        expected = Identity(identity.league, Role.BROKER, broker.name)
        if expected == identity:
            continue
        connection = http.client.HTTPSConnection(
            broker.door.host,
            broker.door.port,
            context=credentials.client_context(expected),
            timeout=REQUEST_SECONDS_MAX,
        )
        try:
            connection.request(verb, path, body)
            answer = connection.getresponse()
            content: dict[str, Any] = msgspec.json.decode(answer.read(ANSWER_BYTES_MAX))
            if answer.status != HTTPStatus.OK:
                problems.append(f"{broker.name}: {content['error']['message']}")
                continue
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            problems.append(f"{broker.name}: {error}")
            continue
        finally:
            connection.close()
        yield broker.name, content


if __name__ == "__main__":
    sys.exit(main())
