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
from hanse.security.access_tokens import PEOPLE, Access, token_text
from hanse.security.certificate_authority import Authority
from hanse.security.home import Home
from hanse.security.identity import Role, name_problem
from hanse.security.revocation_list import (
    ACCESS_DAYS_MAX,
    CLOCKS_APART,
    DAY,
    REVOKED_FILE,
    Revoked,
    RevokedError,
    read_revoked,
    revoked_at,
)
from hanse.security.wall_time import wall_now

TOKENS_MAX: Final = 10_000
"""Tokens on the list; expired ones are removed."""
_BOOK: Final = "access.json"
_BOOK_BYTES_MAX: Final = 8 << 20
_SERIAL_BYTES: Final = 16


class AccessError(Exception):
    """A token cannot be made or revoked; the message says why."""


class Given(msgspec.Struct, frozen=True):
    """A token that was issued."""

    access: Access
    revoked: bool = False


class _Page(msgspec.Struct):
    """The whole list, as stored in its file."""

    given: list[Given]
    version: int = 1


class AccessLedger:
    """The access tokens of one league, at a home with its authority."""

    def __init__(self, home: Home, authority: Authority, clock: Callable[[], int] = wall_now) -> None:
        self._home = home
        self._authority = authority
        self._clock = clock
        self._path = home.authority / _BOOK

    def create(self, role: Role, name: str, days: int) -> str:
        """Return a new token of this role and name; only its bearer has it afterwards."""
        problem = name_problem(name)
        if problem is not None:
            raise AccessError(problem)
        if role not in PEOPLE:
            raise AccessError(f"{role.noun} shows a certificate; make a join token with 'hanse token create'")
        if not 1 <= days <= ACCESS_DAYS_MAX:
            raise AccessError(f"a token must live for 1 to {ACCESS_DAYS_MAX} days")
        now = self._clock()
        # A clock ahead of ours may have revoked the name's tokens: date this one after the revocation.
        now = max(now, 1 + self._known(now).names.get(name, -1))
        serial = secrets.token_hex(_SERIAL_BYTES)
        access = Access(self._authority.league, role, name, serial, now, now + days * DAY)
        with self._opened() as page:
            if len(page.given) >= TOKENS_MAX:
                raise AccessError(f"there are {TOKENS_MAX} tokens already; wait until some have expired")
            page.given.append(Given(access))
        return token_text(access, self._authority.sign)

    def listed(self) -> list[Given]:
        """Return the tokens that have not expired, the oldest first."""
        known = self._known(self._clock())
        with self._opened() as page:
            return [
                Given(
                    one.access,
                    one.revoked or known.ends(one.access.serial, one.access.name, one.access.issued),
                )
                for one in page.given
            ]

    def revoke(self, name: str, serial: str = "") -> list[Access]:
        """Revoke everything that people of this name have until now, or the one token whose serial has this
        prefix; return the tokens that it ended.

        The list for the servers is written before the list of tokens: after a crash in between a revoked
        token may be listed as valid, never the other way round.
        """
        problem = name_problem(name)
        if problem is not None:
            raise AccessError(problem)
        with self._opened() as page:
            chosen = [
                given.access
                for given in page.given
                if given.access.name == name and given.access.serial.startswith(serial) and not given.revoked
            ]
            if chosen or not serial:
                self._close(chosen, "" if serial else name)
            page.given = [
                msgspec.structs.replace(given, revoked=given.revoked or given.access in chosen)
                for given in page.given
            ]
        return chosen

    def names(self) -> dict[str, int]:
        """Return the revoked names, each with the time up to which everything has ended, as far as this
        machine knows."""
        return self._known(self._clock()).names

    def _close(self, chosen: list[Access], name: str) -> None:
        path = self._home.path / REVOKED_FILE
        try:
            known = read_revoked(path)
        except RevokedError as error:
            raise AccessError(f"{error}; repair it, or remove it and revoke everybody again") from None
        now = self._clock()
        names = {name: now + CLOCKS_APART} if name else {}
        ended = Revoked({access.serial: access.expires for access in chosen}, names)
        atomic_files.replace(path, msgspec.json.encode(known.joined(ended, now)), atomic_files.PUBLIC)

    def _known(self, now: int) -> Revoked:
        """Return all revocations that this machine knows."""
        try:
            return revoked_at(self._home.path, now)
        except RevokedError as error:
            raise AccessError(f"{error}; repair it, or remove it and revoke everybody again") from None

    @contextmanager
    def _opened(self) -> Iterator[_Page]:
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

    def _load(self) -> _Page:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return _Page([])
        try:
            page = msgspec.json.decode(data, type=_Page) if len(data) <= _BOOK_BYTES_MAX else None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            page = None
        if page is None or page.version != 1:
            raise AccessError(f"{self._path} is damaged. Move it away; issued tokens stay valid")
        return page
