"""Entry points of Hanse and of other packages, read from the metadata of installed packages once.

In a source tree ``pyproject.toml`` is read for our own entries: the metadata of an editable installation is
as old as the installation, and a tree on ``PYTHONPATH`` has none.
"""

import importlib
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

OWN_PACKAGE: Final = "hanse"
_SOURCE_DIRECTORY: Final = Path(__file__).resolve().parents[2]
"""Directory that holds the package ``hanse``."""


class RegistryError(Exception):
    """A name that cannot be used; the message is a sentence that says what to do next."""


class Entry(NamedTuple):
    """Entry point of one package."""

    name: str
    target: str
    """``module:attribute``."""
    package: str
    """Name and version of the package."""
    is_own: bool
    """True if it belongs to Hanse."""

    def load(self) -> object:
        """Import the module and return the attribute; may raise whatever the module raises."""
        module, _, attributes = self.target.partition(":")
        found: object = importlib.import_module(module)
        for attribute in attributes.split(".") if attributes else ():
            found = getattr(found, attribute)
        return found


@cache
def all_entries() -> dict[str, tuple[Entry, ...]]:
    """Return the entries of every group of ours: our own first, then those of other packages by package and
    name."""
    own = _entries_of_source()
    entries: dict[str, list[Entry]] = {group: list(found) for group, found in (own or {}).items()}
    others: dict[str, list[Entry]] = {}
    points = metadata.entry_points()
    groups = sorted(group for group in points.groups if group.startswith(f"{OWN_PACKAGE}."))
    for point in [point for group in groups for point in points.select(group=group)]:
        package, version = _package_of(point.dist)
        is_own = package == OWN_PACKAGE
        if is_own and own is not None:
            continue
        entry = Entry(point.name, point.value, f"{package}{version}", is_own)
        (entries if is_own else others).setdefault(point.group, []).append(entry)
    for group, found in others.items():
        entries.setdefault(group, []).extend(sorted(found, key=lambda entry: (entry.package, entry.name)))
    return {group: tuple(found) for group, found in entries.items()}


@cache
def _package_of(distribution: metadata.Distribution | None) -> tuple[str, str]:
    """Return the name of a package, and its version after a space. Each question parses all its metadata."""
    if distribution is None:
        return "an unknown package", ""
    return distribution.name, f" {distribution.version}"


def _entries_of_source(directory: Path = _SOURCE_DIRECTORY) -> dict[str, list[Entry]] | None:
    """Return our own entries from ``pyproject.toml`` beside the sources; None: this is no source tree."""
    try:
        project = tomllib.loads((directory.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return None
    if directory.name != "src" or project.get("name") != OWN_PACKAGE:
        return None
    return {
        group: [Entry(name, target, OWN_PACKAGE, True) for name, target in entries.items()]
        for group, entries in project.get("entry-points", {}).items()
    }
