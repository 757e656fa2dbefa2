"""The revocation list: its content, and the union of two lists.

An access token is revoked by its serial. A name is revoked together with a time: all that a person of that
name was given up to then is invalid, be it an access token, a certificate, or an unused join token. Members
are never on this list: a person's name must not take a member out. No revocation is ever withdrawn, so lists
of different members are merged as unions, in any order and any number of times, and end up equal everywhere.
An entry that can concern no valid credential is removed.
"""

from pathlib import Path
from typing import Final

import msgspec

from hanse.model.ids import SECOND
from hanse.security.identity import NAME_CHARACTERS_MAX

DAY: Final = 24 * 3_600 * SECOND
ACCESS_DAYS_MAX: Final = 366
"""The longest lifetime of a token and of a person's certificate; a name stays on the list as long."""
CLOCK_SKEW: Final = 60 * SECOND
"""Tolerance for clocks: what a name was given this much after its revocation counts as revoked too."""
REVOKED_FILE: Final = "revoked.json"
"""In the league's home, where commands write it, and in each member's own directory."""
REVOKED_BYTES_MAX: Final = 4 << 20
SERIALS_MAX: Final = 20_000
NAMES_MAX: Final = 10_000
SERIAL_CHARACTERS_MAX: Final = 64
FORMAT: Final = 2
"""Format 1 had no names. A member that knows only format 1 refuses all tokens while it has such a list."""


class RevocationSet(msgspec.Struct, frozen=True):
    """The list. Times in microseconds since 1970."""

    serials: dict[str, int] = {}
    """Serial -> expiry of that token."""
    names: dict[str, int] = {}
    """Name -> time up to which all that people of this name were given has ended."""
    version: int = FORMAT

    def is_token_revoked(self, serial: str, name: str, issued: int) -> bool:
        """Return whether a token is revoked."""
        return serial in self.serials or issued <= self.names.get(name, -1)

    def is_person_revoked(self, name: str, issued: int) -> bool:
        """Return whether what a person was given at that time is revoked."""
        return issued <= self.names.get(name, -1)

    def merge(self, other: "RevocationSet", now: int) -> "RevocationSet":
        """Return the union of both lists without expired entries, sorted."""
        serials, names = dict(self.serials), dict(self.names)
        for serial, expires in other.serials.items():
            serials[serial] = max(expires, serials.get(serial, 0))
        for name, until in other.names.items():
            names[name] = max(until, names.get(name, 0))
        return RevocationSet(
            {serial: serials[serial] for serial in sorted(serials) if now < serials[serial]},
            {name: names[name] for name in sorted(names) if now < names[name] + ACCESS_DAYS_MAX * DAY},
        )

    def problem(self) -> str | None:
        """Return why this list cannot be stored, as a sentence; None: it can."""
        if len(self.serials) > SERIALS_MAX or len(self.names) > NAMES_MAX:
            return f"a list has at most {SERIALS_MAX} serials and {NAMES_MAX} names"
        if any(not 0 < len(serial) <= SERIAL_CHARACTERS_MAX for serial in self.serials):
            return f"a serial has 1 to {SERIAL_CHARACTERS_MAX} characters"
        if any(not 0 < len(name) <= NAME_CHARACTERS_MAX for name in self.names):
            return f"a name has 1 to {NAME_CHARACTERS_MAX} characters"
        return None


class RevocationListError(Exception):
    """The revocation list cannot be used."""


def read_revocations(path: Path) -> RevocationSet:
    """Read the list; empty if there is none."""
    try:
        with path.open("rb") as file:
            data = file.read(REVOKED_BYTES_MAX + 1)
        found = msgspec.json.decode(data, type=RevocationSet) if len(data) <= REVOKED_BYTES_MAX else None
    except FileNotFoundError:
        return RevocationSet()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RevocationListError(f"{path.name} cannot be read: {error}") from None
    if found is None or not 1 <= found.version <= FORMAT:
        raise RevocationListError(f"{path.name} is too long or has an unknown format")
    return found


def known_revocations(home: Path, now: int) -> RevocationSet:
    """Return all known revocations of a league's home: its own list, and those of the members there."""
    known = read_revocations(home / REVOKED_FILE)
    for path in sorted(home.glob(f"*/{REVOKED_FILE}")):
        known = known.merge(read_revocations(path), now)
    return known


def revoked_until(home: Path, name: str, now: int) -> int:
    """Return the time up to which a name is revoked, as far as a league's home knows; negative: it is not.
    New credentials of the name must count as issued later. Raise ``RevocationListError``."""
    return known_revocations(home, now).names.get(name, -1)
