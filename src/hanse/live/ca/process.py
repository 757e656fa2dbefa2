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

from hanse.live.config.league_file import load
from hanse.security.auth_refusal import Reason, Refusal
from hanse.security.certificate_authority import HOSTS_MAX, Authority, AuthorityError, hosts_problem
from hanse.security.certificate_fields import read_certificate
from hanse.security.credentials import Credentials
from hanse.security.enrollment import accept, enrol, new_key, renew, request
from hanse.security.home import Home
from hanse.security.identity import Identity, Role, parse_identity
from hanse.security.join_tokens import TokenBook
from hanse.security.revocation_list import RevokedError, revoked_until
from hanse.security.wall_time import wall_now

ANSWER_BYTES_MAX: Final = 1 << 20
DOOR_SECONDS_MAX: Final = 10.0
LOOPBACK: Final = ("localhost", "127.0.0.1")
"""Hosts in every certificate, for clients on the member's own machine."""


def main() -> int:
    """Run one command and return the exit status, which is 0 also if a request was refused."""
    verb, home = sys.argv[1], Home(Path(sys.argv[2]))
    given: dict[str, Any] = msgspec.json.decode(sys.stdin.buffer.read())
    answer = {"enrol": _enrol, "renew": _renew, "own": own, "fetch": fetch}[verb](home, given)
    if isinstance(answer, Refusal):
        answer = {"code": str(answer.reason), "refused": answer.detail}
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


def _enrol(home: Home, given: dict[str, Any]) -> dict[str, str] | Refusal:
    authority = Authority.open(home.authority)
    book = TokenBook(home.authority, authority.fingerprint)

    def until(role: Role, name: str) -> int:
        return _revoked_until(home, role, name)

    certificate = enrol(authority, book, given["csr"], given["token"], until=until)
    identity = None if isinstance(certificate, Refusal) else read_certificate(certificate).identity
    if identity is not None and identity.role.member:  # now that its identity is known
        certificate = renew(authority, identity, given["csr"], _hosts(home, identity))
    if isinstance(certificate, Refusal):
        return certificate
    league = home.league_file.read_text(encoding="utf-8")
    return {"certificate": certificate, "authority": authority.certificate, "league": league}


def _renew(home: Home, given: dict[str, Any]) -> dict[str, str] | Refusal:
    identity = parse_identity(given["identity"])
    assert identity is not None, "the HTTPS server has authenticated the holder"
    certificate = _next(home, Authority.open(home.authority), identity, given["csr"], given["issued"])
    return certificate if isinstance(certificate, Refusal) else {"certificate": certificate}


def _next(
    home: Home, authority: Authority, identity: Identity, csr: str, issued: int | None
) -> str | Refusal:
    """Return the next certificate. ``issued``: time of the present one; None: skip the revocation check."""
    until = _revoked_until(home, identity.role, identity.name)
    if issued is not None and issued <= until:
        return Refusal(Reason.REVOKED, f"the certificate of {identity.role} {identity.name} was revoked")
    return renew(authority, identity, csr, _hosts(home, identity), until)


def _revoked_until(home: Home, role: Role, name: str) -> int:
    """Return the time up to which certificates are revoked; negative: none, as for every member."""
    if role.member:
        return -1
    try:
        return revoked_until(home.path, name, wall_now())
    except RevokedError as error:
        raise SystemExit(f"cannot check whether {name} is revoked: {error}") from None


def own(home: Home, given: dict[str, Any]) -> dict[str, str]:
    """Renew the certificate of a member or person of this machine; ``SystemExit`` says why it failed."""
    credentials = Credentials(Path(given["directory"]))
    present = credentials.certificate()
    identity, anew = present.identity, bool(given.get("anew"))
    assert identity is not None, "a member's certificate says who it is"
    key = new_key()
    try:
        authority = Authority.open(home.authority)
        certificate = _next(home, authority, identity, request(key), None if anew else present.issued)
    except AuthorityError as error:
        if anew:
            raise SystemExit(f"this can be done only in the home of a broker: {error}") from None
        certificate = _renewed_by_broker(home, credentials, identity, request(key))
    if isinstance(certificate, Refusal):
        raise SystemExit(certificate.detail)
    accepted = accept(credentials, key, certificate, credentials.authority(), identity)
    if isinstance(accepted, Refusal):
        raise SystemExit(accepted.detail)
    return {"renewed": accepted.uri}


def _hosts(home: Home, identity: Identity) -> list[str]:
    """Return the hosts for a holder's certificate; a person has none, and invalid host names are left out."""
    if not identity.role.member:
        return []
    hosts = dict.fromkeys((*LOOPBACK, *load(home.league_file).hosts_of(identity.name)))
    return [host for host in hosts if not hosts_problem([host])][:HOSTS_MAX]


def _renewed_by_broker(home: Home, credentials: Credentials, identity: Identity, csr: str) -> str:
    """Renew at the first broker that can."""
    troubles: list[str] = []
    wish = msgspec.json.encode({"csr": csr})
    for _, answer in _answers(home, credentials, identity, "POST", "/v1/renew", wish, troubles):
        return str(answer["certificate"])
    raise SystemExit(troubles[-1] if troubles else "there is no other broker")


def fetch(home: Home, given: dict[str, Any]) -> dict[str, str]:
    """Copy the authority from another broker; ``SystemExit`` says why it failed.

    The key is accepted only if it belongs to the authority that this broker trusts already.
    """
    credentials = Credentials(Path(given["directory"]))
    identity = credentials.certificate().identity
    assert identity is not None, "a member's certificate says who it is"
    troubles: list[str] = []
    for name, answer in _answers(home, credentials, identity, "GET", "/v1/authority/key", None, troubles):
        try:
            authority = Authority.copy(home.authority, str(answer["key"]), credentials.authority(), name)
        except AuthorityError as error:
            troubles.append(f"{name}: {error}")
            continue
        return {"fingerprint": authority.fingerprint, "source": name}
    raise SystemExit("; ".join(troubles) or "there is no other broker")


def _answers(
    home: Home, credentials: Credentials, identity: Identity, verb: str, path: str, body: bytes | None,
    troubles: list[str],
) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
    """Yield the name and answer of each other broker; add a line to ``problems`` for each without one."""
    for broker in load(home.league_file).serving_brokers:
        expected = Identity(identity.league, Role.BROKER, broker.name)
        if expected == identity:
            continue
        door = http.client.HTTPSConnection(
            broker.door.host,
            broker.door.port,
            context=credentials.client_context(expected),
            timeout=DOOR_SECONDS_MAX,
        )
        try:
            door.request(verb, path, body)
            answer = door.getresponse()
            found: dict[str, Any] = msgspec.json.decode(answer.read(ANSWER_BYTES_MAX))
            if answer.status != HTTPStatus.OK:
                troubles.append(f"{broker.name}: {found['error']['message']}")
                continue
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            troubles.append(f"{broker.name}: {error}")
            continue
        finally:
            door.close()
        yield broker.name, found


if __name__ == "__main__":
    sys.exit(main())
