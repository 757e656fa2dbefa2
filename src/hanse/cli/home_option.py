"""``--home`` of the commands that are about a league of this machine, and where it is if nobody says."""

import os
from pathlib import Path
from typing import Final

import click

ROOT_HOME: Final = Path("/var/lib/hanse/local")
"""Root's league: its tasks run as somebody else, who could not enter root's own directory."""


def default_home() -> Path:
    """Where the embedded league of this user lives."""
    chosen = os.environ.get("HANSE_HOME")
    if chosen:
        return Path(chosen)
    if os.geteuid() == 0:
        return ROOT_HOME
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "hanse" / "local"


home_option: Final = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), default=default_home,
    help="Where the league lives.  "
    "[default: $HANSE_HOME, ~/.local/state/hanse/local, or /var/lib/hanse/local for root]",
)  # fmt: skip
