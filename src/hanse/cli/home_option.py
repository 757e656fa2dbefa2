"""Option ``--home`` of commands about a league of this machine, and its default."""

import os
from pathlib import Path
from typing import Final

import click

ROOT_HOME: Final = Path("/var/lib/hanse/local")
"""Home of root's league: its tasks run as another user, who could not enter root's home directory."""


def default_home() -> Path:
    """Return the home of this user's embedded league."""
    chosen = os.environ.get("HANSE_HOME")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return ROOT_HOME
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "hanse" / "local"


home_option: Final = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), default=default_home,
    help="Home directory of the league.  "
    "[default: $HANSE_HOME, ~/.local/state/hanse/local, or /var/lib/hanse/local for root]",
)  # fmt: skip
