"""``hanse journal``: verification, repair and replay of a member's journal."""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec

from hanse.cli.common_options import league_options, print_json
from hanse.cli.home_option import home_option
from hanse.cli.journal_report import has_losses, is_untouched, repaired_words, verdict_words
from hanse.client.contexts import chosen_home
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.live.config.home_permissions import tighten_umask
from hanse.live.config.league import LeagueError
from hanse.live.config.league_file import load
from hanse.live.high_water_mark import REACHED
from hanse.live.journal.disk import lock
from hanse.live.journal.errors import JournalError, JournalInUse
from hanse.live.journal.reading import history
from hanse.live.journal.recovery import exists
from hanse.live.journal.repair import Repaired, repair, verify
from hanse.live.recovery import JOURNAL, LOSSES, decode_event
from hanse.security import atomic_files
from hanse.security.home import Home

BEGUN: Final = "a repair was begun and has not ended: run it again"
"""Content of the losses file while a repair runs; it stays there if the repair is killed."""
QUESTION: Final = "Unreadable parts are set aside, and the records behind them are lost. Go on?"


@click.group()
def journal() -> None:
    """Verify, repair and replay the journals on this machine. Stop a member before a repair."""


@journal.command("verify")
@home_option
@click.argument("member")
@league_options
def verify_command(home: Path, member: str, as_json: bool) -> None:
    """Read MEMBER's whole journal and report damage; the status is 1 if there is any."""
    with _told():
        verdict = verify(_directory(home, member))
    if as_json:
        print_json({"member": member, "sound": verdict.problem is None, "verdict": verdict})
    else:
        click.echo(verdict_words(member, verdict))
    if verdict.problem is not None:
        raise SystemExit(ExitCode.FAILED)


@journal.command("repair")
@home_option
@click.argument("member")
@click.option("--yes", is_flag=True, help="Do not ask.")
@league_options
def repair_command(home: Path, member: str, yes: bool, as_json: bool) -> None:
    """Keep the longest sound part of MEMBER's journal; set the damaged original aside, undeleted."""
    tighten_umask()
    with _told():
        directory = _directory(home, member)
        exists(directory)
        os.close(lock(directory))  # refuse a journal in use before asking
        if not yes and not _is_agreed():
            raise CommandError("nothing was changed", ExitCode.FAILED, "insist with '--yes'")
        done = _repaired(directory)
    if as_json:
        print_json({"member": member, "lost": has_losses(done), "repaired": done})
        return
    click.echo(repaired_words(member, done))
    if has_losses(done):
        click.echo(
            f"\nRecords are lost, so {member} will not start under this name: its peers know what it "
            "has lost. Let them take over its work, and add it under a new name at the end of the league "
            "file."
        )
    elif not is_untouched(done):
        click.echo(f"Start {member} again: 'hanse up', or its service.")


def _is_agreed() -> bool:
    """True if a person confirms the repair; False if there is no terminal."""
    try:
        return click.confirm(QUESTION, err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def _repaired(directory: Path) -> Repaired:
    """Repair a journal. After an interrupted repair, a member that has lost records does not start."""
    losses = directory.parent / LOSSES
    begun = f"{BEGUN}\n".encode()
    is_known = losses.exists() and losses.read_bytes() != begun
    if not is_known:
        atomic_files.replace(losses, begun, atomic_files.PUBLIC)
    try:
        done = repair(directory)
    except JournalInUse:
        if not is_known:
            losses.unlink()  # nothing was changed
        raise
    if has_losses(done):
        atomic_files.replace(
            losses, f"{repaired_words(directory.parent.name, done)}\n".encode(), atomic_files.PUBLIC
        )
        (directory.parent / REACHED).unlink(missing_ok=True)  # the losses file alone decides from now on
    elif not is_known:
        losses.unlink()
        atomic_files.sync_directory(losses.parent)
    return done


class Difference(msgspec.Struct, frozen=True):
    """First record whose replay gives other effects than the live run."""

    record: int
    live: str
    """Digest of the effects, in hexadecimal digits."""
    replayed: str


class Replay(msgspec.Struct):
    """Result of a replay so far."""

    member: str
    events: int = 0
    compared: int = 0
    difference: Difference | None = None


@journal.command("replay")
@home_option
@click.argument("member")
@league_options
def replay_command(home: Path, member: str, as_json: bool) -> None:
    """Replay MEMBER's journal in a fresh machine, and compare the effects with those of the live run.

    The comparison needs the digests that '--record-digests' has kept.
    """
    with _told():
        found = _replayed(home, member)
    difference = found.difference
    if as_json:
        print_json(found)
    elif difference is not None:
        click.echo(
            f"Record {difference.record} of {member}: the live run had other effects "
            f"(digest {difference.live}, now {difference.replayed})."
        )
    else:
        click.echo(
            f"{found.events} events of {member} replayed, {found.compared} compared with the live run, no "
            "difference."
        )
    if difference is not None:
        raise SystemExit(ExitCode.FAILED)


def _replayed(home: Path, member: str) -> Replay:
    from hanse.live.config.config_history import Past, read_eras, settings_of  # noqa: PLC0415  NumPy is slow to import

    directory = _directory(home, member)
    own = directory.parent
    today = settings_of(load(Home(own.parent).league_file), member)
    digests = _digests(own / "commands.digest")
    found = Replay(member)
    past = history(directory)
    lived = Past(read_eras(own, today), past.position, past.snapshot)
    for position, record in past.records:
        commands = lived.machine.handle(decode_event(record))
        lived.reached(position)
        found.events += 1
        expected = digests.get(position)
        if expected is None:
            continue
        found.compared += 1
        digest = zlib.crc32(msgspec.msgpack.encode(commands))
        if digest != expected:
            found.difference = Difference(position, f"{expected:08x}", f"{digest:08x}")
            return found
    lived.machine.check()
    return found


@contextmanager
def _told() -> Iterator[None]:
    """Turn errors of a journal or its league into command errors."""
    try:
        yield
    except (JournalError, LeagueError) as error:
        raise CommandError(str(error), ExitCode.FILE) from None


def _digests(path: Path) -> dict[int, int]:
    if not path.exists():
        return {}
    pairs = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {int(pair[0]): int(pair[1], 16) for pair in pairs if len(pair) == 2 and len(pair[1]) == 8}


def _directory(home: Path, member: str) -> Path:
    """Return the directory of a member's journal, in the given home or that of the named context."""
    place = Home(chosen_home(home)[0].absolute())
    directory = place.member(member) / JOURNAL
    if not directory.is_dir():
        known = ", ".join(sorted(path.parent.name for path in place.path.glob(f"*/{JOURNAL}")))
        raise CommandError(
            f"{directory} is missing",
            ExitCode.FILE,
            f"there are journals of: {known}" if known else "there are none here; name the home with --home",
        )
    return directory
