"""A league's home on one machine: the paths of its file, its authority and its members' directories."""

from pathlib import Path
from typing import Final

import msgspec

LEAGUE_FILE: Final = "league.yaml"
AUTHORITY: Final = "authority"
AUTHORITY_KEY: Final = "ca.key"
AUTHORITY_CERTIFICATE: Final = "ca.pem"
AUTHORITY_SOURCE: Final = "copied-from"
"""Names the broker that an authority was fetched from; a home where a league was founded has no such file."""
PEOPLE: Final = "people"
"""Credentials of people, one directory each."""


class Home(msgspec.Struct, frozen=True):
    """The directory of one league."""

    path: Path

    @property
    def league_file(self) -> Path:
        """The league file, with the members."""
        return self.path / LEAGUE_FILE

    @property
    def authority(self) -> Path:
        """The authority's key and certificate, and the join tokens that were made here: where the league was
        founded, and beside every broker (``live.ca.replication``)."""
        return self.path / AUTHORITY

    @property
    def has_authority(self) -> bool:
        """True if certificates can be issued here."""
        return all((self.authority / name).is_file() for name in (AUTHORITY_KEY, AUTHORITY_CERTIFICATE))

    @property
    def is_founding(self) -> bool:
        """True if the league was founded here, not joined."""
        return self.has_authority and not (self.authority / AUTHORITY_SOURCE).exists()

    def member(self, name: str) -> Path:
        """Return a member's own directory: certificate, journal, tasks."""
        return self.path / name

    def person(self, name: str) -> Path:
        """Return the directory of a person's credentials."""
        return self.path / PEOPLE / name
