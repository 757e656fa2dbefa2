"""The notary: a short-lived process that makes keys and certificates; no daemon need load the library.

``python -m hanse.live.ca.process enrol|renew|own|fetch HOME``. It reads one JSON document from standard input
and writes one to standard output: the result, or ``{"code", "refused"}``.

* ``enrol``: a newcomer's request and token (``csr``, ``token``) become its first certificate.
* ``renew``: the next certificate of whoever the daemon's door has recognised (``csr``, ``identity``; when the
  present one was issued: ``issued``).
* ``own``: the next certificate of a member or person of this machine (``directory``), from the authority in
  its home or, where there is none, from a broker's door. ``anew``: also if it was revoked.
* ``fetch``: the authority's key, from another broker's door, for the broker of this machine (``directory``).

What a person holds leads to a certificate only if it was not revoked. The list is read here once more, beside
the authority, and the certificate counts as later than what is on it: if somebody is revoked while this is at
work, what it makes counts as revoked too, because it takes less than the clocks' minute. A list that cannot
be read stops the certificates of people, not those of members.

A member's certificate names the hosts at which the league file has it listen: members know each other by
name, but Prometheus and curl go by the host.
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
"""Named in every certificate, for whoever asks on the member's own machine."""


def main() -> int:
    """Do one thing and end; the status is 0 also for a refusal of a stranger's wish, which is an
    answer."""
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
    if identity is not None and identity.role.member:  # now that we know who it is
        certificate = renew(authority, identity, given["csr"], _hosts(home, identity))
    if isinstance(certificate, Refusal):
        return certificate
    league = home.league_file.read_text(encoding="utf-8")
    return {"certificate": certificate, "authority": authority.certificate, "league": league}


def _renew(home: Home, given: dict[str, Any]) -> dict[str, str] | Refusal:
    identity = parse_identity(given["identity"])
    assert identity is not None, "the door has recognised whoever asks"
    certificate = _next(home, Authority.open(home.authority), identity, given["csr"], given["issued"])
    return certificate if isinstance(certificate, Refusal) else {"certificate": certificate}


def _next(
    home: Home, authority: Authority, identity: Identity, csr: str, issued: int | None
) -> str | Refusal:
    """The next certificate of a holder whose present one was issued then; None: whenever that was."""
    until = _revoked_until(home, identity.role, identity.name)
    if issued is not None and issued <= until:
        return Refusal(Reason.REVOKED, f"the certificate of {identity.role} {identity.name} was revoked")
    return renew(authority, identity, csr, _hosts(home, identity), until)


def _revoked_until(home: Home, role: Role, name: str) -> int:
    """Up to when what somebody was given is revoked; negative: nothing is, as for every member."""
    if role.member:
        return -1
    try:
        return revoked_until(home.path, name, wall_now())
    except RevokedError as error:
        raise SystemExit(f"whether {name} is revoked cannot be said: {error}") from None


def own(home: Home, given: dict[str, Any]) -> dict[str, str]:
    """The next certificate of somebody of this machine; ``SystemExit`` says why there is none."""
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
            raise SystemExit(f"only in the home of a broker can that be done: {error}") from None
        certificate = _renewed_by_broker(home, credentials, identity, request(key))
    if isinstance(certificate, Refusal):
        raise SystemExit(certificate.detail)
    accepted = accept(credentials, key, certificate, credentials.authority(), identity)
    if isinstance(accepted, Refusal):
        raise SystemExit(accepted.detail)
    return {"renewed": accepted.uri}


def _hosts(home: Home, identity: Identity) -> list[str]:
    """The hosts for a holder's certificate; a person has none, and what is no host's name is left out."""
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
    raise SystemExit(troubles[-1] if troubles else "no broker could be asked")


def fetch(home: Home, given: dict[str, Any]) -> dict[str, str]:
    """Copy the authority of another broker; ``SystemExit`` says why there is none.

    The answer is believed only if it is the key of the very authority that this broker trusts already.
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
    """What other brokers' doors answer, one after the other, with their names; ``troubles`` gets a line for
    each that has no answer."""
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
