"""Which league a command speaks to: contexts by name, in one small file of the user.

The file is ``$HANSE_CONFIG``, or ``hanse/config.json`` in ``$XDG_CONFIG_HOME`` (``~/.config``). ``hanse up``,
``hanse init`` and ``hanse join`` write contexts; ``hanse config use NAME`` chooses one; ``--context NAME`` or
``$HANSE_CONTEXT`` chooses for one command. The file holds no secret, only where the secrets are.
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
"""A larger file of contexts is no file of contexts."""


class Context(msgspec.Struct, frozen=True):
    """One league, and how to get at it."""

    league: str
    """Its name in every certificate."""
    home: str = ""
    """Its home on this machine; empty: it lives elsewhere."""
    credentials: str = ""
    """The directory with the league's authority and, unless a token is shown, the key and the certificate."""
    brokers: dict[str, str] = {}
    """Name -> ``host:port`` of the door, in the order in which they are asked."""
    clusters: dict[str, str] = {}
    token: str = ""
    """The file with the access token to show, with which no certificate is needed; empty: none."""
    file_version: int = 0
    """Of the league file that names these members."""

    def is_same_as(self, other: "Context") -> bool:
        """Whether both are the same person's in the same league: in the same home, or with the same keys."""
        pairs = ((self.home, other.home), (self.credentials, other.credentials))
        return any(bool(theirs) and _is_path(own, Path(theirs)) for own, theirs in pairs)

    def is_inside(self, home: Path) -> bool:
        """Whether this home is the league's, or has the keys to it."""
        keys = bool(self.credentials) and Path(self.credentials).resolve().is_relative_to(home.resolve())
        return keys or _is_path(self.home, home)

    def is_stale(self) -> bool:
        """Whether it leads nowhere any more: its home, or its keys, are gone."""
        if self.home:
            return not (Path(self.home) / LEAGUE_FILE).is_file()
        return bool(self.credentials) and not Path(self.credentials).is_dir()

    def whereabouts(self) -> str:
        """Where the league is, in words."""
        return f"in {self.home}" if self.home else "elsewhere"


def _is_path(text: str, path: Path) -> bool:
    return bool(text) and Path(text).resolve() == path.resolve()


class Contexts(msgspec.Struct, frozen=True):
    """The whole file."""

    current: str = ""
    contexts: dict[str, Context] = {}


class Kept(msgspec.Struct, frozen=True):
    """How a context was kept."""

    name: str
    before: str
    """What was the current context until then; empty: none."""
    is_new: bool


def config_path() -> Path:
    """Where the file is."""
    chosen = os.environ.get("HANSE_CONFIG")
    if chosen:
        return Path(chosen)
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "hanse" / "config.json"


def load() -> Contexts:
    """What the file says; nothing if there is none."""
    path = config_path()
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX)
        return msgspec.json.decode(data, type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "mend it, or move it away and run 'hanse up' or 'hanse join' again"
        raise CommandError(f"{path} cannot be read: {error}", ExitCode.CONFIG, hint) from None


def save(contexts: Contexts) -> None:
    """Put this in place of what the file says; there is never half a file."""
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_files.replace(
        path, msgspec.json.format(msgspec.json.encode(contexts)) + b"\n", atomic_files.PRIVATE
    )


def save_context(name: str, context: Context, make_current: bool = False) -> None:
    """Keep a context, in place of one of the same name."""
    with _alone():
        known = load()
        current = name if make_current or not known.current else known.current
        save(Contexts(current, {**known.contexts, name: context}))


def renew_context(name: str, before: Context, now: Context) -> None:
    """Keep what was learned of a league's members, unless the context was changed meanwhile."""
    with _alone():
        known = load()
        if known.contexts.get(name) == before:
            save(Contexts(known.current, {**known.contexts, name: now}))


def keep_context(context: Context, wanted: str = "") -> Kept:
    """Keep the context of a league and make it the current one. It never takes the place of another league's:
    ``wanted`` is refused if that has it, and without a wish a free name is found."""
    with _alone():
        known = load()
        if wanted:
            refuse_taken(known, wanted, context)
        name = wanted or _own_name(known, context)
        save(Contexts(name, {**known.contexts, name: context}))
    return Kept(name, known.current if known.current in known.contexts else "", name not in known.contexts)


def refuse_taken(known: Contexts, name: str, context: Context) -> None:
    """Raise if a name is another league's."""
    other = known.contexts.get(name)
    if other is not None and not other.is_same_as(context) and not other.is_stale():
        raise CommandError(
            f"the context '{name}' is of another league, '{other.league}' {other.whereabouts()}",
            ExitCode.CONFIG,
            "choose another name with --context NAME; 'hanse config contexts' lists those that there are",
        )


def _own_name(known: Contexts, context: Context) -> str:
    """The name that a context has already; else the league's, with a number if another league has it."""
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
    """Forget every context that is of no use without this home; what is left. If the current one was among
    them and there is only one left, that is the current one now; of several nobody chooses one for the user.
    """
    with _alone():
        known = load()
        rest = {name: other for name, other in known.contexts.items() if not other.is_inside(home)}
        chosen = known.current if known.current in rest else next(iter(rest), "") if len(rest) == 1 else ""
        left = Contexts(chosen, rest)
        if left != known:
            save(left)
    return left


def use_context(name: str) -> None:
    """Make a context the current one."""
    with _alone():
        known = load()
        _named(known, name)
        save(Contexts(name, known.contexts))


def current(name: str | None = None) -> tuple[str, Context]:
    """The context of this name, or the current one, with its name."""
    known = load()
    wanted = name or known.current
    if wanted:
        return wanted, _named(known, wanted)
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


def _named(known: Contexts, name: str) -> Context:
    found = known.contexts.get(name)
    if found is None:
        names = ", ".join(known.contexts)
        hint = f"there are: {names}" if names else "there are none; 'hanse up' and 'hanse join' make them"
        raise CommandError(f"there is no context '{name}'", ExitCode.CONFIG, hint)
    return found


def chosen_name() -> str | None:
    """The context that the command line or ``$HANSE_CONTEXT`` names; None: the current one."""
    invocation = click.get_current_context(silent=True)
    name = invocation.find_root().obj if invocation is not None else None
    return name if isinstance(name, str) and name else None


def chosen_home(given: Path, wanted: str = "") -> tuple[Path, str]:
    """In which home a command is to work, and the name of its context if one was named.

    ``given``: what ``--home`` says, or its default, before which the home of a context that was named goes.
    ``wanted``: the context that the command's own option names. A ``--home`` on the command line goes before
    ``$HANSE_CONTEXT``.
    """
    invocation = click.get_current_context()
    is_given = invocation.get_parameter_source("home") is ParameterSource.COMMANDLINE
    name = wanted or chosen_name() or ""
    by_variable = invocation.find_root().get_parameter_source("context") is ParameterSource.ENVIRONMENT
    if is_given and not wanted and by_variable:
        name = ""
    known = load().contexts.get(name) if name else None
    return (Path(known.home) if known is not None and known.home and not is_given else given), name


@contextmanager
def _alone() -> Iterator[None]:
    """One writer at a time: reading, changing and writing is one step."""
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
