"""Which league a command speaks to: contexts by name, in one small file of the user.

The file is ``$HANSE_CONFIG``, or ``hanse/config.json`` in ``$XDG_CONFIG_HOME`` (``~/.config``). ``hanse up``
and ``hanse join`` write contexts; ``hanse config use NAME`` chooses one; ``--context NAME`` or
``$HANSE_CONTEXT`` chooses for one command. The file holds no secret, only where the secrets are.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec

from hanse.app.exit_codes import ExitCode
from hanse.app.told import CommandError
from hanse.live.identity import files

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


class Contexts(msgspec.Struct, frozen=True):
    """The whole file."""

    current: str = ""
    contexts: dict[str, Context] = {}


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
    files.replace(path, msgspec.json.format(msgspec.json.encode(contexts)) + b"\n", files.PRIVATE)


def save_context(name: str, context: Context, make_current: bool = False) -> None:
    """Keep a context, in place of one of the same name."""
    with _alone():
        known = load()
        current = name if make_current or not known.current else known.current
        save(Contexts(current, {**known.contexts, name: context}))


def remove_context(name: str) -> None:
    """Forget a context, if there is one of this name. Nobody chooses another one for the user."""
    with _alone():
        known = load()
        if name not in known.contexts:
            return
        rest = {other: context for other, context in known.contexts.items() if other != name}
        save(Contexts("" if known.current == name else known.current, rest))


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


@contextmanager
def _alone() -> Iterator[None]:
    """One writer at a time: reading, changing and writing is one step."""
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
