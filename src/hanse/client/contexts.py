"""Contexts: the leagues that a user's commands can use, by name, in one small file.

The file is ``$HANSE_CONFIG``, or ``hanse/config.json`` in ``$XDG_CONFIG_HOME`` (``~/.config``). ``hanse up``,
``hanse init`` and ``hanse join`` write contexts; ``hanse config use NAME`` chooses one; ``--context NAME`` or
``$HANSE_CONTEXT`` chooses for one command. The file holds no secrets, only their paths.
"""

import fcntl
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec
from click.core import ParameterSource

from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.security import atomic_files
from hanse.security.home import LEAGUE_FILE

CONFIG_BYTES_MAX: Final = 1 << 20
"""Largest accepted file of contexts."""


class Context(msgspec.Struct, frozen=True):
    """Access to one league."""

    league: str
    """Name of the league in every certificate."""
    home: str = ""
    """Home of the league on this machine; empty: it is on other machines."""
    credentials: str = ""
    """Directory with the authority's certificate and, without a token, the key and the certificate."""
    brokers: dict[str, str] = {}
    """HTTPS endpoint (``host:port``) by broker name, in the order in which they are asked."""
    clusters: dict[str, str] = {}
    token: str = ""
    """File with the access token to use instead of a certificate; empty: none."""
    file_version: int = 0
    """Version of the league file that names these members."""

    def is_same_as(self, other: "Context") -> bool:
        """Return True if both are of the same user in the same league: same home, or same keys."""
        pairs = ((self.home, other.home), (self.credentials, other.credentials))
        return any(bool(theirs) and _is_path(own, Path(theirs)) for own, theirs in pairs)

    def is_inside(self, home: Path) -> bool:
        """Return True if the league is in this home, or the keys are."""
        keys = bool(self.credentials) and Path(self.credentials).resolve().is_relative_to(home.resolve())
        return keys or _is_path(self.home, home)

    def is_stale(self) -> bool:
        """Return True if its home, or its keys, are gone."""
        if self.home:
            return not (Path(self.home) / LEAGUE_FILE).is_file()
        return bool(self.credentials) and not Path(self.credentials).is_dir()

    def location_text(self) -> str:
        """Describe the place of the league in words."""
        return f"in {self.home}" if self.home else "elsewhere"


def _is_path(text: str, path: Path) -> bool:
    return bool(text) and Path(text).resolve() == path.resolve()


class Contexts(msgspec.Struct, frozen=True):
    """Content of the file of contexts."""

    current: str = ""
    contexts: dict[str, Context] = {}


class SavedContext(msgspec.Struct, frozen=True):
    """Result of saving a context."""

    name: str
    previous: str
    """Name of the former current context; empty: none."""
    is_new: bool


def config_path() -> Path:
    """Return the path of the file of contexts."""
    chosen = os.environ.get("HANSE_CONFIG")
    if chosen:
        return Path(chosen)
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "hanse" / "config.json"


def load() -> Contexts:
    """Read the file of contexts; empty if there is none."""
    path = config_path()
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX)
        return msgspec.json.decode(data, type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "repair it, or move it away and run 'hanse up' or 'hanse join' again"
        raise CommandError(f"{path} cannot be read: {error}", ExitCode.CONFIG, hint) from None


def save(contexts: Contexts) -> None:
    """Replace the file of contexts atomically."""
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_files.replace(
        path, msgspec.json.format(msgspec.json.encode(contexts)) + b"\n", atomic_files.PRIVATE
    )


def save_context(name: str, context: Context, make_current: bool = False) -> None:
    """Save a context, in place of one with the same name."""
    with _exclusive_lock():
        known = load()
        current = name if make_current or not known.current else known.current
        save(Contexts(current, {**known.contexts, name: context}))


def renew_context(name: str, before: Context, now: Context) -> None:
    """Save new addresses of a league's members, unless the context was changed meanwhile."""
    with _exclusive_lock():
        known = load()
        if known.contexts.get(name) == before:
            save(Contexts(known.current, {**known.contexts, name: now}))


def keep_context(context: Context, wanted: str = "") -> SavedContext:
    """Save the context of a league and make it the current one. It never replaces another league's: the name
    ``wanted`` is refused if another league has it; without ``wanted`` a free name is chosen."""
    with _exclusive_lock():
        known = load()
        if wanted:
            check_name_free(known, wanted, context)
        name = wanted or _pick_name(known, context)
        save(Contexts(name, {**known.contexts, name: context}))
    return SavedContext(
        name, known.current if known.current in known.contexts else "", name not in known.contexts
    )


def check_name_free(known: Contexts, name: str, context: Context) -> None:
    """Raise if another league has the name."""
    other = known.contexts.get(name)
    if other is not None and not other.is_same_as(context) and not other.is_stale():
        raise CommandError(
            f"the context '{name}' belongs to another league, '{other.league}' {other.location_text()}",
            ExitCode.CONFIG,
            "choose another name with --context NAME; 'hanse config contexts' lists the contexts",
        )


def _pick_name(known: Contexts, context: Context) -> str:
    """Return the context's present name; else the league's, with a number if another league has it."""
    same = [name for name, other in known.contexts.items() if other.is_same_as(context)]
    if same:
        return context.league if context.league in same else same[0]
    numbered = (f"{context.league}-{number}" for number in itertools.count(2))
    for name in itertools.chain([context.league], numbered):
        other = known.contexts.get(name)
        if other is None or other.is_stale():
            return name
    raise AssertionError("there is always another number")


def remove_home(home: Path) -> Contexts:
    """Remove every context that needs this home; return the others. If the current context is removed and one
    other is left, that one becomes the current one; of several none is chosen."""
    with _exclusive_lock():
        known = load()
        rest = {name: other for name, other in known.contexts.items() if not other.is_inside(home)}
        chosen = known.current if known.current in rest else next(iter(rest), "") if len(rest) == 1 else ""
        left = Contexts(chosen, rest)
        if left != known:
            save(left)
    return left


def use_context(name: str) -> None:
    """Make a context the current one."""
    with _exclusive_lock():
        known = load()
        _find_context(known, name)
        save(Contexts(name, known.contexts))


def current_context(name: str | None = None) -> tuple[str, Context]:
    """Return the name and the context of this name, or those of the current one."""
    known = load()
    wanted = name or known.current
    if wanted:
        return wanted, _find_context(known, wanted)
    if not known.contexts:
        raise CommandError(
            "no league is running here",
            ExitCode.UNAVAILABLE,
            "start one with 'hanse up', or join one with 'hanse join'",
        )
    names = ", ".join(known.contexts)
    raise CommandError(
        "no context is chosen",
        ExitCode.CONFIG,
        f"choose one with 'hanse config use NAME'; there are: {names}",
    )


def _find_context(known: Contexts, name: str) -> Context:
    context = known.contexts.get(name)
    if context is None:
        names = ", ".join(known.contexts)
        hint = f"there are: {names}" if names else "there are none; 'hanse up' and 'hanse join' make them"
        raise CommandError(f"there is no context '{name}'", ExitCode.CONFIG, hint)
    return context


def requested_name() -> str | None:
    """Return the context named by the command line or ``$HANSE_CONTEXT``; None: the current one."""
    invocation = click.get_current_context(silent=True)
    name = invocation.find_root().obj if invocation is not None else None
    return name if isinstance(name, str) and name else None


def resolve_home(default: Path, wanted: str = "") -> tuple[Path, str]:
    """Return the home for a command, and the name of its context if one was named.

    ``default``: value of ``--home``, or its default, which the home of a named context replaces. ``wanted``:
    context named by the command's own option. A ``--home`` on the command line wins over ``$HANSE_CONTEXT``.
    """
    invocation = click.get_current_context()
    is_given = invocation.get_parameter_source("home") is ParameterSource.COMMANDLINE
    name = wanted or requested_name() or ""
    by_variable = invocation.find_root().get_parameter_source("context") is ParameterSource.ENVIRONMENT
    if is_given and not wanted and by_variable:
        name = ""
    known = load().contexts.get(name) if name else None
    return (Path(known.home) if known is not None and known.home and not is_given else default), name


@contextmanager
def _exclusive_lock() -> Iterator[None]:
    """Lock the file of contexts, so that reading, changing and writing it is one step."""
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
