"""Names of people found in this home's token lists and directories, to warn about a misspelt name.

This does not say who has access: there is no list of certificates. A home where the league was founded has
the lists of access tokens and of join tokens, and people's own directories; only names are read from them,
and an unreadable file adds none.
Needs no ``cryptography``: daemons read it, too.
"""

from pathlib import Path
from typing import Final

import msgspec

from hanse.security.home import PEOPLE, Home
from hanse.security.identity import MEMBERS, Role

_TOKENS_FILE_BYTES_MAX: Final = 8 << 20
_UNREADABLE: Final = (OSError, msgspec.MsgspecError, UnicodeDecodeError)


class _Holder(msgspec.Struct):
    """The holder of a token."""

    name: str
    role: Role


class _AccessEntry(msgspec.Struct):
    """An entry of the list of access tokens."""

    access: _Holder


class _AccessEntries(msgspec.Struct):
    """The list of access tokens."""

    given: list[_AccessEntry]


class _JoinEntries(msgspec.Struct):
    """The list of join tokens."""

    entries: dict[str, _Holder]


def known_people(home: Home) -> set[str]:
    """Return the people with credentials made at this home; empty where the league was not founded."""
    try:
        found = {path.name for path in (home.path / PEOPLE).iterdir()}
    except OSError:
        found = set()
    try:
        page = msgspec.json.decode(_read(home.authority / "access.json"), type=_AccessEntries)
        found |= {given.access.name for given in page.given}
    except _UNREADABLE:
        pass
    try:
        joined = msgspec.json.decode(_read(home.authority / "tokens.json"), type=_JoinEntries)
        found |= {holder.name for holder in joined.entries.values() if holder.role not in MEMBERS}
    except _UNREADABLE:
        pass
    return found


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_TOKENS_FILE_BYTES_MAX)
