"""Registry of the things of one kind, by name: our own and those of other packages."""

import logging
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

from hanse.registry.entry_points import Entry, RegistryError, all_entries

T = TypeVar("T")
HELP: Final = "docs/contributing/plug-ins.md"
_log = logging.getLogger(__name__)


class Registry(Generic[T]):
    """Things of one kind.

    ``kind``: noun for people, as "queue order". ``group``: entry-point group. ``shipped``: names of our own,
    in the order in which they are shown, tried and drawn; each has an entry in ``pyproject.toml``.
    ``attributes``: what a thing must have to be used.
    """

    def __init__(
        self, kind: str, group: str, shipped: tuple[str, ...], attributes: tuple[str, ...] = ()
    ) -> None:
        self.kind = kind
        self.group = group
        self.shipped = shipped
        self._attributes = attributes
        self._entries: dict[str, Entry] | None = None
        self._loaded: dict[str, T] = {}
        self._registered: dict[str, T] = {}

    @property
    def hint(self) -> str:
        """Clause that says how to get a thing that is not here."""
        return (
            f"; a package that adds a {self.kind} must be installed for this Python, with an entry point in "
            f"the group {self.group} ({HELP})"
        )

    def names(self) -> tuple[str, ...]:
        """Return all names: our own, then those of other packages by package and name. Imports nothing."""
        return tuple(dict.fromkeys((*self.shipped, *self._found_entries(), *self._registered)))

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def get(self, name: str) -> T:
        """Return the thing of this name; raise ``RegistryError`` if there is none, or if it cannot be
        loaded."""
        if name in self._registered:
            return self._registered[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def find_problem(self, name: str) -> str:
        """Return the reason why a name cannot be used, as a sentence; empty if it can."""
        try:
            self.get(name)
        except RegistryError as error:
            return str(error)
        return ""

    def package_of(self, name: str) -> str:
        """Return name and version of the package that has added a name; empty if nobody has."""
        entry = self._found_entries().get(name)
        return entry.package if entry is not None else ""

    def register(self, name: str, thing: T) -> Callable[[], None]:
        """Add a thing in this process only, for tests; return a function that removes it."""
        assert name not in self.names(), f"there is a {self.kind} {name} already"
        self._registered[name] = thing

        def remove() -> None:
            del self._registered[name]

        return remove

    def _load(self, name: str) -> T:
        entry = self._found_entries().get(name)
        if entry is None and name in self.shipped:
            raise RegistryError(
                f"the {self.kind} {name!r} is part of hanse, but the metadata of the installed hanse does "
                f"not list it in {self.group}: the installation is older than the program; reinstall hanse"
            )
        if entry is None:
            raise RegistryError(
                f"there is no {self.kind} {name!r}; choose one of: {', '.join(self.names())}{self.hint}"
            )
        try:
            thing = cast("Any", entry.load())
        except Exception as error:
            raise RegistryError(
                f"the {self.kind} {name!r} of the package {entry.package} cannot be loaded from "
                f"{entry.target}: {type(error).__name__}: {error}"
            ) from error
        missing = [attribute for attribute in self._attributes if not hasattr(thing, attribute)]
        problem = f"has no {' and no '.join(missing)}" if missing else ""
        if not missing and "name" in self._attributes and thing.name != name:
            problem = f"calls itself {thing.name!r}"
        if problem:
            raise RegistryError(
                f"the {self.kind} {name!r} of the package {entry.package} cannot be used: {entry.target} "
                f"{problem}"
            )
        return cast("T", thing)

    def _found_entries(self) -> dict[str, Entry]:
        """Return the entries by name. The first one of a name wins: ours, then by package."""
        if self._entries is None:
            self._entries = {}
            for entry in all_entries().get(self.group, ()):
                first = self._entries.setdefault(entry.name, entry)
                if first is not entry:
                    _log.warning(
                        "two packages have a %s %r: that of %s is used, that of %s is ignored",
                        self.kind, entry.name, first.package, entry.package,
                    )  # fmt: skip
        return self._entries
