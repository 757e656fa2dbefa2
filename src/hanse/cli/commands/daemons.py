"""``hanse broker``, ``hanse warden`` and ``hanse runner``: one member of a league, until it is stopped."""

import gc
import logging
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from hanse.cli.home_refusal import refuse_unsafe, refuse_unsafe_places
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.league.config import LeagueError
from hanse.league.file import load
from hanse.live.config.home_permissions import tighten_umask
from hanse.live.disk_space import is_out_of_space
from hanse.live.journal.errors import JournalError
from hanse.live.start_report import NO_REPORT, StartReport
from hanse.live.supervisor import SupervisorMissingError
from hanse.live.telemetry.json_logs import configure_logging
from hanse.security.credentials import Credentials
from hanse.security.home import Home

RETRY_SECONDS: Final = 1.0
"""Time between two tries to restart while the disk is full."""
_log = logging.getLogger(__name__)

MakeDaemon = Callable[[Path, Any, str], Any]


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all three commands."""
    for option in (
        click.argument("name"),
        click.option(
            "--home", type=click.Path(path_type=Path, file_okay=False), required=True, envvar="HANSE_HOME",
            help="The league's home on this machine (see 'hanse init' and 'hanse join').",
        ),
        click.option("--log-level", default="info", show_default=True,
                     type=click.Choice(["debug", "info", "warning", "error"])),
        click.option("--ready-fd", type=int, hidden=True, help="File descriptor for start progress."),
        click.option("--record-digests", is_flag=True,
                     help="Keep a digest of all effects, to compare with an offline replay."),
        click.option("--founding", is_flag=True, hidden=True,
                     help="The league is new: no peer can know anything of this member."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@_options
def broker(
    name: str, home: Path, log_level: str, ready_fd: int | None, record_digests: bool, founding: bool
) -> None:
    """Run the broker NAME of the league in --home, in the foreground."""
    from hanse.live.broker_daemon import BrokerDaemon  # noqa: PLC0415  NumPy and the server import slowly

    _serve(partial(BrokerDaemon, digests=record_digests, founding=founding), name, home, log_level, ready_fd)


@click.command()
@_options
def warden(
    name: str, home: Path, log_level: str, ready_fd: int | None, record_digests: bool, founding: bool
) -> None:
    """Run the warden of the cluster NAME, in the foreground. Its tasks outlive the process."""
    from hanse.live.warden_daemon import WardenDaemon  # noqa: PLC0415  as above

    _serve(partial(WardenDaemon, digests=record_digests, founding=founding), name, home, log_level, ready_fd)


@click.command()
@_options
def runner(
    name: str, home: Path, log_level: str, ready_fd: int | None, record_digests: bool, founding: bool
) -> None:
    """Run the runner NAME on a machine other than its warden's, in the foreground."""
    from hanse.live.runner_daemon import RunnerDaemon  # noqa: PLC0415  as above

    del record_digests, founding  # a runner's state is in its backend: there is nothing to replay
    _serve(RunnerDaemon, name, home, log_level, ready_fd)


def _refuse_damaged(credentials: Credentials, place: Home, name: str) -> None:
    """Exit if the member has no usable certificate."""
    problem = credentials.problem()
    if problem is not None:
        raise CommandError(
            f"{problem}. {name} has no valid identity: move {credentials.path} away if it exists. Where the "
            f"league was created, 'hanse up --home {place.path}' makes a new one; elsewhere join again "
            f"with a token of 'hanse token create'",
            ExitCode.FILE,
        )


def serve_again(serve: Callable[[], bool], name: str, pause: float = RETRY_SECONDS) -> None:
    """Serve as long as the member asks for a restart of its own. ``serve`` returns True for another one.

    A full disk only delays it: nobody else starts a member again that has restarted by itself.
    """
    is_told = False
    while True:
        try:
            if not serve():
                return
            is_told = False
            continue
        except (OSError, JournalError, sqlite3.Error) as error:
            if not is_out_of_space(error):
                raise
            if not is_told:
                _log.warning("%s waits with its restart: there is no space on its disk (%s)", name, error)
            is_told = True
        gc.collect()  # what a start that failed has opened
        time.sleep(pause)


def _serve(make: MakeDaemon, name: str, home: Path, log_level: str, ready_fd: int | None) -> None:
    import uvloop  # noqa: PLC0415  as above

    place = Home(home)
    if not place.league_file.is_file():
        raise click.ClickException(
            f"{place.league_file} is missing; create a league with 'hanse init' or 'hanse up'"
        )
    tighten_umask()
    refuse_unsafe(place, name)
    configure_logging(name, log_level)

    async def serve(report: StartReport) -> bool:
        league = load(place.league_file)
        refuse_unsafe_places(league, name)
        daemon = make(home, league, name)
        _refuse_damaged(Credentials(place.member(name)), place, name)
        await daemon.run(report)
        return bool(daemon.restart_requested)

    try:
        if uvloop.run(serve(StartReport(ready_fd))):
            serve_again(lambda: uvloop.run(serve(NO_REPORT)), name)
    except (LeagueError, SupervisorMissingError) as error:
        raise click.ClickException(str(error)) from None
    except JournalError as error:
        click.echo(f"hanse: {error}", err=True)
        raise SystemExit(ExitCode.FILE) from None
    except sqlite3.Error as error:
        click.echo(
            f"hanse: the read model of {name} cannot be written: {error}. If the disk is full, make room and "
            f"start {name} again; if not, delete {place.member(name)}/reads.sqlite*: it is rebuilt.",
            err=True,
        )
        raise SystemExit(ExitCode.FILE) from None
