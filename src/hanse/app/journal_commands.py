"""``hanse journal``: look at a member's journal, mend it, and replay it through a fresh machine."""

import zlib
from pathlib import Path

import click
import msgspec

from hanse.app.exit_codes import ExitCode
from hanse.live.home import Home
from hanse.live.journal.errors import JournalError
from hanse.live.journal.reading import history
from hanse.live.journal.repair import repair, verify
from hanse.live.league_file import load
from hanse.live.reached import REACHED
from hanse.live.recovery import JOURNAL, LOSSES, decode_event

_home = click.option(
    "--home", type=click.Path(path_type=Path, file_okay=False), required=True, envvar="HANSE_HOME",
    help="The league's home on this machine.",
)  # fmt: skip


@click.group()
def journal() -> None:
    """The journals of this machine's members. Stop a member before you mend its journal."""


@journal.command("verify")
@_home
@click.argument("member")
def verify_command(home: Path, member: str) -> None:
    """Read MEMBER's whole journal and say whether anything is wrong with it."""
    verdict = verify(_directory(home, member))
    click.echo(str(verdict))
    if verdict.problem:
        raise SystemExit(ExitCode.FAILED)


@journal.command("repair")
@_home
@click.argument("member")
@click.confirmation_option(
    prompt="What cannot be read is set aside, and the records behind it are lost. Go on?"
)
def repair_command(home: Path, member: str) -> None:
    """Keep the longest sound part of MEMBER's journal; the damaged original is set aside, not deleted."""
    directory = _directory(home, member)
    try:
        done = repair(directory)
    except JournalError as error:
        raise click.ClickException(str(error)) from None
    click.echo(str(done))
    if done.lost is not None or done.lost_open:
        (directory.parent / LOSSES).write_text(str(done), encoding="utf-8")
        (directory.parent / REACHED).unlink(missing_ok=True)  # the other file says more, and alone decides
        click.echo(
            f"\nRecords are lost, so {member} will not start under this name: its peers remember what it has "
            "forgotten. Let them adopt its work, and bring it back under a new name at the end of the league "
            "file."
        )


@journal.command("replay")
@_home
@click.argument("member")
def replay_command(home: Path, member: str) -> None:
    """Take MEMBER's past again through a fresh machine, and compare the commands with those of the live run.

    The comparison needs the digests that '--record-digests' has kept.
    """
    from hanse.live.eras import Past, read_eras, settings_of  # noqa: PLC0415  NumPy is slow to import

    place = Home(home)
    today = settings_of(load(place.league_file), member)
    digests = _digests(place.member(member) / "commands.digest")
    events = compared = 0
    past = history(_directory(home, member))
    lived = Past(read_eras(place.member(member), today), past.position, past.snapshot)
    for position, record in past.records:
        commands = lived.machine.handle(decode_event(record))
        lived.reached(position)
        events += 1
        expected = digests.get(position)
        if expected is not None:
            compared += 1
            found = zlib.crc32(msgspec.msgpack.encode(commands))
            if found != expected:
                click.echo(
                    f"record {position}: the live run asked for something else "
                    f"(digest {expected:08x}, now {found:08x})"
                )
                raise SystemExit(ExitCode.FAILED)
    lived.machine.check()
    click.echo(f"{events} events replayed, {compared} compared with the live run, no difference")


def _digests(path: Path) -> dict[int, int]:
    if not path.exists():
        return {}
    pairs = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {int(pair[0]): int(pair[1], 16) for pair in pairs if len(pair) == 2 and len(pair[1]) == 8}


def _directory(home: Path, member: str) -> Path:
    directory = Home(home).member(member) / JOURNAL
    if not directory.is_dir():
        raise click.ClickException(f"{directory} is missing; members of this home: {_members(home)}")
    return directory


def _members(home: Path) -> str:
    return ", ".join(sorted(path.parent.name for path in home.glob(f"*/{JOURNAL}"))) or "none"
