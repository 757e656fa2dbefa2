"""A league's home on one machine: where its file, its authority and its members' directories are."""

from pathlib import Path
from typing import Final

import msgspec

LEAGUE_FILE: Final = "league.yaml"
AUTHORITY: Final = "authority"
PEOPLE: Final = "people"
"""Credentials of people, one directory each."""


class Home(msgspec.Struct, frozen=True):
    """One directory."""

    path: Path

    @property
    def league_file(self) -> Path:
        """Who the members are."""
        return self.path / LEAGUE_FILE

    @property
    def authority(self) -> Path:
        """The authority's key and certificate, and the join tokens; only where the league was founded."""
        return self.path / AUTHORITY

    def member(self, name: str) -> Path:
        """A member's own directory: certificate, journal, tasks."""
        return self.path / name

    def person(self, name: str) -> Path:
        """A person's credentials."""
        return self.path / PEOPLE / name
