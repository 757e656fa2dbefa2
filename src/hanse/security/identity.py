"""The identity in a certificate: the league, a role, a name.

It is one URI in the certificate's subject alternative names, ``spiffe://<league>/<role>/<name>``. Roles come
from here and nowhere else: no claim of a message about its sender is believed.
"""

import re
import ssl
from enum import StrEnum
from typing import Final

import msgspec

from hanse.model.ids import SECOND

BACKDATE: Final = 300 * SECOND
"""Tolerance for slow clocks: a certificate is valid this long before its issue. The check whether a person's
certificate was issued before its name was revoked depends on it, so the value must not change."""
NAME_CHARACTERS_MAX: Final = 63
"""Characters of a league's or a holder's name."""
NAME_RULE: Final = f"1 to {NAME_CHARACTERS_MAX} letters, digits, '-', '_' or '.', and not '.' or '..'"
_SCHEME: Final = "spiffe://"
_NAME: Final = re.compile(rf"(?!\.\.?$)[A-Za-z0-9_.-]{{1,{NAME_CHARACTERS_MAX}}}", re.ASCII)
_URI_CHARACTERS_MAX: Final = len(_SCHEME) + 3 * (NAME_CHARACTERS_MAX + 1)


class Role(StrEnum):
    """The rights of a holder. The first three are members of the league; the others are people."""

    BROKER = "broker"
    WARDEN = "warden"
    RUNNER = "runner"
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"

    @property
    def is_member(self) -> bool:
        """True if holders are daemons of the league, which connect over the internal protocol."""
        return self in MEMBERS

    @property
    def with_article(self) -> str:
        """The role with its article."""
        return f"{'an' if self[0] in 'aeiou' else 'a'} {self}"


MEMBERS: Final = (Role.BROKER, Role.WARDEN, Role.RUNNER)


class Identity(msgspec.Struct, frozen=True):
    """The identity of a holder."""

    league: str
    role: Role
    name: str

    @property
    def uri(self) -> str:
        """The identity as in a certificate."""
        return f"{_SCHEME}{self.league}/{self.role}/{self.name}"

    def __str__(self) -> str:
        return f"{self.role} {self.name} of {self.league}"


def name_problem(name: str) -> str | None:
    """Return why a name is invalid for a league or a holder, as a sentence; None: it is valid."""
    return None if _NAME.fullmatch(name) else f"a name is {NAME_RULE}"


def parse_identity(uri: str) -> Identity | None:
    """Parse the output of ``Identity.uri``; None for anything else, however similar."""
    if len(uri) > _URI_CHARACTERS_MAX or not uri.startswith(_SCHEME):
        return None
    parts = uri.removeprefix(_SCHEME).split("/")
    if len(parts) != 3 or name_problem(parts[0]) or name_problem(parts[2]):
        return None
    try:
        return Identity(parts[0], Role(parts[1]), parts[2])
    except ValueError:
        return None


class PeerCertificate(msgspec.Struct, frozen=True):
    """The facts of the certificate that a peer showed in a handshake."""

    identity: Identity
    issued: int
    """Time of issue, in microseconds since 1970; certificates have whole seconds."""


def peer_certificate(peer: ssl.SSLObject | ssl.SSLSocket) -> PeerCertificate | None:
    """Return the facts of the verified certificate of a peer, from its one URI.

    None if it showed no certificate, if the certificate was not verified, or if it does not have exactly one
    well-formed URI.
    """
    certificate = peer.getpeercert()
    if not certificate:
        return None
    names = certificate.get("subjectAltName", ())
    uris = [str(name[1]) for name in names if name[0] == "URI"]
    identity = parse_identity(uris[0]) if len(uris) == 1 else None
    if identity is None:
        return None
    begins = ssl.cert_time_to_seconds(str(certificate["notBefore"]))
    return PeerCertificate(identity, begins * SECOND + BACKDATE)


def peer_identity(peer: ssl.SSLObject | ssl.SSLSocket) -> Identity | None:
    """Return the identity of the peer after a handshake; None if unknown."""
    certificate = peer_certificate(peer)
    return None if certificate is None else certificate.identity
