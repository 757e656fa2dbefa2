"""Access tokens: the identity of people and programs without a certificate.

A token is one line, ``hanse-access-1.<claims>.<signature>``: its claims as JSON, and the signature of the
league's authority over exactly those bytes, both in base64 without padding. Any member checks it with the
authority's certificate alone, so it works on every machine from the moment it is made. No copy is kept: a
lost token must be replaced.

A revocation cannot be checked offline. It is on a list (``revocation_list``), which members pass on to each
other (``live.http.revocation_sync``). A member that cannot be reached accepts a revoked token, so tokens live
for a month and not for ever; and a list that cannot be read makes the member refuse every token. The same
list applies to certificates of people, by name and by time of issue.
"""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.certificate_parser import public_key_of
from hanse.security.identity import MEMBERS, Identity, Role, name_problem
from hanse.security.revocation_list import RevocationListError, RevocationSet, read_revocations
from hanse.security.signature_verifier import is_genuine_signature
from hanse.security.wall_time import wall_now

ACCESS_DAYS: Final = 30
ACCESS_CHARACTERS_MAX: Final = 1_024
CACHE_MAX: Final = 1_024
"""Tokens with a verified signature that are cached; the least recently used one is dropped."""
PEOPLE_ROLES: Final = tuple(role for role in Role if role not in MEMBERS)
"""Roles that a token may give: members show certificates."""
PREFIX: Final = "hanse-access-1"


class AccessTokenClaims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The claims of a token. Times in microseconds since 1970."""

    league: str
    role: Role
    name: str
    serial: str
    """Random; identifies the token on the revocation list."""
    issued: int
    expires: int

    @property
    def identity(self) -> Identity:
        """Identity of the bearer."""
        return Identity(self.league, self.role, self.name)


def token_text(access: AccessTokenClaims, sign: Callable[[bytes], bytes]) -> str:
    """Return a token as its bearer gets it; ``sign`` is the authority's."""
    signed = f"{PREFIX}.{encode_base64(msgspec.json.encode(access))}"
    return f"{signed}.{encode_base64(sign(signed.encode('ascii')))}"


class AccessTokenVerifier:
    """The verifier of tokens and of people's revocations, for one member. It reads the authority's key once
    and the home's list whenever that has changed. ``live.http.revocation_sync`` sets the list received from
    peers."""

    def __init__(
        self, league: str, authority: str, revoked: Path, clock: Callable[[], int] = wall_now
    ) -> None:
        self.peer_revocations: RevocationSet | None = RevocationSet()
        """The list received from peers; None: it cannot be read, and all people are refused."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the home's list has changed."""
        self._league = league
        self._key = public_key_of(authority)
        self._path = revoked
        self._clock = clock
        self._verified: OrderedDict[str, AccessTokenClaims] = OrderedDict()
        self._home_list = RevocationSet()
        self._stamp: tuple[int, int, int] | None = None
        """Inode, size and change time of the list that was read."""

    def check(self, text: str) -> Identity | AuthRefusal:
        """Return the identity of a token's bearer, or a refusal. Raise ``RevocationListError``."""
        access = self._verified.get(text) or self._verify(text)
        if isinstance(access, AuthRefusal):
            return access
        self._verified[text] = access
        self._verified.move_to_end(text)
        if len(self._verified) > CACHE_MAX:
            self._verified.popitem(last=False)
        if self._clock() >= access.expires:
            return AuthRefusal(
                AuthRefusalReason.EXPIRED, f"the token of {access.role} {access.name} has expired"
            )
        if self._is_revoked(access):
            return AuthRefusal(
                AuthRefusalReason.REVOKED, f"the token of {access.role} {access.name} was revoked"
            )
        return access.identity

    def _verify(self, text: str) -> AccessTokenClaims | AuthRefusal:
        """Verify a token that is not in the cache."""
        signed, _, signature_text = text.rpartition(".")
        prefix, _, claims = signed.partition(".")
        if prefix != PREFIX or len(text) > ACCESS_CHARACTERS_MAX or not text.isascii():
            return AuthRefusal(
                AuthRefusalReason.UNKNOWN, f"this is not an access token; one begins with '{PREFIX}.'"
            )
        try:
            access = msgspec.json.decode(_decode_base64(claims), type=AccessTokenClaims)
            signature = _decode_base64(signature_text)
        except (msgspec.MsgspecError, ValueError):
            return AuthRefusal(AuthRefusalReason.UNKNOWN, "the access token is damaged")
        if not is_genuine_signature(self._key, signature, signed.encode("ascii")):
            return AuthRefusal(
                AuthRefusalReason.UNKNOWN, "the access token was not issued by this league's authority"
            )
        if access.league != self._league or access.role in MEMBERS or name_problem(access.name):
            return AuthRefusal(
                AuthRefusalReason.UNKNOWN, "the access token is for another league, or for a member"
            )
        return access

    def is_person_revoked(self, name: str, issued: int) -> bool:
        """Return whether a person's certificate was revoked, or raise ``RevocationListError``."""
        home, peers = self._both_lists()
        return home.is_person_revoked(name, issued) or peers.is_person_revoked(name, issued)

    def _is_revoked(self, access: AccessTokenClaims) -> bool:
        return any(
            known.is_token_revoked(access.serial, access.name, access.issued) for known in self._both_lists()
        )

    def _both_lists(self) -> tuple[RevocationSet, RevocationSet]:
        """Return the home's list, then the one from peers."""
        if self.peer_revocations is None:
            raise RevocationListError("the revocations of other members cannot be read")
        return self.home_list(), self.peer_revocations

    def home_list(self) -> RevocationSet:
        """Return the revocations of the home's file as it is now. Raise ``RevocationListError``."""
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        except FileNotFoundError:
            if self._stamp is not None:
                self._stamp, self._home_list = None, RevocationSet()
            return self._home_list
        except OSError as error:
            raise RevocationListError(f"{self._path.name} cannot be read: {error.strerror}") from None
        if stamp != self._stamp:
            self._home_list = read_revocations(self._path)
            self._stamp = stamp
            self.on_change()
        return self._home_list


def encode_base64(data: bytes) -> str:
    """Encode bytes as in tokens."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode_base64(text: str) -> bytes:
    """Decode the output of ``encode_base64``; ``ValueError`` for anything else, also for other spellings."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if encode_base64(data) != text:
        raise ValueError("not in canonical form")
    return data
