"""Recovery of a member: the snapshot, then the journal, then a clock that goes on.

Effects of replayed events are not performed: they were performed before, or the links repeat them.
``on_replayed`` receives them, because a read model may have missed the last ones.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from hanse.league.config import LeagueError
from hanse.live.clock import Clock
from hanse.live.config.config_history import (
    CONFIG_HISTORY_FILE,
    ConfigEntry,
    JournalledMachine,
    MachineReplay,
    MemberSettings,
    read_config_history,
    settings_problem,
    write_config_history,
)
from hanse.live.directory_warnings import find_start_warnings
from hanse.live.high_water_mark import (
    LostHistoryError,
    read_high_water_mark,
    refuse_known_older,
    refuse_missing_journal,
    refuse_older_journal,
    write_high_water_mark,
)
from hanse.live.journal.journal import Journal
from hanse.live.journal.journal import JournalContents as Found
from hanse.live.shell import EventListener
from hanse.model.events import Event
from hanse.security.wall_time import wall_now

JOURNAL_DIRECTORY: Final = "journal"
CLOCK_FILE: Final = "clock.json"
LOST_RECORDS_FILE: Final = "records-were-lost"
"""Marker file of a repair that could not keep every record."""
RangeListener = Callable[[int, int], None]
ProgressListener = Callable[[int, int], None]
"""Receives the number of replayed records and their total."""
log: Final = logging.getLogger(__name__)
decode_event: Final = msgspec.msgpack.Decoder(Event).decode


class RecoveredMember(msgspec.Struct, frozen=True):
    """Result of a recovery."""

    machine: JournalledMachine
    journal: Journal
    clock: Clock
    replayed: int
    cut_bytes: int
    """Bytes of a torn tail that were cut off; they were never acknowledged."""


def recover(
    directory: Path,
    settings: MemberSettings,
    on_replayed: EventListener | None = None,
    on_range: RangeListener | None = None,
    on_progress: ProgressListener | None = None,
) -> RecoveredMember:
    """Restore a machine from its snapshot and journal, and let it go on under these settings.

    ``on_range`` receives, before the replay, the positions between which records are replayed;
    ``on_progress``, after each record, how many are done.
    """
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    if (directory / LOST_RECORDS_FILE).exists():
        raise LostHistoryError(
            f"the journal of {directory.name} was repaired and has lost records: it has forgotten promises "
            f"that its peers remember. Let them take over its jobs, and add it under a new name at the "
            f"end of the league file. (Delete {directory / LOST_RECORDS_FILE} to start it anyway: it is "
            f"refused if a peer remembers more of it.)"
        )
    refuse_known_older(directory)
    refuse_missing_journal(directory, directory / JOURNAL_DIRECTORY)
    last_write = _last_write_time(
        directory / JOURNAL_DIRECTORY
    )  # before the journal may write its newest block again
    mark = read_high_water_mark(directory)
    journal, recovered = Journal.open(
        directory / JOURNAL_DIRECTORY, chain_at=0 if mark is None else mark.position
    )
    try:
        refuse_older_journal(directory, mark, journal, recovered.chain)
        if on_range is not None:
            on_range(recovered.snapshot_position, journal.position)
        since = last_write if journal.position else 0
        for sentence in find_start_warnings(
            directory, journal.position, recovered.cut_bytes, since, wall_now()
        ):
            log.warning("%s", sentence)
        entries = read_config_history(directory, settings)
        replay = MachineReplay(entries, recovered.snapshot_position, recovered.snapshot)
        last_at = _replay(replay, recovered, on_replayed, on_progress)
        _apply_settings(directory, entries, replay, settings, journal.position)
        clock = Clock.resume(directory / CLOCK_FILE, last_at, since)
        write_high_water_mark(directory, journal)
    except BaseException:
        journal.close()
        raise
    return RecoveredMember(replay.machine, journal, clock, len(recovered.records), recovered.cut_bytes)


def _replay(
    replay: MachineReplay,
    recovered: Found,
    on_replayed: EventListener | None,
    on_progress: ProgressListener | None,
) -> int:
    """Replay the records after the snapshot; return the instant of the last one."""
    last_at = 0
    position = recovered.snapshot_position
    total = len(recovered.records)
    if on_progress is not None:
        on_progress(0, total)
    for record in recovered.records:
        position += 1
        event = decode_event(record)
        effects = replay.machine.handle(event)
        last_at = event.at
        if on_replayed is not None:
            on_replayed(position, event, effects)
        replay.advance(position)
        if on_progress is not None:
            on_progress(position - recovered.snapshot_position, total)
    replay.machine.check()
    return last_at


def _apply_settings(
    directory: Path,
    entries: list[ConfigEntry],
    replay: MachineReplay,
    settings: MemberSettings,
    position: int,
) -> None:
    """Record the current settings if they are new, and carry the state over to them."""
    if replay.settings != settings:
        reason = settings_problem(replay.machine, settings)
        if reason:
            raise LeagueError(f"{directory.name} cannot go on with the league file as it is now: {reason}")
        replay.change_settings(settings)
        replay.machine.check()
        entries = [*[entry for entry in entries if entry.after < position], ConfigEntry(position, settings)]
    elif (directory / CONFIG_HISTORY_FILE).exists():
        return
    write_config_history(directory, entries)


def _last_write_time(directory: Path) -> int:
    """Return the time of the journal's last write, by the wall clock in microseconds."""
    return max((path.stat().st_mtime_ns // 1_000 for path in directory.glob("*.seg")), default=0)
