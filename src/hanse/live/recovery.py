"""How a member comes back: the snapshot, then the journal, then a clock that goes on.

What the machine asks for while it takes its past again is not performed: it was, or its links repeat it. It
is *told* to whoever keeps a read model, which may have missed the end.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from hanse.core.machine import Machine
from hanse.live.clock import Clock
from hanse.live.journal.errors import JournalError
from hanse.live.journal.journal import Journal
from hanse.live.shell import Told
from hanse.model.events import Event

JOURNAL: Final = "journal"
CLOCK: Final = "clock.json"
LOSSES: Final = "records-were-lost"
"""Left by a repair that could not keep everything."""
FoundAt = Callable[[int, int], None]
decode_event: Final = msgspec.msgpack.Decoder(Event).decode


class Recoverable(Machine, Protocol):
    """A machine with a journal."""

    @property
    def epoch(self) -> int:
        """How often it has been started."""
        ...


class ForgetfulError(JournalError):
    """A member must not come back as if it remembered everything."""


class Recovered(msgspec.Struct, frozen=True):
    """What was found."""

    journal: Journal
    clock: Clock
    replayed: int
    cut: int
    """Bytes of a torn tail: never acknowledged, now gone."""


def recover(
    directory: Path, machine: Recoverable, told: Told | None = None, found_at: FoundAt | None = None
) -> Recovered:
    """Bring a machine to the state that its journal tells.

    ``found_at`` hears, before anything is replayed, between which positions that will be.
    """
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    if (directory / LOSSES).exists():
        raise ForgetfulError(
            f"the journal of {directory.name} was repaired and has lost records: it has forgotten promises "
            f"that its peers remember. Let them adopt its work, and bring it back under a new name at the "
            f"end of the league file. (Delete {directory / LOSSES} to start it all the same: work may be "
            f"stuck or lost.)"
        )
    journal, found = Journal.open(directory / JOURNAL)
    if found_at is not None:
        found_at(found.snapshot_position, journal.position)
    if found.snapshot is not None:
        machine.restore(found.snapshot)
    last_at = 0
    position = found.snapshot_position
    for record in found.records:
        position += 1
        event = decode_event(record)
        commands = machine.handle(event)
        last_at = event.at
        if told is not None:
            told(position, event, commands)
    assert position == journal.position, f"replayed up to {position}, the journal ends at {journal.position}"
    machine.check()
    clock = Clock.resume(directory / CLOCK, last_at, _last_write(directory / JOURNAL) if position else 0)
    return Recovered(journal, clock, position - found.snapshot_position, found.cut)


def _last_write(directory: Path) -> int:
    """When the journal was last written, by the wall clock in microseconds."""
    return max((path.stat().st_mtime_ns // 1_000 for path in directory.glob("*.seg")), default=0)
