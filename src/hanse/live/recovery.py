"""Recovery of a member: the snapshot, then the journal, then a clock that goes on.

Effects of replayed events are not performed: they were performed before, or the links repeat them.
``on_replayed`` receives them, because a read model may have missed the last ones.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.clock import Clock
from hanse.live.config.config_history import (
    ERAS,
    Era,
    Past,
    Replayed,
    Settings,
    objection,
    read_eras,
    write_eras,
)
from hanse.live.config.league import LeagueError
from hanse.live.high_water_mark import (
    ForgetfulError,
    read_reached,
    refuse_contradicted,
    refuse_missing,
    refuse_older,
    write_reached,
)
from hanse.live.journal.journal import Journal
from hanse.live.journal.journal import Recovered as Found
from hanse.live.shell import Told
from hanse.live.start_warnings import start_warnings
from hanse.model.events import Event
from hanse.security.wall_time import wall_now

JOURNAL: Final = "journal"
CLOCK: Final = "clock.json"
LOSSES: Final = "records-were-lost"
"""Marker file of a repair that could not keep every record."""
FoundAt = Callable[[int, int], None]
Progress = Callable[[int, int], None]
"""Receives the number of replayed records and their total."""
log: Final = logging.getLogger(__name__)
decode_event: Final = msgspec.msgpack.Decoder(Event).decode


class Recovered(msgspec.Struct, frozen=True):
    """Result of a recovery."""

    machine: Replayed
    journal: Journal
    clock: Clock
    replayed: int
    cut: int
    """Bytes of a torn tail that were cut off; they were never acknowledged."""


def recover(
    directory: Path,
    settings: Settings,
    told: Told | None = None,
    found_at: FoundAt | None = None,
    progress: Progress | None = None,
) -> Recovered:
    """Restore a machine from its snapshot and journal, and let it go on under these settings.

    ``on_range`` receives, before the replay, the positions between which records are replayed;
    ``on_progress``, after each record, how many are done.
    """
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    if (directory / LOSSES).exists():
        raise ForgetfulError(
            f"the journal of {directory.name} was repaired and has lost records: it has forgotten promises "
            f"that its peers remember. Let them take over its jobs, and add it under a new name at the "
            f"end of the league file. (Delete {directory / LOSSES} to start it anyway: it is "
            f"refused if a peer remembers more of it.)"
        )
    refuse_contradicted(directory)
    refuse_missing(directory, directory / JOURNAL)
    last_write = _last_write(directory / JOURNAL)  # before the journal may write its newest block again
    reached = read_reached(directory)
    journal, found = Journal.open(directory / JOURNAL, sought=0 if reached is None else reached.position)
    try:
        refuse_older(directory, reached, journal, found.chain)
        if found_at is not None:
            found_at(found.snapshot_position, journal.position)
        since = last_write if journal.position else 0
        for sentence in start_warnings(directory, journal.position, found.cut, since, wall_now()):
            log.warning("%s", sentence)
        eras = read_eras(directory, settings)
        past = Past(eras, found.snapshot_position, found.snapshot)
        last_at = _replay(past, found, told, progress)
        _go_on(directory, eras, past, settings, journal.position)
        clock = Clock.resume(directory / CLOCK, last_at, since)
        write_reached(directory, journal)
    except BaseException:
        journal.close()
        raise
    return Recovered(past.machine, journal, clock, len(found.records), found.cut)


def _replay(past: Past, found: Found, told: Told | None, progress: Progress | None) -> int:
    """Replay the records after the snapshot; return the instant of the last one."""
    last_at = 0
    position = found.snapshot_position
    total = len(found.records)
    if progress is not None:
        progress(0, total)
    for record in found.records:
        position += 1
        event = decode_event(record)
        commands = past.machine.handle(event)
        last_at = event.at
        if told is not None:
            told(position, event, commands)
        past.reached(position)
        if progress is not None:
            progress(position - found.snapshot_position, total)
    past.machine.check()
    return last_at


def _go_on(directory: Path, eras: list[Era], past: Past, settings: Settings, position: int) -> None:
    """Record the current settings if they are new, and carry the state over to them."""
    if past.settings != settings:
        reason = objection(past.machine, settings)
        if reason:
            raise LeagueError(f"{directory.name} cannot go on with the league file as it is now: {reason}")
        past.change(settings)
        past.machine.check()
        eras = [*[era for era in eras if era.after < position], Era(position, settings)]
    elif (directory / ERAS).exists():
        return
    write_eras(directory, eras)


def _last_write(directory: Path) -> int:
    """Return the time of the journal's last write, by the wall clock in microseconds."""
    return max((path.stat().st_mtime_ns // 1_000 for path in directory.glob("*.seg")), default=0)
