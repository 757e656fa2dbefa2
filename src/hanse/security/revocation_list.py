"""The list of what is revoked: what it says, and that two of them always make one.

An access token is ended by its serial. A name is ended together with a moment: whatever a person of that name
was given up to then does not count any more, be it an access token, a certificate, or a join token that was
not used yet. Members are never on this list: what a person is called must not take a member out. Nothing is
ever taken back, so lists of different members are joined by taking everything of both, in any order and as
often as one likes, and end up the same everywhere. What nothing that lives can be concerned by leaves the
list.
"""

from pathlib import Path
from typing import Final

import msgspec

from hanse.model.ids import SECOND
from hanse.security.identity import NAME_CHARACTERS_MAX

DAY: Final = 24 * 3_600 * SECOND
ACCESS_DAYS_MAX: Final = 366
"""No token and no person's certificate lives for longer; so long does a name stay on the list."""
CLOCKS_APART: Final = 60 * SECOND
"""What a revoked name was given up to so much later counts as ended too: clocks differ."""
REVOKED_FILE: Final = "revoked.json"
"""In the league's home, where commands write it, and in each member's own directory."""
REVOKED_BYTES_MAX: Final = 4 << 20
SERIALS_MAX: Final = 20_000
NAMES_MAX: Final = 10_000
SERIAL_CHARACTERS_MAX: Final = 64
FORMAT: Final = 2
"""1 knew no names. A member that knows only that format believes no token as long as it has such a list."""


class Revoked(msgspec.Struct, frozen=True):
    """The list. Times in microseconds since 1970."""

    serials: dict[str, int] = {}
    """Serial -> when that token expires anyway."""
    names: dict[str, int] = {}
    """Name -> what people of this name were given up to then has ended."""
    version: int = FORMAT

    def ends(self, serial: str, name: str, issued: int) -> bool:
        """Whether a token has ended."""
        return serial in self.serials or issued <= self.names.get(name, -1)

    def ends_person(self, name: str, issued: int) -> bool:
        """Whether what a person was given at that moment has ended."""
        return issued <= self.names.get(name, -1)

    def joined(self, other: "Revoked", now: int) -> "Revoked":
        """Everything of both that still concerns anybody, in an order of its own."""
        serials, names = dict(self.serials), dict(self.names)
        for serial, expires in other.serials.items():
            serials[serial] = max(expires, serials.get(serial, 0))
        for name, until in other.names.items():
            names[name] = max(until, names.get(name, 0))
        return Revoked(
            {serial: serials[serial] for serial in sorted(serials) if now < serials[serial]},
            {name: names[name] for name in sorted(names) if now < names[name] + ACCESS_DAYS_MAX * DAY},
        )

    def problem(self) -> str | None:
        """Why nobody can keep this list, as a sentence; None if it can be kept."""
        if len(self.serials) > SERIALS_MAX or len(self.names) > NAMES_MAX:
            return f"a list has at most {SERIALS_MAX} serials and {NAMES_MAX} names"
        if any(not 0 < len(serial) <= SERIAL_CHARACTERS_MAX for serial in self.serials):
            return f"a serial has 1 to {SERIAL_CHARACTERS_MAX} characters"
        if any(not 0 < len(name) <= NAME_CHARACTERS_MAX for name in self.names):
            return f"a name has 1 to {NAME_CHARACTERS_MAX} characters"
        return None


class RevokedError(Exception):
    """The list of what is revoked cannot be used."""


def read_revoked(path: Path) -> Revoked:
    """The list; empty if there is none."""
    try:
        with path.open("rb") as file:
            data = file.read(REVOKED_BYTES_MAX + 1)
        found = msgspec.json.decode(data, type=Revoked) if len(data) <= REVOKED_BYTES_MAX else None
    except FileNotFoundError:
        return Revoked()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RevokedError(f"{path.name} cannot be read: {error}") from None
    if found is None or not 1 <= found.version <= FORMAT:
        raise RevokedError(f"{path.name} is of another kind or too long")
    return found


def revoked_at(home: Path, now: int) -> Revoked:
    """All that is known to be revoked in a league's home: its own list, and those of the members there."""
    known = read_revoked(home / REVOKED_FILE)
    for path in sorted(home.glob(f"*/{REVOKED_FILE}")):
        known = known.joined(read_revoked(path), now)
    return known


def revoked_until(home: Path, name: str, now: int) -> int:
    """Up to when what people of this name were given is revoked, as far as a league's home knows; negative:
    nothing is. What is made for them must count as later. Raises ``RevokedError``."""
    return revoked_at(home, now).names.get(name, -1)
