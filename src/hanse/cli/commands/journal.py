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
from hanse.cli.journal_report import has_losses, is_untouched, repair_text, verdict_text
from hanse.client.contexts import resolve_home
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.league.config import LeagueError
from hanse.league.file import load
from hanse.live.config.home_permissions import tighten_umask
from hanse.live.high_water_mark import HIGH_WATER_MARK_FILE
from hanse.live.journal.creation import require_journal
from hanse.live.journal.disk import lock
from hanse.live.journal.errors import JournalError, JournalInUse
from hanse.live.journal.reading import read_history
from hanse.live.journal.repair import RepairReport, repair, verify
from hanse.live.recovery import JOURNAL_DIRECTORY, LOST_RECORDS_FILE, decode_event
from hanse.model.effects import orders_of
from hanse.security import atomic_files
from hanse.security.home import Home

REPAIR_BEGUN: Final = "a repair was begun and has not ended: run it again"
"""Content of the losses file while a repair runs; it stays there if the repair is killed."""
REPAIR_QUESTION: Final = "Unreadable parts are set aside, and the records behind them are lost. Go on?"


@click.group()
def journal() -> None:
    """Verify, repair and replay the journals on this machine. Stop a member before a repair."""


@journal.command("verify")
@home_option
@click.argument("member")
@league_options
def verify_command(home: Path, member: str, as_json: bool) -> None:
    """Read MEMBER's whole journal and report damage; the status is 1 if there is any."""
    with _command_errors():
        verdict = verify(_journal_directory(home, member))
    if as_json:
        print_json({"member": member, "sound": verdict.problem is None, "verdict": verdict})
    else:
        click.echo(verdict_text(member, verdict))
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
    with _command_errors():
        directory = _journal_directory(home, member)
        require_journal(directory)
        os.close(lock(directory))  # refuse a journal in use before asking
        if not yes and not _is_confirmed():
            raise CommandError("nothing was changed", ExitCode.FAILED, "insist with '--yes'")
        done = _repair_journal(directory)
    if as_json:
        print_json({"member": member, "lost": has_losses(done), "repaired": done})
        return
    click.echo(repair_text(member, done))
    if has_losses(done):
        click.echo(
            f"\nRecords are lost, so {member} will not start under this name: its peers know what it "
            "has lost. Let them take over its work, and add it under a new name at the end of the league "
            "file."
        )
    elif not is_untouched(done):
        click.echo(f"Start {member} again: 'hanse up', or its service.")


def _is_confirmed() -> bool:
    """True if a person confirms the repair; False if there is no terminal."""
    try:
        return click.confirm(REPAIR_QUESTION, err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def _repair_journal(directory: Path) -> RepairReport:
    """Repair a journal. After an interrupted repair, a member that has lost records does not start."""
    losses = directory.parent / LOST_RECORDS_FILE
    begun = f"{REPAIR_BEGUN}\n".encode()
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
            losses, f"{repair_text(directory.parent.name, done)}\n".encode(), atomic_files.PUBLIC
        )
        (directory.parent / HIGH_WATER_MARK_FILE).unlink(
            missing_ok=True
        )  # the losses file alone decides from now on
    elif not is_known:
        losses.unlink()
        atomic_files.sync_directory(losses.parent)
    return done


class ReplayDifference(msgspec.Struct, frozen=True):
    """First record whose replay gives other effects than the live run."""

    record: int
    live: str
    """Digest of the effects, in hexadecimal digits."""
    replayed: str


class JournalReplay(msgspec.Struct):
    """Result of a replay so far."""

    member: str
    events: int = 0
    compared: int = 0
    difference: ReplayDifference | None = None


@journal.command("replay")
@home_option
@click.argument("member")
@league_options
def replay_command(home: Path, member: str, as_json: bool) -> None:
    """Replay MEMBER's journal in a fresh machine, and compare the effects with those of the live run.

    The comparison needs the digests that '--record-digests' has kept.
    """
    with _command_errors():
        replay = _replay_journal(home, member)
    difference = replay.difference
    if as_json:
        print_json(replay)
    elif difference is not None:
        click.echo(
            f"Record {difference.record} of {member}: the live run had other effects "
            f"(digest {difference.live}, now {difference.replayed})."
        )
    else:
        click.echo(
            f"{replay.events} events of {member} replayed, {replay.compared} compared with the live run, no "
            "difference."
        )
    if difference is not None:
        raise SystemExit(ExitCode.FAILED)


def _replay_journal(home: Path, member: str) -> JournalReplay:
    from hanse.live.config.config_history import MachineReplay, member_settings, read_config_history  # noqa: PLC0415  NumPy is slow to import

    directory = _journal_directory(home, member)
    member_directory = directory.parent
    settings = member_settings(load(Home(member_directory.parent).league_file), member)
    digests = _digests(member_directory / "commands.digest")
    replay = JournalReplay(member)
    past = read_history(directory)
    recorded_machine = MachineReplay(
        read_config_history(member_directory, settings), past.position, past.snapshot
    )
    for position, record in past.records:
        effects = recorded_machine.machine.handle(decode_event(record))
        recorded_machine.advance(position)
        replay.events += 1
        expected = digests.get(position)
        if expected is None:
            continue
        replay.compared += 1
        digest = zlib.crc32(msgspec.msgpack.encode(orders_of(effects)))
        if digest != expected:
            replay.difference = ReplayDifference(position, f"{expected:08x}", f"{digest:08x}")
            return replay
    recorded_machine.machine.check()
    return replay


@contextmanager
def _command_errors() -> Iterator[None]:
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


def _journal_directory(home: Path, member: str) -> Path:
    """Return the directory of a member's journal, in the given home or that of the named context."""
    place = Home(resolve_home(home)[0].absolute())
    directory = place.member(member) / JOURNAL_DIRECTORY
    if not directory.is_dir():
        known = ", ".join(sorted(path.parent.name for path in place.path.glob(f"*/{JOURNAL_DIRECTORY}")))
        raise CommandError(
            f"{directory} is missing",
            ExitCode.FILE,
            f"there are journals of: {known}" if known else "there are none here; name the home with --home",
        )
    return directory
