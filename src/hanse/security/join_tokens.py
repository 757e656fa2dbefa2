"""Join tokens: single-use invitations that an operator gives to a new member or person.

A token is one line, ``hanse1.<id>.<secret>.<fingerprint>``: the id finds its entry in the token file, the
secret (128 bits) proves that the bearer was given it, and the fingerprint of the authority's public key tells
the bearer which authority to trust before it sends the secret. The file keeps a digest of the secret only. It
is small, rewritten whole under a lock against other processes, and durable before an answer is given: a
redeemed token stays redeemed after any crash.
"""

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from hanse.model.ids import SECOND
from hanse.security import atomic_files
from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.identity import Role, name_problem
from hanse.security.wall_time import wall_now

TOKENS_MAX: Final = 1_000
"""Tokens in the file; used and expired ones count until they are removed, a week after they expired."""
TOKEN_CHARACTERS_MAX: Final = 128
TOKEN_LIFETIME: Final = 24 * 3_600 * SECOND
TOKEN_LIFETIME_MAX: Final = 30 * TOKEN_LIFETIME
FORGET_AFTER: Final = 7 * 24 * 3_600 * SECOND
"""Microseconds for which an expired token is remembered, so that its bearer gets a precise refusal."""
NOT_HERE: Final = (
    "unknown token. Use a token at the broker beside which it was made; it is not valid at others"
)
_TOKENS_FILE_BYTES_MAX: Final = 4 << 20
_PREFIX: Final = "hanse1"
_ID_BYTES, _SECRET_BYTES, _DIGEST_BYTES = 6, 16, 32
_HEXADECIMAL: Final = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


class JoinTokenError(Exception):
    """The token file cannot be used; the message says what to do."""


class ParsedJoinToken(msgspec.Struct, frozen=True):
    """The parts of a join token."""

    id: str
    secret: bytes
    fingerprint: str
    """Fingerprint of the authority's public key, ``sha256:...``."""


class JoinGrant(msgspec.Struct, frozen=True):
    """The right to one certificate of this role and name, from a redeemed token."""

    role: Role
    name: str
    revoked_until: int = -1
    """Time up to which this name was revoked at that moment: the certificate must count as issued later, and
    as issued before any later revocation."""


class _JoinTokenEntry(msgspec.Struct):
    """A token in the file. Times in microseconds since 1970."""

    digest: bytes
    role: Role
    name: str
    expires: int
    used: bool = False
    made: int = 0
    """0: made by a version that did not record it; earlier than every revocation."""


class _JoinTokenFile(msgspec.Struct):
    """The whole list, as stored in its file."""

    entries: dict[str, _JoinTokenEntry]
    version: int = 1


RevokedUntil = Callable[[Role, str], int]
"""Returns the time up to which a role and name is revoked; negative: it is not."""


def never_revoked(_role: Role, _name: str) -> int:
    """Return that nothing is revoked."""
    return -1


class JoinTokenStore:
    """The tokens of one authority, in a file of its directory. ``clock`` is read when tokens are made."""

    def __init__(self, directory: Path, fingerprint: str, clock: Callable[[], int] = wall_now) -> None:
        digest = _HEXADECIMAL.fullmatch(fingerprint)
        if digest is None:
            raise JoinTokenError("a fingerprint is 'sha256:' and 64 hexadecimal digits")
        self._path = directory / "tokens.json"
        self._lock = directory / "tokens.lock"
        self._fingerprint = bytes.fromhex(digest[1])
        self._clock = clock

    def create(self, role: Role, name: str, lifetime: int = TOKEN_LIFETIME, after: int = -1) -> str:
        """Return a new token for one certificate of this role and name; ``lifetime`` in microseconds.
        ``after``: it counts as made later than this."""
        problem = name_problem(name)
        if problem is not None:
            raise JoinTokenError(problem)
        if not 0 < lifetime <= TOKEN_LIFETIME_MAX:
            raise JoinTokenError(f"a token must live for at most {TOKEN_LIFETIME_MAX // SECOND} seconds")
        now = self._clock()
        key, secret = _encode_base64(secrets.token_bytes(_ID_BYTES)), secrets.token_bytes(_SECRET_BYTES)
        with self._open() as page:
            _forget_expired(page, now)
            if len(page.entries) >= TOKENS_MAX:
                raise JoinTokenError(f"there are {TOKENS_MAX} tokens already; wait until some have expired")
            page.entries[key] = _JoinTokenEntry(
                _digest(secret), role, name, now + lifetime, made=max(now, after + 1)
            )
            self._store(page)
        return ".".join((_PREFIX, key, _encode_base64(secret), _encode_base64(self._fingerprint)))

    def redeem(self, text: str, now: int, until: RevokedUntil = never_revoked) -> JoinGrant | AuthRefusal:
        """Use a token up. It is durable on return; ``now`` in microseconds since 1970."""
        parsed = parse_join_token(text)
        if isinstance(parsed, AuthRefusal):
            return parsed
        with self._open() as page:
            entry = page.entries.get(parsed.id)
            # The comparison takes as long for an unknown id.
            genuine = hmac.compare_digest(_digest(parsed.secret), entry.digest if entry else bytes(32))
            if entry is None or not genuine:
                return AuthRefusal(AuthRefusalReason.UNKNOWN, NOT_HERE)
            if entry.used:
                return AuthRefusal(
                    AuthRefusalReason.USED, f"the token for {entry.role} {entry.name} was used before"
                )
            if now >= entry.expires:
                return AuthRefusal(
                    AuthRefusalReason.EXPIRED, f"the token for {entry.role} {entry.name} has expired"
                )
            revoked_until = until(entry.role, entry.name)
            if entry.made <= revoked_until:
                return AuthRefusal(
                    AuthRefusalReason.REVOKED, f"the token for {entry.role} {entry.name} was revoked"
                )
            entry.used = True
            self._store(page)
        return JoinGrant(entry.role, entry.name, revoked_until)

    @contextmanager
    def _open(self) -> Iterator[_JoinTokenFile]:
        """Open the list under a lock against other processes, until the block ends."""
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, atomic_files.PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield self._load()
        finally:
            os.close(descriptor)  # releases the lock

    def _load(self) -> _JoinTokenFile:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return _JoinTokenFile({})
        try:
            page = (
                msgspec.json.decode(data, type=_JoinTokenFile)
                if len(data) <= _TOKENS_FILE_BYTES_MAX
                else None
            )
        except (msgspec.MsgspecError, UnicodeDecodeError):
            page = None
        if page is None or page.version != 1:
            raise JoinTokenError(f"{self._path} is damaged. Remove it and make new tokens")
        return page

    def _store(self, page: _JoinTokenFile) -> None:
        atomic_files.replace(self._path, msgspec.json.encode(page), atomic_files.PRIVATE)


def parse_join_token(text: str) -> ParsedJoinToken | AuthRefusal:
    """Parse a token; return a refusal if it is malformed. The secret is not checked."""
    parts = text.strip().split(".") if len(text) <= TOKEN_CHARACTERS_MAX else []
    if len(parts) == 4 and parts[0] == _PREFIX:
        key, secret, fingerprint = (_decode_base64(part) for part in parts[1:])
        if (len(key), len(secret), len(fingerprint)) == (_ID_BYTES, _SECRET_BYTES, _DIGEST_BYTES):
            return ParsedJoinToken(_encode_base64(key), secret, f"sha256:{fingerprint.hex()}")
    return AuthRefusal(AuthRefusalReason.UNKNOWN, "this is not a join token; one begins with 'hanse1.'")


def _forget_expired(page: _JoinTokenFile, now: int) -> None:
    """Remove tokens that expired long ago."""
    page.entries = {key: entry for key, entry in page.entries.items() if now < entry.expires + FORGET_AFTER}


def _digest(secret: bytes) -> bytes:
    # The secret is 128 random bits, so a plain digest cannot be searched; slow ones are for passwords.
    return hashlib.sha256(secret).digest()


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode_base64(text: str) -> bytes:
    """Decode the output of ``_encode_base64``; empty for anything else."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
    return data if _encode_base64(data) == text else b""
