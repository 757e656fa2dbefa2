"""The issuer of access tokens: makes tokens and revokes people, beside the authority, with a list of the
issued tokens. There is no list of certificates: they are revoked by their holder's name.

The list holds no secret: a token cannot be made from it. It is rewritten whole under a lock, like the file of
join tokens. Imports ``cryptography`` through the authority: for commands, not for daemons.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from hanse.security import atomic_files
from hanse.security.access_tokens import PEOPLE_ROLES, AccessTokenClaims, token_text
from hanse.security.certificate_authority import Authority
from hanse.security.home import Home
from hanse.security.identity import Role, name_problem
from hanse.security.revocation_list import (
    ACCESS_DAYS_MAX,
    CLOCK_SKEW,
    DAY,
    REVOKED_FILE,
    RevocationListError,
    RevocationSet,
    known_revocations,
    read_revocations,
)
from hanse.security.wall_time import wall_now

TOKENS_MAX: Final = 10_000
"""Tokens on the list; expired ones are removed."""
_TOKENS_FILE: Final = "access.json"
_TOKENS_FILE_BYTES_MAX: Final = 8 << 20
_SERIAL_BYTES: Final = 16


class AccessTokenError(Exception):
    """A token cannot be made or revoked; the message says why."""


class IssuedToken(msgspec.Struct, frozen=True):
    """A token that was issued."""

    access: AccessTokenClaims
    revoked: bool = False


class _AccessTokenFile(msgspec.Struct):
    """The whole list, as stored in its file."""

    given: list[IssuedToken]
    version: int = 1


class AccessTokenIssuer:
    """The access tokens of one league, at a home with its authority."""

    def __init__(self, home: Home, authority: Authority, clock: Callable[[], int] = wall_now) -> None:
        self._home = home
        self._authority = authority
        self._clock = clock
        self._path = home.authority / _TOKENS_FILE

    def create(self, role: Role, name: str, days: int) -> str:
        """Return a new token of this role and name; only its bearer has it afterwards."""
        problem = name_problem(name)
        if problem is not None:
            raise AccessTokenError(problem)
        if role not in PEOPLE_ROLES:
            raise AccessTokenError(
                f"{role.with_article} shows a certificate; make a join token with 'hanse token create'"
            )
        if not 1 <= days <= ACCESS_DAYS_MAX:
            raise AccessTokenError(f"a token must live for 1 to {ACCESS_DAYS_MAX} days")
        now = self._clock()
        # A clock ahead of ours may have revoked the name's tokens: date this one after the revocation.
        now = max(now, 1 + self._known_revocations(now).names.get(name, -1))
        serial = secrets.token_hex(_SERIAL_BYTES)
        access = AccessTokenClaims(self._authority.league, role, name, serial, now, now + days * DAY)
        with self._open() as page:
            if len(page.given) >= TOKENS_MAX:
                raise AccessTokenError(f"there are {TOKENS_MAX} tokens already; wait until some have expired")
            page.given.append(IssuedToken(access))
        return token_text(access, self._authority.sign)

    def list_tokens(self) -> list[IssuedToken]:
        """Return the tokens that have not expired, the oldest first."""
        known = self._known_revocations(self._clock())
        with self._open() as page:
            return [
                IssuedToken(
                    one.access,
                    one.revoked
                    or known.is_token_revoked(one.access.serial, one.access.name, one.access.issued),
                )
                for one in page.given
            ]

    def revoke(self, name: str, serial: str = "") -> list[AccessTokenClaims]:
        """Revoke everything that people of this name have until now, or the one token whose serial has this
        prefix; return the tokens that it ended.

        The list for the servers is written before the list of tokens: after a crash in between a revoked
        token may be listed as valid, never the other way round.
        """
        problem = name_problem(name)
        if problem is not None:
            raise AccessTokenError(problem)
        with self._open() as page:
            chosen = [
                given.access
                for given in page.given
                if given.access.name == name and given.access.serial.startswith(serial) and not given.revoked
            ]
            if chosen or not serial:
                self._revoke_in_list(chosen, "" if serial else name)
            page.given = [
                msgspec.structs.replace(given, revoked=given.revoked or given.access in chosen)
                for given in page.given
            ]
        return chosen

    def revoked_names(self) -> dict[str, int]:
        """Return the revoked names, each with the time up to which everything has ended, as far as this
        machine knows."""
        return self._known_revocations(self._clock()).names

    def _revoke_in_list(self, tokens: list[AccessTokenClaims], name: str) -> None:
        path = self._home.path / REVOKED_FILE
        try:
            known = read_revocations(path)
        except RevocationListError as error:
            raise AccessTokenError(f"{error}; repair it, or remove it and revoke everybody again") from None
        now = self._clock()
        names = {name: now + CLOCK_SKEW} if name else {}
        ended = RevocationSet({access.serial: access.expires for access in tokens}, names)
        atomic_files.replace(path, msgspec.json.encode(known.merge(ended, now)), atomic_files.PUBLIC)

    def _known_revocations(self, now: int) -> RevocationSet:
        """Return all revocations that this machine knows."""
        try:
            return known_revocations(self._home.path, now)
        except RevocationListError as error:
            raise AccessTokenError(f"{error}; repair it, or remove it and revoke everybody again") from None

    @contextmanager
    def _open(self) -> Iterator[_AccessTokenFile]:
        """Open the list, without expired tokens, under the lock; write it back when the block succeeds."""
        lock = os.open(
            self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, atomic_files.PRIVATE
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            page = self._load()
            before = msgspec.json.encode(page)
            page.given = [given for given in page.given if self._clock() < given.access.expires]
            yield page
            if msgspec.json.encode(page) != before:
                atomic_files.replace(self._path, msgspec.json.encode(page), atomic_files.PRIVATE)
        finally:
            os.close(lock)  # releases the lock

    def _load(self) -> _AccessTokenFile:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return _AccessTokenFile([])
        try:
            page = (
                msgspec.json.decode(data, type=_AccessTokenFile)
                if len(data) <= _TOKENS_FILE_BYTES_MAX
                else None
            )
        except (msgspec.MsgspecError, UnicodeDecodeError):
            page = None
        if page is None or page.version != 1:
            raise AccessTokenError(f"{self._path} is damaged. Move it away; issued tokens stay valid")
        return page
