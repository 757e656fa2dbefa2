"""``hanse backup`` and ``hanse restore``: a member of this machine, or the authority, as a file."""

from pathlib import Path

import click

from hanse.league.config import LeagueError
from hanse.live.backup import BackupError, back_up, restore
from hanse.live.journal.errors import JournalError
from hanse.security.home import AUTHORITY, Home

_home = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), required=True, envvar="HANSE_HOME",
    help="The league's home on this machine.",
)  # fmt: skip


@click.command("backup")
@_home
@click.argument("member")
@click.option("--to", "target", type=click.Path(path_type=Path), required=True, help="The file to write.")
def backup_command(home: Path, member: str, target: Path) -> None:
    """Back up MEMBER to a file, also while it runs; 'authority' for the league's authority.

    The file contains keys: protect it as you protect them.
    """
    try:
        manifest = back_up(Home(home), member, target)
    except (BackupError, JournalError, LeagueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    records = "" if manifest.reached is None else f", {manifest.reached.position} records"
    click.echo(f"{manifest.name} of league {manifest.league}{records}: {target}")


@click.command("restore")
@_home
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def restore_command(home: Path, source: Path) -> None:
    """Restore a backup. Present files are set aside; running tasks are left alone.

    A member that has acted since the backup does not start under its name again: its peers notice, and take
    over its work.
    """
    try:
        done = restore(Home(home), source)
    except (BackupError, JournalError, LeagueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    name = done.manifest.name
    click.echo(f"{name} is as it was at {done.manifest.made}.")
    if done.aside is not None:
        click.echo(f"What was there before is in {done.aside}.")
    if done.lost:
        click.echo(
            f"\n{name} had {done.lost} more records, so it will not start under this name: its peers "
            "know what it has lost. Let them take over its work, and add it under a new name at "
            "the end of the league file."
        )
    elif name != AUTHORITY:
        click.echo("Start it: before it acts, it asks its peers whether they know more of it.")
